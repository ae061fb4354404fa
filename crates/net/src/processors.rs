//! The machine's processors, and thread affinity.

use std::io;

/// Returns the numbers of the processors that this thread may run on; empty if the system does not
/// report them.
pub fn allowed() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity};
        match sched_getaffinity(None) {
            Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
            Err(error) => {
                tracing::debug!(%error, "cannot read the processor affinity");
                Vec::new()
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Returns the number of processors that this thread may run on; at least one.
pub fn count() -> usize {
    match allowed().len() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Pins the calling thread to processor `core`. Does nothing if the system does not support it.
///
/// # Errors
/// The system's error, for example if the processor is not available.
pub fn pin_to(core: usize) -> io::Result<()> {
    set_affinity(&[core])
}

/// Pins the calling thread, and the threads it starts later, to these processors. Does nothing if
/// the system does not support it.
///
/// # Errors
/// The system's error, for example if a processor is not available or the list is empty.
pub fn set_affinity(cores: &[usize]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_setaffinity};
        let mut set = CpuSet::new();
        for core in cores {
            if *core >= CpuSet::MAX_CPU {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "processor number out of range"));
            }
            set.set(*core);
        }
        sched_setaffinity(None, &set)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _unused = cores;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_pinned_thread_stays_on_its_processor() {
        let cores = allowed();
        assert!(!cores.is_empty() && count() == cores.len());
        let core = cores[cores.len() - 1];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(core).unwrap();
                assert_eq!(allowed(), [core]);
                let started = std::thread::scope(|scope| scope.spawn(allowed).join().unwrap());
                assert_eq!(started, [core], "a thread started later inherits the affinity");
                set_affinity(&cores).unwrap();
                assert_eq!(allowed(), cores);
                assert!(set_affinity(&[]).is_err());
            });
        });
        assert_eq!(allowed(), cores, "other threads are not pinned");
        assert!(pin_to(1 << 20).is_err(), "there is no such processor");
    }
}
