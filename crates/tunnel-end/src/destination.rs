//! `Destination`: a peer, and the packets that wait for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use quic_endpoint::{DatagramError, DatagramPaths, PathId};
use tunnel::item::{ITEM_HEADER_BYTES, filling};
use tunnel::urgent::{COPIES, Urgency};
use tunnel::{Outbox, Outboxes, Packet, UrgentKinds};
use units::{Duration, Instant};

use super::path_views::path_views;
use super::peers::Peer;

/// How often the paths of a connection are looked at to which flows are pinned.
const PATHS_INTERVAL: Duration = Duration::from_millis(100);

/// Packets of flows that send little which pass others at a time on one path: half of what the path keeps.
const SPARSE_OF_PATH_MAX: usize = 32;

/// What is to be done with the packets of certain flows.
#[derive(Debug, Clone, Copy)]
pub struct Flows {
    /// Those that leave at once, on two paths.
    pub urgent: UrgentKinds,
    /// Whether each flow keeps to one path, if the peer knows such flows.
    pub pins: bool,
}

/// Datagrams of filling that are offered to a path at a time, at most.
const FILLING_BATCH: usize = 16;

/// Paths whose datagrams are smaller are not filled: no path of the Internet needs that.
const FILLING_LEN_MIN: usize = 1000;

/// A peer, and what waits for it.
pub(crate) struct Destination {
    pub(crate) peer: Arc<Peer>,
    pub(crate) outboxes: Outboxes,
    urgency: Urgency,
    /// Bytes of a datagram of the connection, as of the round that was last asked in. It becomes less when a path
    /// fails.
    pub(crate) len_max: usize,
    asked_in: u64,
    /// When to look at the paths again, if flows are always pinned.
    paths_at: Instant,
    /// Of the paths that were looked at last.
    paths_version: u64,
}

impl Destination {
    pub(crate) fn new(peer: Arc<Peer>, Flows { urgent, pins }: Flows) -> Self {
        let len_max = peer.connection.datagram_len_max().unwrap_or(0);
        let meter = peer.meters.outward.clone();
        let outboxes = match (peer.knows_pins, pins) {
            (false, _) => Outboxes::sprayed(meter),
            (true, false) => Outboxes::chosen(meter, peer.takes_filling),
            (true, true) => Outboxes::pinned(meter),
        };
        let urgency = Urgency::new(urgent);
        Self { peer, outboxes, urgency, len_max, asked_in: 0, paths_at: Instant::ZERO, paths_version: 0 }
    }

    /// Before packets are packed, since those that are too large are lost. Once a round.
    pub(crate) fn ask_len_max(&mut self, round: u64) {
        if self.asked_in != round {
            self.asked_in = round;
            self.len_max = self.peer.connection.datagram_len_max().unwrap_or(self.len_max);
        }
    }

    /// Sends a packet at once, on two paths, if it is urgent. Whether it is on its way.
    pub(crate) fn send_urgent(&mut self, now: impl Fn() -> Instant, flow: u16, packet: &Packet<'_>) -> bool {
        if !self.outboxes.may_pass()
            || !self.urgency.takes(&now, packet, self.len_max.saturating_sub(ITEM_HEADER_BYTES))
        {
            return false;
        }
        let outbox = self.outboxes.of_flow(flow);
        let Some(datagram) = outbox.pack_alone(flow, packet, self.len_max) else { return false };
        self.outboxes.count(packet);
        self.peer.counters.urgent.fetch_add(1, Ordering::Relaxed);
        if self.peer.connection.send_datagram_on(datagram.clone(), DatagramPaths::Copies(COPIES)).is_err() {
            // The connection has no space for it, or has ended. It has its number, so it goes with the others.
            self.outboxes.of_flow(flow).put(flow, datagram);
        }
        true
    }

    /// Gives the connection as much as it takes.
    pub(crate) fn serve(&mut self, now: Instant, round: u64, waker: &Waker) {
        if self.outboxes.waiting_bytes() > 0 {
            self.ask_len_max(round);
        }
        self.follow_paths(now);
        let (peer, len_max) = (&self.peer, &mut self.len_max);
        self.outboxes.serve(|path, outbox, was_blocked| {
            let mut link = Link { peer, path: path.map(PathId), len_max: &mut *len_max };
            let is_blocked = was_blocked || link.send(now, outbox, waker);
            if outbox.has_queued() && link.send_sparse(now, outbox) {
                // What the connection did not take waits in the line, and the thread for space.
                return is_blocked || link.send(now, outbox, waker);
            }
            is_blocked
        });
        self.fill(now, waker);
        let (stats, counters) = (self.outboxes.stats(), &self.peer.counters);
        counters.dropped.store(stats.dropped + stats.overflowed, Ordering::Relaxed);
        counters.marked.store(stats.marked, Ordering::Relaxed);
        counters.queued_bytes.store(self.outboxes.waiting_bytes() as u64, Ordering::Relaxed);
        counters.queued_flows.store(self.outboxes.queued_flows() as u64, Ordering::Relaxed);
    }

