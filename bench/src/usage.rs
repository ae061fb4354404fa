//! The resources a process has used, as the operating system counts them.

use std::time::Duration;

/// Processor time of this process, user and system, all threads.
pub fn cpu_time() -> Duration {
    // `clock_gettime(CLOCK_PROCESS_CPUTIME_ID)` counts in nanoseconds where getrusage may count in
    // ticks.
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How long the current threads of this process were ready to run and did not, because the
/// processors were busy; zero where the system does not report it.
pub fn waited() -> Duration {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let of = |path: std::path::PathBuf| {
        let words = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        // Time run, time waited, time slices (Documentation/scheduler/sched-stats.rst).
        words.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(threads.filter_map(|thread| Some(of(thread.ok()?.path()))).sum())
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|value| value.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
