//! Packets of a device: received ones, plans, and jobs that open.

use std::net::IpAddr;

use bytes::Bytes;
use driver::protocol::{Batch, OpenJob, Plan};
use tcp::{Arrival, IcmpError, SegmentHead, SuperPacket, icmp};
use wire::ip;

/// An IP packet from a device, or a super-packet that stands for several.
#[derive(Debug, Clone, Default)]
pub struct Received {
    packet: Bytes,
    /// For a super-packet, bytes of data in each of its packets.
    segment: Option<usize>,
    /// See [`Received::new`].
    is_verified: bool,
    content: Content,
}

/// What a packet holds, as far as its route depends on it.
#[derive(Debug, Clone, Default)]
pub(crate) enum Content {
    /// A segment, whose checksum is not verified yet.
    Segment(SegmentHead),
    /// A report about a segment of ours.
    Error(IcmpError),
    /// Another packet for this address.
    Other(IpAddr),
    /// Nothing valid.
    #[default]
    Nothing,
}

impl Received {
    /// Takes a packet and parses its IP headers. `segment`: for a super-packet, bytes of data in each of
    /// its packets. `is_verified`: the device vouches for the checksum of the transport, or it is not
    /// computed yet.
    pub fn new(packet: Bytes, segment: Option<usize>, is_verified: bool) -> Self {
        let content = Content::of(&packet);
        Self { packet, segment, is_verified, content }
    }

    /// The packet.
    pub const fn packet(&self) -> &Bytes {
        &self.packet
    }

    pub(crate) const fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn open(&self) -> Opened {
        match &self.content {
            Content::Segment(head) => match Arrival::open_at(head, &self.packet, self.segment, self.is_verified) {
                Ok(arrival) => Opened::Segment(arrival),
                Err(error) => {
                    tracing::debug!(%error, "a segment is dropped");
                    Opened::Nothing
                }
            },
            Content::Error(error) => Opened::Error(*error),
            Content::Other(_) | Content::Nothing => Opened::Nothing,
        }
    }
}

impl Content {
    fn of(packet: &[u8]) -> Self {
        let ip = match ip::Packet::parse(packet) {
            Ok(ip) => ip,
            Err(error) => {
                tracing::debug!(%error, "a packet is dropped");
                return Self::Nothing;
            }
        };
        match SegmentHead::of(&ip) {
            Ok(head) => Self::Segment(head),
            Err(_) => icmp::error_of(&ip).map_or(Self::Other(ip.destination), Self::Error),
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
