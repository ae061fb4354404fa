//! Packets of a device: received ones, plans, and jobs that open.

use bytes::Bytes;
use driver::protocol::{Batch, OpenJob, Plan};
use tcp::{Arrival, IcmpError, OpenError, SuperPacket, icmp};
use wire::ip::{self, Protocol};

/// An IP packet from a device, or a super-packet that stands for several.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// The packet.
    pub packet: Bytes,
    /// For a super-packet, bytes of data in each of its packets.
    pub segment: Option<usize>,
    /// The device vouches for the checksum of the transport, or it is not computed yet.
    pub is_verified: bool,
}

impl Received {
    pub(crate) fn open(&self) -> Opened {
        match Arrival::open(&self.packet, self.segment, self.is_verified) {
            Ok(arrival) => Opened::Segment(arrival),
            Err(OpenError::NotTcp(Protocol::ICMP | Protocol::ICMPV6)) => {
                let error = ip::Packet::parse(&self.packet).ok().and_then(|packet| icmp::error_of(&packet));
                error.map_or(Opened::Nothing, Opened::Error)
            }
            Err(error) => {
                tracing::debug!(%error, "a packet is dropped");
                Opened::Nothing
            }
        }
    }
}

/// What a packet holds for a connection.
#[derive(Debug, Default)]
pub(crate) enum Opened {
    /// A segment.
    Segment(Arrival),
    /// A report about a segment of ours.
    Error(IcmpError),
    /// Nothing valid.
    #[default]
    Nothing,
}

impl Batch for Received {
    fn len_bytes(&self) -> usize {
        self.packet.len()
    }

    fn packet_count(&self) -> usize {
        self.segment.map_or(1, |segment| self.packet.len().div_ceil(segment.max(1)))
    }

    /// All of it: a super-packet belongs to one connection.
    fn split_front(&mut self, len_bytes: usize) -> Self {
        debug_assert_eq!(len_bytes, self.packet.len());
        std::mem::take(self)
    }
}

/// A [plan](tcp::Plan) and the device that it leaves through.
#[derive(Debug, Default)]
pub struct SegmentPlan {
    pub(crate) plan: tcp::Plan,
    pub(crate) socket: usize,
}

impl Plan for SegmentPlan {
    type Sealed = SuperPacket;

    fn socket(&self) -> Option<usize> {
        Some(self.socket)
    }

    fn packet_count(&self) -> usize {
        self.plan.segment_count()
    }

    /// A plan is one super-packet.
    fn is_full(&self, _packets_max: usize) -> bool {
        true
    }

    fn seal(&self, out: &mut SuperPacket) {
        self.plan.seal(out);
    }

    fn release(&mut self) {
        self.plan.release();
    }
}

/// Parses a packet and verifies its checksum.
#[derive(Debug, Default)]
pub struct OpenSegment {
    pub(crate) opened: Opened,
}

impl OpenJob for OpenSegment {
    type Batch = Received;

    fn open(&mut self, batch: &mut Received) {
        self.opened = batch.open();
    }

    fn clear(&mut self) {
        self.opened = Opened::Nothing;
    }
}
