//! The duty cycle of a processor of paths.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use net::{SendError, Transmit};
use quic::{Plan, ReceiveBuffer, seal};
use rtrb::{Consumer, Producer};
use units::{Duration, Instant};

use super::values::{Arrival, News, Order};
use super::{ORDERS_MAX, Start};
use crate::port::{NearPort, Parcel, Sent};
use crate::receive::{Buffers, RECV_BUFFERS};
use crate::sleep::Sleeper;
use crate::socket::Readiness;
use crate::wake::EngineWaker;

/// Orders carried out before the sockets are looked at again.
const ORDERS_PER_TURN: usize = 8;

/// Places of the ring of news that attempts to send again leave free: every order makes two.
const NEWS_RESERVED: usize = 2 * ORDERS_MAX + 2;

/// When a socket is tried again while the driver has too much to read.
const RETRY_LATER: Duration = Duration::from_micros(500);

/// The ends of the rings that the thread has.
pub(super) struct Rings {
    pub(super) orders: Consumer<Order>,
    pub(super) news: Producer<News>,
    pub(super) arrivals: Producer<Arrival>,
    pub(super) turns: Arc<AtomicU64>,
}

/// A plan that waits for its socket to have room.
struct Waiting {
    ticket: u64,
    parcel: Parcel,
    plan: Arc<Plan>,
}

/// The thread's own end.
pub(super) struct Hand {
    start: Start,
    /// With their numbers in the engine.
    ports: Vec<(usize, NearPort)>,
    sleeper: Sleeper,
    waker: Arc<EngineWaker>,
    rings: Rings,
    /// As many as a processor may have.
    waiting: VecDeque<Waiting>,
    buffers: Buffers,
    sealed: Vec<u8>,
    has_told: bool,
}

impl Hand {
    pub(super) fn new(
        start: Start,
        ports: Vec<(usize, NearPort)>,
        sleeper: Sleeper,
        waker: Arc<EngineWaker>,
        rings: Rings,
    ) -> io::Result<Self> {
        for (at, (_, port)) in ports.iter().enumerate() {
            if let Readiness::Descriptor(descriptor) = port.readiness {
                sleeper.add(at, descriptor)?;
            }
        }
        let buffers = Buffers::new();
        let (waiting, sealed) = (VecDeque::new(), Vec::new());
        Ok(Self { start, ports, sleeper, waker, rings, waiting, buffers, sealed, has_told: false })
    }

    pub(super) fn run(mut self) {
        if let Some(core) = self.start.core
            && let Err(error) = net::processors::stay_on(core)
        {
            tracing::warn!(%error, core, "cannot stay on one processor");
        }
        if catch_unwind(AssertUnwindSafe(|| self.cycle())).is_err() {
            let name = &self.start.name;
            tracing::error!(processor = %name, "a processor of paths has panicked: its paths are dead");
        }
        // The driver sees that the rings are abandoned, once it looks.
        let owner = Arc::clone(&self.start.owner);
        drop(self);
        owner.wake();
    }

