//! Packets of a device: received ones, plans, and jobs that open packets.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use driver::protocol::{Batch, OpenJob, Plan};
use layers::DigestError;
use tcp::sources::is_valid_source;
use tcp::{Arrival, IcmpError, OpenError, SegmentHead, SuperPacket, icmp};
use wire::ip;

use crate::counters::Count;
use crate::layers::{Layers, seal};
use crate::signature::Signature;

/// An IP packet from a device, or a super-packet that stands for several.
#[derive(Debug, Clone, Default)]
pub struct Received {
    packet: Bytes,
    /// Bytes of data in each packet of a super-packet.
    segment: Option<usize>,
    /// See [`Received::new`].
    is_verified: bool,
    /// Whether the digest between TCP and IP was verified.
    is_digest_verified: bool,
    content: Content,
}

/// Contents of a packet, as far as its route depends on them.
#[derive(Debug, Clone, Default)]
pub(crate) enum Content {
    /// A segment whose checksum is not verified yet.
    Segment(SegmentHead),
    /// A report about one of our segments.
    Error(IcmpError),
    /// A fragment of a packet.
    Fragment(Ends),
    /// Another packet.
    Other(Ends),
    /// A packet that is not processed, and the reason.
    Dropped(Count),
    /// Nothing at all.
    #[default]
    Nothing,
}

/// The addresses of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
}

impl Received {
    /// Takes a packet and parses its IP headers. `segment`: bytes of data in each packet of a
    /// super-packet. `is_verified`: the device vouches for the transport's checksum, or it is not
    /// computed yet.
    pub fn new(packet: Bytes, segment: Option<usize>, is_verified: bool) -> Self {
        let content = Content::of(&packet);
        Self { packet, segment, is_verified, is_digest_verified: false, content }
    }

    /// Returns the packet.
    pub const fn packet(&self) -> &Bytes {
        &self.packet
    }

    /// Returns the bytes of data in each packet of a super-packet.
    pub(crate) const fn segment(&self) -> Option<usize> {
        self.segment
    }

    /// See [`Received::new`].
    pub(crate) const fn is_verified(&self) -> bool {
        self.is_verified
    }

    pub(crate) const fn content(&self) -> &Content {
        &self.content
    }

    /// Verifies and records the checks that need no connection: the digest between TCP and IP, and
    /// the checksum. A failure is found again, and reported, when the packet is opened.
    pub(crate) fn verify_early(&mut self, layers: Option<&Layers>) {
        let Content::Segment(head) = &self.content else { return };
        self.is_digest_verified = self.verify(head, layers).is_ok();
        self.is_verified |= self.is_digest_verified && head.is_checksum_valid(&self.packet);
    }

    pub(crate) fn open(&self, layers: Option<&Layers>, signature: Option<&Signature>) -> Opened {
        match &self.content {
            Content::Segment(head) => {
                if !self.is_digest_verified
                    && let Err(error) = self.verify(head, layers)
                {
                    tracing::debug!(%error, "a packet is dropped");
                    return Opened::Unauthentic;
                }
                match Arrival::open_at(head, &self.packet, self.segment, self.is_verified) {
                    Ok(arrival) if self.is_authentic(head, &arrival, signature) => Opened::Segment(arrival),
                    Ok(_) => {
                        tracing::debug!(tuple = %head.tuple, "a segment with a wrong, missing or unwanted digest is dropped");
                        Opened::Dropped(Count::WrongDigests)
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a segment is dropped");
                        let is_sum = error == OpenError::Checksum;
                        Opened::Dropped(if is_sum { Count::WrongChecksums } else { Count::Malformed })
                    }
                }
            }
            Content::Error(error) => Opened::Error(*error),
            Content::Dropped(reason) => Opened::Dropped(*reason),
            Content::Fragment(_) | Content::Other(_) | Content::Nothing => Opened::Other,
        }
    }
}

impl Received {
    /// Returns whether the segment has the correct digest of RFC 2385, or neither has nor needs
    /// one.
    fn is_authentic(&self, head: &SegmentHead, arrival: &Arrival, signature: Option<&Signature>) -> bool {
        match signature {
            None => arrival.header.options.md5.is_none(),
            Some(signature) => signature.verifies(&head.tuple, head.segment(&self.packet)),
        }
    }

    /// Verifies the digest between TCP and IP, or its absence if the stack has none.
    fn verify(&self, head: &SegmentHead, layers: Option<&Layers>) -> Result<(), DigestError> {
        match layers.and_then(Layers::digest) {
            None if head.is_authenticated => Err(DigestError::NotOurs),
            None => Ok(()),
            Some(key) => {
                let packet = ip::Packet::parse(&self.packet).map_err(|_| DigestError::Malformed)?;
                key.verify(&packet, &self.packet).map(|_| ())
            }
        }
    }
}