    /// Fills a path that is measured, as far as it takes it now; then its space wakes this thread.
    /// If a rate lets no more leave, the next packet continues it.
    fn fill(&mut self, now: Instant, waker: &Waker) {
        let Some((path, most)) = self.outboxes.to_fill(now) else { return };
        let len = self.peer.connection.datagram_len_max().unwrap_or(self.len_max);
        if len < FILLING_LEN_MIN {
            return;
        }
        let datagram = filling(len);
        let (mut batch, mut filled) = (VecDeque::new(), 0);
        while filled < most {
            let wanted = (most - filled).div_ceil(len).min(FILLING_BATCH);
            batch.resize(wanted, datagram.clone());
            match self.peer.connection.poll_send_datagrams_on(&mut batch, PathId(path), waker) {
                Poll::Ready(Ok(count)) => filled += count * len,
                // The path carries less by now, or the connection has ended. If the path has
                // failed, filling takes others until the next look at the paths.
                Poll::Pending | Poll::Ready(Err(_)) => break,
            }
        }
        self.outboxes.on_filled(path, filled);
    }

    /// Lets flows take the paths that work.
    fn follow_paths(&mut self, now: Instant) {
        let views = if self.outboxes.is_pinned() {
            if now < self.paths_at {
                return;
            }
            self.paths_at = now + PATHS_INTERVAL;
            path_views(&self.peer.connection.stats().paths)
        } else {
            match self.peer.paths.newer(&mut self.paths_version) {
                Some(views) => views,
                None => return,
            }
        };
        self.outboxes.follow(now, &views);
        self.peer.paths.set_uses(self.outboxes.uses());
    }
}

/// Where an outbox leads.
struct Link<'a> {
    peer: &'a Peer,
    /// None if datagrams take any path.
    path: Option<PathId>,
    len_max: &'a mut usize,
}

impl Link<'_> {
    /// Sends packets of flows that send little before all that waits for space. Whether one of them now waits, too.
    fn send_sparse(&self, now: Instant, outbox: &mut Outbox) -> bool {
        let connection = &self.peer.connection;
        let departed = connection.datagrams_departed(self.path);
        // A path keeps the newest of those that pass others. The rest waits until the connection has taken these.
        let most = self.path.map_or(usize::MAX, |_| SPARSE_OF_PATH_MAX);
        for _ in 0..most {
            let Some((flow, datagram)) = outbox.pop_sparse(now, *self.len_max, departed) else { return false };
            let paths = self.path.map_or(DatagramPaths::Any, DatagramPaths::Only);
            if connection.send_datagram_on(datagram.clone(), paths).is_err() {
                // As with urgent packets.
                outbox.put(flow, datagram);
                return true;
            }
        }
        false
    }

    /// Gives the connection as much as it takes. Whether it has no space now; then it wakes this thread.
    fn send(&mut self, now: Instant, outbox: &mut Outbox, waker: &Waker) -> bool {
        let connection = &self.peer.connection;
        loop {
            let batch = outbox.fill(now, *self.len_max);
            if batch.is_empty() {
                return false;
            }
            let sent = match self.path {
                None => connection.poll_send_datagrams(batch, waker),
                Some(path) => connection.poll_send_datagrams_on(batch, path, waker),
            };
            match sent {
                Poll::Ready(Ok(count)) => outbox.on_taken(count),
                Poll::Pending => return true,
                // The path's datagrams have become smaller since. The packet is lost; the next ones fit.
                Poll::Ready(Err(DatagramError::TooLarge { .. })) => {
                    batch.pop_front();
                }
                // The connection has ended: the peer is removed soon.
                Poll::Ready(Err(_)) => {
                    batch.clear();
                    return false;
                }
            }
            *self.len_max = connection.datagram_len_max().unwrap_or(*self.len_max);
        }
    }
}