    fn cycle(&mut self) {
        while !self.rings.orders.is_abandoned() {
            // Nobody else writes it.
            self.rings.turns.store(self.rings.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            for _ in 0..ORDERS_PER_TURN {
                let Ok(order) = self.rings.orders.pop() else { break };
                self.carry_out(order);
            }
            (0..self.ports.len()).for_each(|at| self.retry(at));
            self.send_waiting();
            for at in 0..self.ports.len() {
                self.receive(at);
                let now = self.start.clock.now();
                self.ports[at].1.flush(now);
                self.watch_room(at);
            }
            self.wake_owner();
            self.rest();
        }
    }

    fn tell(&mut self, news: News) {
        // Orders are bounded. Nobody may be left to take it.
        let is_taken = self.rings.news.push(news).is_ok();
        debug_assert!(is_taken || self.rings.news.is_abandoned(), "a ring has room for what orders make");
        self.has_told = true;
    }

    fn wake_owner(&mut self) {
        if std::mem::take(&mut self.has_told) {
            fence(Ordering::SeqCst);
            self.start.owner.wake();
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Send { ticket, parcel, plan } => self.waiting.push_back(Waiting { ticket, parcel, plan }),
            Order::Open { key, cell, mut open, mut batch } => {
                open.open(batch.bytes_mut());
                self.tell(News::Opened { key, cell, open, batch });
            }
            Order::Reply { port, destination, source_ip, contents } => {
                let now = self.start.clock.now();
                let transmit = Transmit { destination, source_ip, ecn: None, contents: &contents, segment_size: None };
                if let Some(port) = self.port(port).filter(|port| port.has_room()) {
                    // The client asks again if it is lost.
                    let _sent = port.send(now, &transmit, || None);
                }
            }
        }
        self.send_waiting();
        // A driver that waits for the result is not to wait for the next order.
        self.wake_owner();
    }

    /// Sends the plans whose sockets have room, in their order.
    fn send_waiting(&mut self) {
        let mut full = 0_u64;
        let mut at = 0;
        while let Some(Waiting { plan, .. }) = self.waiting.get(at) {
            let socket = plan.addresses.map_or(0, |addresses| addresses.socket);
            let port = self.port(usize::from(socket));
            if full & 1 << socket != 0 || port.is_some_and(|port| !port.has_room()) {
                full |= 1 << socket;
                at += 1;
                continue;
            }
            if let Some(waiting) = self.waiting.remove(at) {
                self.send(waiting);
            }
        }
    }

    fn port(&mut self, index: usize) -> Option<&mut NearPort> {
        self.ports.iter_mut().find(|(known, _)| *known == index).map(|(_, port)| port)
    }

    fn send(&mut self, waiting: Waiting) {
        let Waiting { ticket, parcel, plan } = waiting;
        let mut sealed = std::mem::take(&mut self.sealed);
        seal(&plan, &mut sealed);
        let now = self.start.clock.now();
        // Before the system call, so that no acknowledgement can overtake the report.
        self.tell(News::Emitted { ticket, parcel: parcel.clone(), at: now });
        self.wake_owner();
        let error = self.put_out(now, &parcel, &plan, &sealed);
        self.sealed = sealed;
        self.tell(News::Sent { ticket, parcel, plan, error });
    }

    fn put_out(&mut self, now: Instant, parcel: &Parcel, plan: &Plan, sealed: &[u8]) -> Option<SendError> {
        let addresses = plan.addresses?;
        let transmit = Transmit {
            destination: addresses.remote,
            source_ip: addresses.local_ip,
            ecn: None,
            contents: sealed,
            segment_size: (plan.datagram_count() > 1).then_some(plan.segment_size),
        };
        match self.port(usize::from(addresses.socket))?.send(now, &transmit, || Some(parcel.clone())) {
            Sent::Taken => None,
            Sent::Lost(error) => Some(error),
        }
    }

    /// A socket may have room again: what waits for it leaves.
    fn retry(&mut self, at: usize) {
        if self.rings.news.slots() < NEWS_RESERVED {
            // The driver has not read what it was told: what orders make must find room.
            return;
        }
        let now = self.start.clock.now();
        let port = &mut self.ports[at].1;
        let writable = std::mem::take(&mut port.became_writable) && port.awaits_writable();
        if !writable && port.retry_at().is_none_or(|retry_at| retry_at > now) {
            return;
        }
        let held = port.held().cloned();
        if let Some(parcel) = held {
            self.tell(News::Late { parcel, at: now, error: None });
        }
        if let Some((Some(parcel), error)) = self.ports[at].1.retry(now) {
            self.tell(News::Late { parcel, at: now, error: Some(error) });
        }
    }

    /// One call to a socket, while there is room to tell of what comes.
    fn receive(&mut self, at: usize) {
        if self.rings.arrivals.slots() < RECV_BUFFERS {
            return;
        }
        let (index, port) = &mut self.ports[at];
        if port.arrivals.take() {
            port.readable = true;
        }
        if !port.readable {
            return;
        }
        let index = *index;
        let count = port.receive(&mut self.buffers);
        for batch in 0..count {
            let (meta, batch) = (self.buffers.metas[batch], self.buffers.take(batch));
            // There was room for all of them.
            let _abandoned = self.rings.arrivals.push(Arrival { port: index, meta, batch });
            self.has_told = true;
        }
    }

    /// Watches a socket for room exactly while it has none.
    fn watch_room(&mut self, at: usize) {
        let port = &mut self.ports[at].1;
        let wanted = port.awaits_writable();
        if wanted != port.watched
            && let Readiness::Descriptor(descriptor) = port.readiness
        {
            match self.sleeper.watch_writable(at, descriptor, wanted) {
                Ok(()) => port.watched = wanted,
                Err(error) => tracing::error!(%error, "cannot watch a socket for room"),
            }
        }
    }

    /// Sleeps until there is an order, an arrival, room or a time to try again.
    fn rest(&mut self) {
        self.waker.announce_sleep();
        fence(Ordering::SeqCst);
        let can_receive = self.rings.arrivals.slots() >= RECV_BUFFERS;
        let busy = !self.rings.orders.is_empty()
            || self.rings.orders.is_abandoned()
            || (can_receive && self.ports.iter().any(|(_, port)| port.readable || port.arrivals.has_some()));
        let now = self.start.clock.now();
        let retries = self.ports.iter().filter_map(|(_, port)| port.retry_at()).min();
        // Not before the driver may have read something.
        let retries =
            retries.map(|at| if self.rings.news.slots() < NEWS_RESERVED { at.max(now + RETRY_LATER) } else { at });
        let until = if busy { Some(now) } else { retries };
        let ready = self.sleeper.wait(now, until);
        self.waker.announce_awake();
        match ready {
            Ok(ready) => {
                for ready in ready {
                    let Some((_, port)) = self.ports.get_mut(ready.socket) else { continue };
                    port.readable |= ready.readable;
                    port.became_writable |= ready.writable;
                }
            }
            // Only a broken poll descriptor fails. Going on slowly beats spinning or giving up.
            Err(error) => tracing::error!(%error, "cannot wait for sockets"),
        }
    }
}
