//! Errors that ICMP reports about segments of a connection (RFC 5927).

use units::Instant;

use super::{CloseReason, Connection};
use crate::event::SoftError;
use crate::icmp::{IcmpError, IcmpErrorKind};
use crate::state::State;

/// Smallest packet size accepted from a report, over IPv4 and IPv6: a forged report must not make a
/// connection send tiny segments. IPv4 permits 68 bytes (RFC 791), IPv6 1280 (RFC 8200, section 5).
const MTU_MIN: [u32; 2] = [552, 1280];

/// Packet size if the router does not report one (RFC 1191, section 5).
const MTU_UNKNOWN: u32 = 576;

impl Connection {
    /// Processes an ICMP error about a segment of this connection. An error about data that is not
    /// outstanding is late or forged, and is ignored.
    pub fn handle_icmp(&mut self, now: Instant, error: &IcmpError) {
        self.record(|journal| journal.icmp(now, error));
        let (una, end) = (self.send.una(), self.send.sent_end());
        let position = self.send.space().position(error.seq, una);
        if !position.is_some_and(|position| una <= position && position < end) {
            return;
        }
        match error.kind {
            IcmpErrorKind::PacketTooBig(mtu) => self.on_packet_too_big(now, mtu),
            // An error never ends a synchronized connection (RFC 5461).
            IcmpErrorKind::Refused if self.state == State::SynSent => self.close(CloseReason::Refused),
            IcmpErrorKind::Refused => self.note_soft_error(SoftError::Refused),
            IcmpErrorKind::Unreachable => self.note_soft_error(SoftError::Unreachable),
        }
    }

    /// Shrinks the segments and retransmits outstanding data (RFC 1191, section 6, and RFC 8201,
    /// section 4).
    fn on_packet_too_big(&mut self, now: Instant, mtu: Option<u32>) {
        let is_ipv6 = self.tuple.local.is_ipv6();
        let mtu = mtu.filter(|mtu| *mtu > 0).unwrap_or(MTU_UNKNOWN).max(MTU_MIN[usize::from(is_ipv6)]);
        let headers = if is_ipv6 { 60 } else { 40 } + u32::from(self.options_len());
        let segment = u64::from(mtu - headers);
        if segment < self.send.segment() {
            self.send.on_packet_too_big(now, segment, mtu.into());
        }
    }
}