impl Content {
    fn of(packet: &[u8]) -> Self {
        let ip = match ip::Packet::parse(packet) {
            Ok(ip) => ip,
            Err(error) => {
                tracing::debug!(%error, "a packet is dropped");
                let is_sum = error == ip::ParseError::Checksum;
                return Self::Dropped(if is_sum { Count::WrongChecksums } else { Count::Malformed });
            }
        };
        // Applies to packets of any protocol (RFC 1122, section 3.2.1.3; RFC 9293, MUST-63).
        // Whether a segment comes from this host is determined when its route is known.
        let is_own = |head: &Result<SegmentHead, _>| head.is_err() && ip.source == ip.destination;
        let head = SegmentHead::of(&ip);
        if !is_valid_source(ip.source, ip.destination) || is_own(&head) {
            return Self::Dropped(Count::InvalidSources);
        }
        let ends = Ends { source: ip.source, destination: ip.destination };
        match head {
            Ok(head) => Self::Segment(head),
            Err(_) if ip.fragment.is_some() => Self::Fragment(ends),
            Err(OpenError::Tcp(_)) => Self::Dropped(Count::Malformed),
            Err(_) => icmp::error_of(&ip).map_or(Self::Other(ends), Self::Error),
        }
    }
}

/// A packet's contents for a connection.
#[derive(Debug, Default)]
pub(crate) enum Opened {
    /// A segment.
    Segment(Arrival),
    /// A report about one of our segments.
    Error(IcmpError),
    /// A segment whose digest between TCP and IP is missing, wrong or unexpected.
    Unauthentic,
    /// A packet that is not processed, and the reason.
    Dropped(Count),
    /// Something else, or nothing.
    #[default]
    Other,
}

impl Batch for Received {
    fn len_bytes(&self) -> usize {
        self.packet.len()
    }

    fn packet_count(&self) -> usize {
        self.segment.map_or(1, |segment| self.packet.len().div_ceil(segment.max(1)))
    }

    /// Takes all of it: a super-packet belongs to one connection.
    fn split_front(&mut self, len_bytes: usize) -> Self {
        debug_assert_eq!(len_bytes, self.packet.len());
        std::mem::take(self)
    }
}

/// A [plan](tcp::Plan) and its outgoing device.
#[derive(Debug, Default)]
pub struct SegmentPlan {
    pub(crate) plan: tcp::Plan,
    pub(crate) socket: usize,
    /// Layers of the stack.
    layers: Option<Arc<Layers>>,
}

impl SegmentPlan {
    /// Sets the layers, unless a reused plan has them already: all plans of a driver have the
    /// layers of its stack.
    pub(crate) fn set_layers(&mut self, layers: Option<&Arc<Layers>>) {
        if self.layers.is_none() {
            self.layers = layers.cloned();
        }
    }
}

impl Plan for SegmentPlan {
    type Sealed = SuperPacket;

    fn socket(&self) -> Option<usize> {
        Some(self.socket)
    }

    fn packet_count(&self) -> usize {
        self.plan.segment_count()
    }

    /// Returns true: a plan is one super-packet.
    fn is_full(&self, _packets_max: usize) -> bool {
        true
    }

    fn seal(&self, out: &mut SuperPacket) {
        seal(&self.plan, self.layers.as_ref(), out);
    }

    fn release(&mut self) {
        self.plan.release();
    }
}

/// Parses a packet and verifies its digest, if the stack has one, and its checksum.
#[derive(Debug, Default)]
pub struct OpenSegment {
    pub(crate) opened: Opened,
    layers: Option<Arc<Layers>>,
    signature: Option<Arc<Signature>>,
}

impl OpenSegment {
    /// Begins a job; all jobs of a driver have the layers of its stack. The signature belongs to a
    /// connection.
    pub(crate) fn begin(&mut self, layers: Option<&Arc<Layers>>, signature: Option<&Arc<Signature>>) {
        self.signature = signature.cloned();
        if self.layers.is_none() {
            self.layers = layers.cloned();
        }
    }
}

impl OpenJob for OpenSegment {
    type Batch = Received;

    fn work_bytes(&self, batch: &Received) -> usize {
        let len_bytes = batch.len_bytes();
        self.layers.as_ref().map_or(len_bytes, |layers| layers.open_work(len_bytes))
    }

    fn open(&mut self, batch: &mut Received) {
        self.opened = batch.open(self.layers.as_deref(), self.signature.as_deref());
    }

    fn clear(&mut self) {
        self.opened = Opened::Other;
    }
}
