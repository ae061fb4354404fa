//! [`Fragments`]: the incoming and outgoing fragments of a host.

use std::collections::VecDeque;

use tcp::SuperPacket;
use units::Instant;
use wire::ip;

use super::{Reassembler, Stats, split};
use crate::packets::{Content, Received};

/// Limit on reports that wait to be sent: one for each incomplete packet.
const WAITING_MAX: usize = super::PACKETS_MAX;

/// Fragments of a host.
#[derive(Debug)]
pub(crate) struct Fragments {
    reassembler: Reassembler,
    /// Identification of the next packet to divide.
    next_id: u32,
    /// Reports to send next, each with its device.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// Number of failed packets counted so far.
    failures: u64,
}

impl Fragments {
    /// Creates the state; `first_id` should not be known to others.
    pub(crate) fn new(first_id: u32) -> Self {
        Self { reassembler: Reassembler::default(), next_id: first_id, waiting: VecDeque::new(), failures: 0 }
    }

    /// Takes a fragment. Returns the whole packet if that was the last missing one.
    pub(crate) fn take(&mut self, now: Instant, batch: &Received) -> Option<Received> {
        let packet = ip::Packet::parse(batch.packet()).ok()?;
        let whole = Received::new(self.reassembler.take(now, &packet, batch.packet())?, None, false);
        // A host that follows the rules does not send fragments of fragments.
        (!matches!(whole.content(), Content::Fragment(_))).then_some(whole)
    }

    /// Returns the number of packets given up since the last call.
    pub(crate) fn take_failures(&mut self) -> u64 {
        let Stats { refused, evicted, expired, .. } = self.reassembler.stats();
        let failures = refused + evicted + expired;
        failures - std::mem::replace(&mut self.failures, failures)
    }

    /// Returns the first fragments of packets that timed out.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut expired = Vec::new();
        self.reassembler.handle_timeout(now, |first| expired.push(first.to_vec()));
        expired
    }

    /// Divides `packet` if it is larger than `mtu` into several whole packets, of which only the
    /// last is shorter. Returns false if it cannot be sent.
    pub(crate) fn divide(&mut self, mtu: usize, packet: &mut SuperPacket) -> bool {
        if packet.bytes.len() <= mtu {
            return true;
        }
        let (mut bytes, mut stride) = (Vec::with_capacity(2 * packet.bytes.len()), 0);
        split(&packet.bytes, mtu, self.next_id, |fragment| {
            stride = stride.max(fragment.len());
            bytes.extend_from_slice(&fragment);
        });
        self.next_id = self.next_id.wrapping_add(1);
        fill(packet, bytes, stride);
        stride > 0
    }

    /// Queues a report, unless too many wait.
    pub(crate) fn queue(&mut self, device: usize, packet: &SuperPacket) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((device, packet.bytes.clone()));
        }
    }

    /// Takes the next report, and returns its device.
    pub(crate) fn poll_reply(&mut self, out: &mut SuperPacket) -> Option<usize> {
        let (device, packet) = self.waiting.pop_front()?;
        fill(out, packet, 0);
        Some(device)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.waiting.is_empty() { self.reassembler.poll_timeout() } else { Some(Instant::ZERO) }
    }
}

/// Fills `out` with a single packet with its checksum, or with several of `stride` bytes.
pub(crate) fn fill(out: &mut SuperPacket, bytes: Vec<u8>, stride: usize) {
    let len = bytes.len();
    *out = SuperPacket { bytes, ip_len: len, header_len: len, segment: len, stride, ..SuperPacket::default() };
}
