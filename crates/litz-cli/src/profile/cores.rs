//! Assigns this machine's processors to the ends of a run.

use litz::{Endpoint, EndpointConfig};

use super::failure::{Failure, to_message};

/// The processors of each end: half of all, as if the ends were two machines. Without pinning, the
/// system would sometimes run both ends on one processor, because one wakes the other, and the
/// result would depend on its scheduler.
pub(super) struct Cores {
    pub(super) sending: Vec<usize>,
    pub(super) receiving: Vec<usize>,
}

impl Cores {
    /// The halves of all processors. With an odd number the sending end has fewer; a single
    /// processor belongs to both. See [`halves`].
    pub(super) fn of_this_machine() -> Self {
        let cores = net::processors::allowed();
        match cores.len() {
            0 | 1 => Self { sending: Vec::new(), receiving: Vec::new() },
            count => {
                let (sending, receiving) = cores.split_at(count / 2);
                Self { sending: sending.to_vec(), receiving: receiving.to_vec() }
            }
        }
    }

    /// Binds an endpoint whose threads are pinned to these processors.
    pub(super) fn bind(cores: &[usize], config: EndpointConfig) -> Result<Endpoint, Failure> {
        let bound = std::thread::scope(|scope| {
            let bind = || {
                stay(cores)?;
                Endpoint::bind(config).map_err(to_message)
            };
            scope.spawn(bind).join()
        });
        let bound = bound.unwrap_or_else(|_| Err("binding panicked".to_owned()));
        bound.map_err(Failure::Error)
    }
}

/// Pins this thread to these processors, if there are any.
pub(super) fn stay(cores: &[usize]) -> Result<(), String> {
    if cores.is_empty() {
        return Ok(());
    }
    net::processors::set_affinity(cores)
        .map_err(|error| format!("cannot pin a thread to processors {cores:?}: {error}"))
}

/// Number of processors of the sending and of the receiving end. They share a single processor.
pub(crate) fn halves(processors: usize) -> [usize; 2] {
    match processors {
        0 | 1 => [1, 1],
        count => [count / 2, count.div_ceil(2)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_gets_half_of_the_processors() {
        assert_eq!([0, 1, 2, 3, 8].map(halves), [[1, 1], [1, 1], [1, 1], [1, 2], [4, 4]]);
        let cores = Cores::of_this_machine();
        let count = net::processors::allowed().len();
        let expected = if count < 2 { [0, 0] } else { halves(count) };
        assert_eq!([cores.sending.len(), cores.receiving.len()], expected);
        assert!(cores.sending.iter().all(|core| !cores.receiving.contains(core)));
    }
}
