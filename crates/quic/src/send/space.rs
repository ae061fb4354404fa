//! One packet number space as its sender sees it: what went out under which number.

use units::Instant;

use super::sent_log::SentLog;
use crate::error::TransportError;
use crate::queue::Queue;
use crate::spaces::Vacant;

/// How many skipped numbers are remembered: an acknowledgement of one is caught as long as it is among the last few.
const SKIPPED_MAX: usize = 8;

/// Numbers and outstanding packets of one space: Initial, Handshake, or the data of one path.
#[derive(Debug, Default)]
pub(crate) struct SendSpace {
    pub(crate) log: SentLog,
    pub(crate) next_number: u64,
    pub(crate) largest_acked: Option<u64>,
    /// When the oldest packet below `largest_acked` will be lost.
    pub(crate) loss_time: Option<Instant>,
    /// Ack-eliciting packets to send whatever the congestion window says (RFC 9002, section 6.2.4).
    pub(crate) probes_due: u8,
    /// Numbers never used, to catch a peer that acknowledges what it never saw (RFC 9000, section 21.4).
    skipped: Queue<u64>,
}

impl Vacant for SendSpace {
    fn vacant() -> &'static Self {
        static VACANT: SendSpace = SendSpace {
            log: SentLog::new(),
            next_number: 0,
            largest_acked: None,
            loss_time: None,
            probes_due: 0,
            skipped: Queue::new(),
        };
        &VACANT
    }
}

impl SendSpace {
    /// Leaves one number out.
    pub(crate) fn skip_number(&mut self) {
        if self.skipped.len() == SKIPPED_MAX {
            self.skipped.pop_front();
        }
        self.skipped.push_back(self.next_number);
        self.next_number += 1;
    }

    /// Refuses acknowledgements of packets that never were (RFC 9000, section 13.1). `ranges` ascend.
    pub(crate) fn check_ranges(&self, ranges: &[(u64, u64)]) -> Result<(), TransportError> {
        let largest = ranges.last().map_or(0, |range| range.1);
        let never_sent = largest >= self.next_number
            || self.skipped.iter().any(|skipped| ranges.iter().any(|range| (range.0..=range.1).contains(skipped)));
        if never_sent {
            return Err(TransportError::violation("a packet was acknowledged that was never sent"));
        }
        Ok(())
    }
}
