//! The machine's processors, and threads that stay on one of them.

use std::io;

/// The processors that this thread may run on, by their numbers; none where the system does not tell.
pub fn allowed() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity};
        match sched_getaffinity(None) {
            Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
            Err(error) => {
                tracing::debug!(%error, "which processors there are is not told");
                Vec::new()
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// How many processors this thread may run on; at least one.
pub fn count() -> usize {
    match allowed().len() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Keeps the calling thread on processor `core`. Does nothing where the system cannot.
///
/// # Errors
/// What the system says, such as that it must not run there.
pub fn stay_on(core: usize) -> io::Result<()> {
    stay_among(&[core])
}

/// Keeps the calling thread, and those that it starts from now on, on these processors. Does nothing where the system cannot.
///
/// # Errors
/// What the system says, such as that it must not run there, or that there are none.
pub fn stay_among(cores: &[usize]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_setaffinity};
        let mut set = CpuSet::new();
        for core in cores {
            if *core >= CpuSet::MAX_CPU {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the system does not count so many processors",
                ));
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
    fn a_thread_stays_where_it_was_put() {
        let cores = allowed();
        assert!(!cores.is_empty() && count() == cores.len());
        let core = cores[cores.len() - 1];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stay_on(core).unwrap();
                assert_eq!(allowed(), [core]);
                let started = std::thread::scope(|scope| scope.spawn(allowed).join().unwrap());
                assert_eq!(started, [core], "who is started stays there, too");
                stay_among(&cores).unwrap();
                assert_eq!(allowed(), cores);
                assert!(stay_among(&[]).is_err());
            });
        });
        assert_eq!(allowed(), cores, "other threads stay free");
        assert!(stay_on(1 << 20).is_err(), "there is no such processor");
    }
}
