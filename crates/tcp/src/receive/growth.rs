//! Growth of the receive buffer with its use.

use units::{Duration, Instant};

use super::ReceiveHalf;
use super::tuner::Tuner;
use crate::budget::BufferSize;
use crate::config::TcpConfig;
use crate::position::FIRST_BYTE;

/// Size of the buffer and the state of its growth.
#[derive(Debug)]
pub(super) struct Growth {
    size: BufferSize,
    tuner: Tuner,
    /// Position received in order at the last decision.
    considered: u64,
}

impl Growth {
    pub(super) fn new(config: &TcpConfig) -> Self {
        // Unread bytes are counted in 32 bits.
        let max = config.receive_buffer.min(u32::MAX as usize);
        let size = BufferSize::new(config.buffers_initial, max, &config.budget);
        Self { size, tuner: Tuner::default(), considered: FIRST_BYTE }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.size.bytes()
    }
}

impl ReceiveHalf {
    /// Grows the buffer with the application's reading rate per round trip, so that the window does
    /// not limit the peer. `rtt` is the send half's round trip. Call it before making a plan, which
    /// announces the window.
    pub(crate) fn tune(&mut self, now: Instant, rtt: Duration) {
        let read = self.read_end() - FIRST_BYTE;
        let (received, Some(growth)) = (&self.received, &mut self.growth) else { return };
        // An acknowledgement without news must not change the window: it would not count as a
        // duplicate (RFC 5681, section 2).
        if received.has_hole || growth.considered == received.nxt {
            return;
        }
        growth.considered = received.nxt;
        if let Some(wanted) = growth.tuner.on_data(now, rtt, received.nxt, read, self.announced.edge)
            && growth.size.grow_to(wanted)
        {
            self.announced.buffer = growth.bytes();
            self.assembler.set_limit(self.announced.buffer);
        }
    }
}
