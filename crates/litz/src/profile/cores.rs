//! Which processors of this machine each end of a run has.

use litz::{Endpoint, EndpointConfig};

use super::Failure;
use super::run::words;

/// The processors of each end: half of those that there are, as if they were two machines. Left to itself, the system would now and
/// then put both ends on one processor, because the one wakes the other, and the run would tell more of the system than of the ends.
pub(super) struct Cores {
    pub(super) sending: Vec<usize>,
    pub(super) receiving: Vec<usize>,
}

impl Cores {
    /// Halves; with an odd number the end that sends has fewer, and one alone belongs to both. [`halves`] counts them.
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

    /// An endpoint, whose threads stay on these processors.
    pub(super) fn bind(cores: &[usize], config: EndpointConfig) -> Result<Endpoint, Failure> {
        let bound = std::thread::scope(|scope| {
            let bind = || {
                stay(cores)?;
                Endpoint::bind(config).map_err(words)
            };
            scope.spawn(bind).join()
        });
        let bound = bound.unwrap_or_else(|_| Err("binding panicked".to_owned()));
        bound.map_err(Failure::Error)
    }
}

/// Keeps this thread on these processors, if any are named.
pub(super) fn stay(cores: &[usize]) -> Result<(), String> {
    if cores.is_empty() {
        return Ok(());
    }
    net::processors::stay_among(cores).map_err(|error| format!("cannot stay on processors {cores:?}: {error}"))
}

/// How many processors of so many each end has: the one that sends, the one that receives. With one alone, both have it together.
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
    fn each_end_has_half_of_the_processors() {
        assert_eq!([0, 1, 2, 3, 8].map(halves), [[1, 1], [1, 1], [1, 1], [1, 2], [4, 4]]);
        let cores = Cores::of_this_machine();
        let count = net::processors::allowed().len();
        let expected = if count < 2 { [0, 0] } else { halves(count) };
        assert_eq!([cores.sending.len(), cores.receiving.len()], expected);
        assert!(cores.sending.iter().all(|core| !cores.receiving.contains(core)));
    }
}
