//! What a process has used, by the operating system's account.

use std::time::Duration;

/// Processor time of this process, user and system, all threads.
pub fn cpu_time() -> Duration {
    // `clock_gettime(CLOCK_PROCESS_CPUTIME_ID)` counts in nanoseconds where getrusage may count in ticks.
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|value| value.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
