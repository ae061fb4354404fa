//! Bounds on the speedup by more processors.

use serde::Serialize;

/// The numbers of processors to compute bounds for; none means any number.
const PROCESSORS: [Option<u32>; 5] = [Some(2), Some(4), Some(8), Some(16), None];

/// The cost of a packet at one side of a connection, by the processors that can do the work, in
/// nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Shares {
    /// Work that only one processor can do.
    pub(crate) serial_ns: f64,
    /// Work that any number of processors can share.
    pub(crate) parallel_ns: f64,
    /// System calls, which are serial per socket.
    pub(crate) system_ns: f64,
}

/// The maximum speedup of a pipeline whose serial part has its own processor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Bound {
    /// Number of processors; none means any number.
    pub(crate) processors: Option<u32>,
    /// With one path, whose socket's system calls are serial too. None means unbounded.
    pub(crate) speedup: Option<f64>,
    /// With one path, and so one socket, per processor. None means unbounded.
    pub(crate) speedup_many_paths: Option<f64>,
}

impl Shares {
    /// The total cost.
    pub(crate) fn total_ns(&self) -> f64 {
        self.serial_ns + self.parallel_ns + self.system_ns
    }

    /// The bounds, for each number of processors.
    pub(crate) fn bounds(&self) -> Vec<Bound> {
        let total_ns = self.total_ns();
        PROCESSORS
            .into_iter()
            .map(|processors| Bound {
                processors,
                speedup: speedup(self.serial_ns + self.system_ns, total_ns, processors),
                speedup_many_paths: speedup(self.serial_ns, total_ns, processors),
            })
            .collect()
    }
}

/// (S + P) / max(S, (S + P) / n), and (S + P) / S for any number.
fn speedup(serial_ns: f64, total_ns: f64, processors: Option<u32>) -> Option<f64> {
    let share_ns = processors.map_or(0.0, |processors| total_ns / f64::from(processors));
    let slowest_ns = serial_ns.max(share_ns);
    (slowest_ns > 0.0 && total_ns > 0.0).then(|| total_ns / slowest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_limit_the_speedup_until_the_serial_part_does() {
        let shares = Shares { serial_ns: 50.0, parallel_ns: 250.0, system_ns: 100.0 };
        let bounds: Vec<_> = shares.bounds().iter().map(|bound| (bound.speedup, bound.speedup_many_paths)).collect();
        // One path: 150 of 400 are serial. Many: 50 of 400.
        let limit = 400.0 / 150.0;
        assert_eq!(bounds[0], (Some(2.0), Some(2.0)));
        assert_eq!(bounds[1], (Some(limit), Some(4.0)));
        assert_eq!(bounds[2], (Some(limit), Some(8.0)));
        assert_eq!(bounds[3], (Some(limit), Some(8.0)));
        assert_eq!(bounds[4], (Some(limit), Some(8.0)));
    }

    #[test]
    fn the_send_call_of_document_004_has_the_printed_bound() {
        // Document 004, table 4, first row: 58.2 us parallel, 12.1 us serial, at most 5.8 times as
        // fast.
        let shares = Shares { serial_ns: 12_100.0, parallel_ns: 58_200.0, system_ns: 0.0 };
        let limit = shares.bounds().last().and_then(|bound| bound.speedup).unwrap();
        assert!((limit - 5.8).abs() < 0.05, "{limit}");
    }

    #[test]
    fn without_serial_work_only_the_processors_limit_the_speedup() {
        let shares = Shares { serial_ns: 0.0, parallel_ns: 10.0, system_ns: 0.0 };
        let bounds = shares.bounds();
        assert_eq!((bounds[3].speedup, bounds[4].speedup), (Some(16.0), None));
        assert!(Shares::default().bounds().iter().all(|bound| bound.speedup.is_none()));
    }
}
