//! Counts of the events in runs.

use super::SHARE;

/// Counts of the conditions in a run, so that a set of runs can prove that it met the conditions it
/// was made for.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Occurrences {
    pub(super) packets: u64,
    pub(super) bytes_read: u64,
    pub(super) lost: u64,
    /// On links that were cut, which exist with several paths only.
    pub(super) vanished: u64,
    pub(super) corrupted: u64,
    pub(super) reordered: u64,
    pub(super) duplicated: u64,
    pub(super) refused: u64,
    pub(super) key_updates: u64,
    pub(super) probes: u64,
    pub(super) resets: u64,
    pub(super) stops: u64,
    pub(super) datagrams: u64,
}

impl Occurrences {
    pub(super) fn fields(&mut self) -> [&mut u64; 12] {
        [
            &mut self.packets,
            &mut self.bytes_read,
            &mut self.lost,
            &mut self.corrupted,
            &mut self.reordered,
            &mut self.duplicated,
            &mut self.refused,
            &mut self.key_updates,
            &mut self.probes,
            &mut self.resets,
            &mut self.stops,
            &mut self.datagrams,
        ]
    }
}

/// Fails if a condition never occurred in at least the default share of the seeds.
pub(super) fn check_share(count: u64, seeds: u64, sums: &mut Occurrences) {
    let never = sums.fields().into_iter().any(|sum| *sum == 0);
    assert!(!never || count < seeds * SHARE / 100, "some condition never occurred in {count} seeds: {sums:?}");
}

#[expect(clippy::print_stdout, reason = "run on request")]
pub(super) fn show(sums: &Occurrences) {
    println!("{sums:?}");
}
