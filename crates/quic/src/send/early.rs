//! 0-RTT packets of a client (RFC 9000, section 17.2.3; RFC 9001, section 4.6).
//!
//! They have the packet numbers of 1-RTT packets, and STREAM frames only: of streams that the
//! application has opened for them. The server acknowledges them in 1-RTT packets. Until then they
//! count against the window and are not repeated; what was lost leaves again in 1-RTT packets.

use super::SendHalf;
use super::sent_log::Content;
use crate::event::Events;
use crate::exchange::Early;
use crate::spaces::DATA;

impl SendHalf {
    /// The client may send 0-RTT, within the limits that it remembers.
    pub(super) fn begin_early(&mut self, early: Early) {
        self.seal.install_early(early.keys);
        let size_max = usize::try_from(early.limits.max_udp_payload_size).unwrap_or(usize::MAX);
        for path in &mut self.paths {
            path.set_datagram_size(path.size.bytes().min(size_max));
        }
        // The application has asked for no more than it knows: no event.
        self.streams.set_peer_limits(&early.limits, &mut Events::default());
    }

    /// The server has not taken 0-RTT: the streams are gone, and so are the packets (RFC 9001,
    /// section 4.6.2). Their numbers stay used (RFC 9000, section 17.2.3).
    pub(super) fn reject_early(&mut self) {
        self.seal.end_early();
        let space = &mut self.spaces[DATA];
        let (mut gone, mut runs) = (0, Vec::new());
        space.log.forget_oldest(0, |run| runs.push(run));
        let mut frames = Vec::new();
        for run in runs {
            gone += run.in_flight_bytes();
            if let Content::Side(slot) = run.content {
                space.log.take_frames(slot, &mut frames);
            }
        }
        // No handshake has as many packets.
        space.rejected_before = u32::try_from(space.next_number).unwrap_or(u32::MAX);
        space.loss_time = None;
        self.paths[0].recovery.in_flight -= gone;
        self.streams.forget_early();
    }
}
