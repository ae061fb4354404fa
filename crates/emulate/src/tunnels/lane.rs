//! One direction of a link between two devices.

use std::io;

use net::tun::{Cut, Joiner, TUN_BUFFER_BYTES, TunDevice};
use netem::Link;
use units::Instant;

use super::packet::IpPacket;
use crate::pool::Pool;
use crate::{DirectionReport, Lateness};

/// Packets offered in one turn, and a super-packet more at most: the other direction, and what is due, must not wait long
/// behind them.
const OFFERS_PER_TURN: usize = 64;

/// Packets handed out in one turn.
const PACKETS_PER_TURN: usize = 256;

/// Takes from one device, lets pass, hands to the other.
pub(super) struct Lane<D> {
    input: D,
    output: D,
    link: Link<IpPacket>,
    /// Whether the input may have something: devices tell only of what is new.
    is_readable: bool,
    buffer: Vec<u8>,
    joiner: Joiner,
    pool: Pool,
    lateness: Lateness,
    refused: u64,
    ignored: u64,
}

impl<D: TunDevice> Lane<D> {
    pub(super) fn new(input: D, output: D, link: Link<IpPacket>) -> Self {
        Self {
            input,
            output,
            link,
            is_readable: true,
            buffer: vec![0; TUN_BUFFER_BYTES],
            joiner: Joiner::new(),
            pool: Pool::default(),
            lateness: Lateness::default(),
            refused: 0,
            ignored: 0,
        }
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

    /// Reads some packets and offers them to the link, each as of when it was read. True if there may be more.
    pub(super) fn take(&mut self, now: impl Fn() -> Instant) -> io::Result<bool> {
        let mut offered = 0;
        while offered < OFFERS_PER_TURN {
            if !self.is_readable {
                return Ok(false);
            }
            // Whatever comes of it, it was work.
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
            let Ok(cut) = Cut::new(&self.buffer[..bytes]) else {
                self.ignored += 1;
                continue;
            };
            let now = now();
            offered += cut.len() - 1;
            for index in 0..cut.len() {
                self.link.send(now, IpPacket(cut.segment(index, self.pool.take())));
            }
        }
        Ok(true)
    }

    /// Hands out packets that are due by `now`. Those that follow each other go in one write, as a network card with receive
    /// offload would hand them up.
    pub(super) fn deliver(&mut self, now: Instant) {
        let Some(due) = self.link.poll_timeout().filter(|&due| due <= now) else { return };
        for index in 0..PACKETS_PER_TURN {
            let Some(IpPacket(packet)) = self.link.poll_deliver(now) else { break };
            if index == 0 {
                self.lateness.note(due, now);
            }
            if !self.joiner.push(&packet) {
                self.write();
                let is_taken = self.joiner.push(&packet);
                debug_assert!(is_taken, "an empty one takes every packet");
            }
            self.pool.put(packet.into_buffer());
        }
        self.write();
    }

    fn write(&mut self) {
        let packets = self.joiner.segments();
        if packets == 0 {
            return;
        }
        // The other kernel drops what it cannot take, as a real one would.
        if let Err(error) = self.output.write(self.joiner.take()) {
            self.refused += packets as u64;
            tracing::debug!(%error, packets, "packets that had arrived were not taken");
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
