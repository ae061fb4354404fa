//! What becomes of the packets that are read from a device: each is carried, or counted under the name of the reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It goes to a peer. What the queues drop of these is counted there.
    Carried,
    /// It goes to the TCP of this host, which has its connection.
    Terminated,
    /// It is too large for the peer. Its sender is told.
    TooLarge,
    /// No peer has its destination: multicast that the kernel sends by itself, mostly.
    NoPeer,
    /// It is no IP packet, or its headers contradict each other.
    Malformed,
}

/// Counts packets by their fate. A super-packet that is passed on as one is one packet.
#[derive(Debug, Default)]
pub struct Intake {
    read: AtomicU64,
    fates: [AtomicU64; 5],
}

/// The counts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct IntakeTotals {
    /// Packets that were read.
    pub read: u64,
    /// [`Fate::Carried`].
    pub carried: u64,
    /// [`Fate::Terminated`].
    pub terminated: u64,
    /// [`Fate::TooLarge`].
    pub too_large: u64,
    /// [`Fate::NoPeer`].
    pub no_peer: u64,
    /// [`Fate::Malformed`].
    pub malformed: u64,
}

impl IntakeTotals {
    /// Whether the fate of each packet that was read is counted. It holds between two packets.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.read == self.carried + self.terminated + self.too_large + self.no_peer + self.malformed
    }
}

impl Intake {
    /// Counts a packet that was read.
    pub fn on_read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what has become of it.
    pub fn on_fate(&self, fate: Fate) {
        self.fates[fate as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts.
    #[must_use]
    pub fn totals(&self) -> IntakeTotals {
        let of = |fate: Fate| self.fates[fate as usize].load(Ordering::Relaxed);
        // The fates before what was read: a packet that is read meanwhile has none yet.
        let (carried, terminated, too_large) = (of(Fate::Carried), of(Fate::Terminated), of(Fate::TooLarge));
        let (no_peer, malformed) = (of(Fate::NoPeer), of(Fate::Malformed));
        let read = self.read.load(Ordering::Relaxed);
        IntakeTotals { read, carried, terminated, too_large, no_peer, malformed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_has_one_fate() {
        let intake = Intake::default();
        let fates = [Fate::Carried, Fate::Terminated, Fate::TooLarge, Fate::NoPeer, Fate::Malformed];
        for (index, fate) in fates.into_iter().enumerate() {
            for _ in 0..=index {
                assert!(intake.totals().is_balanced());
                intake.on_read();
                assert!(!intake.totals().is_balanced());
                intake.on_fate(fate);
            }
        }
        let totals = IntakeTotals { read: 15, carried: 1, terminated: 2, too_large: 3, no_peer: 4, malformed: 5 };
        assert_eq!(intake.totals(), totals);
    }
}
