//! One direction of a link between two TUN devices.

use std::io::{self, IoSlice};

use net::tun::{Coalescer, Segments, TUN_BUFFER_BYTES, TunDevice};
use netem::Link;
use units::Instant;

use super::packet::IpPacket;
use super::tap::{Tap, TappedPacket};
use crate::pool::BufferPool;
use crate::report::{DirectionReport, Lateness};

/// Largest number of packets read per turn, plus one super-packet, so that the other direction and
/// due packets do not wait long.
const OFFERS_PER_TURN: usize = 64;

/// Packets written per turn.
const PACKETS_PER_TURN: usize = 256;

/// Reads from one device, passes packets through the link, and writes to the other.
pub(super) struct TunDirection<D> {
    input: D,
    output: D,
    link: Link<IpPacket>,
    /// Whether the input may have packets: polling reports only new ones.
    is_readable: bool,
    buffer: Vec<u8>,
    coalescer: Coalescer,
    pool: BufferPool,
    lateness: Lateness,
    refused: u64,
    ignored: u64,
    /// Observer of the packets at both ends, if there is one, and whether this is the forward
    /// direction.
    tap: Option<(Tap, bool)>,
}

impl<D: TunDevice> TunDirection<D> {
    pub(super) fn new(input: D, output: D, link: Link<IpPacket>) -> Self {
        Self {
            input,
            output,
            link,
            is_readable: true,
            buffer: vec![0; TUN_BUFFER_BYTES],
            coalescer: Coalescer::new(),
            pool: BufferPool::default(),
            lateness: Lateness::default(),
            refused: 0,
            ignored: 0,
            tap: None,
        }
    }

    pub(super) fn set_tap(&mut self, tap: Tap, is_forward: bool) {
        self.tap = Some((tap, is_forward));
    }

    pub(super) const fn input(&self) -> &D {
        &self.input
    }

    pub(super) const fn link_mut(&mut self) -> &mut Link<IpPacket> {
        &mut self.link
    }

    pub(super) const fn readable(&mut self) {
        self.is_readable = true;
    }

    /// Reads packets and sends them into the link, each at the time it was read. Returns true if
    /// there may be more.
    pub(super) fn take(&mut self, now: impl Fn() -> Instant) -> io::Result<bool> {
        let mut offered = 0;
        while offered < OFFERS_PER_TURN {
            if !self.is_readable {
                return Ok(false);
            }
            // Every read counts as work, whatever its result.
            offered += 1;
            let bytes = match self.input.read(&mut self.buffer) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let Ok(segments) = Segments::new(&self.buffer[..bytes]) else {
                self.ignored += 1;
                continue;
            };
            let now = now();
            offered += segments.len() - 1;
            for index in 0..segments.len() {
                let packet = segments.segment(index, self.pool.take());
                if let Some((tap, is_forward)) = &self.tap {
                    tap(&TappedPacket { at: now, is_forward: *is_forward, is_sent: true, ip: packet.ip() });
                }
                self.link.send(now, IpPacket(packet));
            }
        }
        Ok(true)
    }

    /// Writes packets due by `now`. Consecutive segments are written as one super-packet, as a
    /// network card with receive offload would deliver them.
    pub(super) fn deliver(&mut self, now: Instant) {
        let Some(due) = self.link.poll_timeout().filter(|&due| due <= now) else { return };
        for index in 0..PACKETS_PER_TURN {
            let Some(IpPacket(packet)) = self.link.poll_deliver(now) else { break };
            if index == 0 {
                self.lateness.record(due, now);
            }
            if let Some((tap, is_forward)) = &self.tap {
                tap(&TappedPacket { at: now, is_forward: *is_forward, is_sent: false, ip: packet.ip() });
            }
            if !self.coalescer.push(&packet) {
                self.write();
                let is_taken = self.coalescer.push(&packet);
                debug_assert!(is_taken, "an empty coalescer accepts every packet");
            }
            self.pool.put(packet.into_buffer());
        }
        self.write();
    }

    fn write(&mut self) {
        let packets = self.coalescer.segments();
        if packets == 0 {
            return;
        }
        // The receiving kernel drops packets that it cannot accept.
        if let Err(error) = self.output.write(&[IoSlice::new(self.coalescer.take())]) {
            self.refused += packets as u64;
            tracing::debug!(%error, packets, "packets were rejected by the output device");
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    pub(super) fn report(&self) -> DirectionReport {
        DirectionReport {
            link: *self.link.stats(),
            held: self.link.held(),
            lateness: self.lateness,
            refused: self.refused,
            ignored: self.ignored,
        }
    }
}

#[cfg(test)]
mod tests;
