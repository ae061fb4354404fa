//! What is little does not wait for bulk, and the background gives way to it.
//!
//! A turn takes what applications ask for, receives, and sends. Beside bulk each of these lasts tens to hundreds of microseconds, and a
//! message of a few bytes would wait for several of them at each end. So what is little
//!
//! - leaves before anything is received,
//! - is told to the application before the batches are opened that arrived after it,
//!
//! and while there is some, what is in the background leaves batch by batch: between two of them the driver looks what others want,
//! and whoever waits for its processor has it. Otherwise the background is sent like everything else.

use quic::ConnectionKey;
use units::{Duration, Instant};

use super::{Driver, Tails};
use crate::receive::COPY_BELOW;

/// What an application asks for and is no more than this is little, in bytes: opening what has arrived takes longer than sealing and
/// sending it. More is bulk: it waits for the acknowledgements that have arrived, and for what the application writes
/// meanwhile, and leaves in full batches. As much as is copied when it arrives.
pub(super) const LITTLE_MAX: u64 = COPY_BELOW as u64;

/// For so long after something little was asked for, more of it is expected. A shorter time makes who asks ten times a second wait for
/// the background; a longer one slows the background down for what may never come.
const EXPECTED_FOR: Duration = Duration::from_secs(1);

/// Who has asked for little.
#[derive(Debug, Default)]
pub(super) struct Courtesy {
    /// Connections whose application has just done so; each as often as it was taken from the driver's list, so as many as that had.
    at_once: Vec<ConnectionKey>,
    last_at: Option<Instant>,
    /// Something of the background has left since others last had the processor.
    owes_pause: bool,
}

impl Courtesy {
    /// The application of `key` wants little to be sent, and nothing before it.
    pub(super) fn note_little(&mut self, now: Instant, key: ConnectionKey) {
        self.last_at = Some(now);
        self.at_once.push(key);
    }

    /// Something of the background leaves. Whether others are to have their turn then.
    pub(super) fn wants_pause(&mut self, now: Instant) -> bool {
        let is_expected = self.last_at.is_some_and(|at| now.saturating_since(at) < EXPECTED_FOR);
        self.owes_pause |= is_expected;
        is_expected
    }
}

impl Driver {
    /// What applications have just asked for leaves if it is little, a batch of each connection; they may have more, and are visited
    /// again in this turn. Returns the batches sent.
    pub(super) fn transmit_at_once(&mut self, tails: Tails) -> usize {
        let mut sent = 0;
        while let Some(key) = self.courtesy.at_once.pop() {
            // What to do with a tail is known only when all of the turn has been received.
            if tails == Tails::Sent {
                self.take_findings();
                sent += self.visit(key, tails, 1);
            }
        }
        sent
    }

    /// A batch of `len` bytes has arrived for a connection. If it was little, its application need not wait until those after it are
    /// opened.
    pub(super) fn tell_of_little(&mut self, key: ConnectionKey, len: usize) {
        if len < COPY_BELOW && self.others_may_open {
            self.attended = Some(key);
            self.tell(key);
            self.attended = None;
        }
    }

    /// Lets others have the processor if the background had it: applications that were woken, or the other end.
    pub(super) fn give_way(&mut self) {
        if std::mem::take(&mut self.courtesy.owes_pause) {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_pauses_while_little_is_expected_and_not_otherwise() {
        let (mut courtesy, mut now) = (Courtesy::default(), Instant::ZERO + Duration::from_secs(5));
        assert!(!courtesy.wants_pause(now) && !courtesy.owes_pause, "nobody asked");
        courtesy.note_little(now, ConnectionKey(7));
        assert!(!courtesy.owes_pause, "nothing of the background has left");
        assert!(courtesy.wants_pause(now) && std::mem::take(&mut courtesy.owes_pause));
        now += EXPECTED_FOR;
        assert!(!courtesy.wants_pause(now) && !courtesy.owes_pause, "it was long ago");
    }
}
