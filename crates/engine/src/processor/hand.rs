//! The duty cycle of a processor of paths.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use net::{RecvMeta, Transmit};
use quic::{OpenJob, Plan, ReceiveBuffer, seal};
use rtrb::{Consumer, Producer};
use units::{Duration, Instant};

use super::loans::Borrower;
use super::values::{Arrival, News, Order};
use super::{ORDERS_MAX, Start};
use crate::arrival::{arrived_at, run_of_id};
use crate::crew::{self, Hand as _};
use crate::port::{NearPort, Parcel, Sent};
use crate::receive::{Arrived, Buffers, RECV_BUFFERS};
use crate::sleep::Sleeper;
use crate::socket::Readiness;
use crate::stage::{Helper, Tally};
use crate::wake::EngineWaker;

/// Orders carried out before the sockets are looked at again.
const ORDERS_PER_TURN: usize = 8;

/// Plans it has left when the driver is told of room for more: what it sees to meanwhile bridges the time until they come.
const WAITING_LOW: usize = 1;

/// Batches that are opened before the driver is told of them, if it sleeps: it absorbs them in a fraction of the time.
const OPENED_PER_WAKE: usize = 4;

/// Places of the ring of news that attempts to send again leave free: every order makes two.
const NEWS_RESERVED: usize = 2 * ORDERS_MAX + 2;

/// When a socket is tried again while the driver has too much to read.
const RETRY_LATER: Duration = Duration::from_micros(500);

/// The ends of the rings that the thread has.
pub(super) struct Rings {
    pub(super) orders: Consumer<Order>,
    pub(super) news: Producer<News>,
    pub(super) arrivals: Producer<Arrival>,
    pub(super) jobs: Consumer<Box<OpenJob>>,
    pub(super) turns: Arc<AtomicU64>,
}

/// What else the thread has of what others see.
pub(super) struct OtherEnds {
    pub(super) helper: Option<Helper>,
    pub(super) tally: Arc<Tally>,
    /// Dropped last.
    pub(super) _ends: Sender<Infallible>,
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
    loans: Borrower,
    has_told: bool,
    /// The driver wants to know when nothing is left to send.
    finishes: Option<u64>,
    /// Batches sent, received and helped with since that was noted, and since when.
    batches: u64,
    awake_since: Instant,
    others: OtherEnds,
}

impl Hand {
    pub(super) fn new(
        start: Start,
        ports: Vec<(usize, NearPort)>,
        sleeper: Sleeper,
        waker: Arc<EngineWaker>,
        rings: Rings,
        others: OtherEnds,
    ) -> io::Result<Self> {
        for (at, (_, port)) in ports.iter().enumerate() {
            if let Readiness::Descriptor(descriptor) = port.readiness {
                sleeper.add(at, descriptor)?;
            }
        }
        let buffers = Buffers::new();
        let awake_since = start.clock.now();
        Ok(Self {
            start,
            ports,
            sleeper,
            waker,
            rings,
            waiting: VecDeque::new(),
            buffers,
            sealed: Vec::new(),
            loans: Borrower::default(),
            has_told: false,
            finishes: None,
            batches: 0,
            awake_since,
            others,
        })
    }

    fn is_busy(&self) -> bool {
        !self.rings.orders.is_empty()
            || self.rings.orders.is_abandoned()
            || self.others.helper.as_ref().is_some_and(Helper::has_work)
            || (self.can_receive() && self.ports.iter().any(|(_, port)| port.readable || port.arrivals.has_some()))
    }

    fn can_receive(&self) -> bool {
        self.rings.arrivals.slots() >= RECV_BUFFERS
    }

    /// When a socket that had no room is tried again.
    fn retry_at(&self, now: Instant) -> Option<Instant> {
        let at = self.ports.iter().filter_map(|(_, port)| port.retry_at()).min()?;
        // Not before the driver may have read something.
        Some(if self.rings.news.slots() < NEWS_RESERVED { at.max(now + RETRY_LATER) } else { at })
    }
}

impl crew::Hand for Hand {
    fn run(mut self: Box<Self>) {
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

    fn turn(&mut self) {
        // Nobody else writes it.
        self.rings.turns.store(self.rings.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.take_orders();
        (0..self.ports.len()).for_each(|at| self.retry(at));
        self.send_waiting();
        for at in 0..self.ports.len() {
            self.receive(at);
            let now = self.start.clock.now();
            self.ports[at].1.flush(now);
            self.watch_room(at);
        }
        self.help();
        self.finish();
        self.wake_owner();
    }

    fn due_at(&self, now: Instant) -> Option<Instant> {
        if self.is_busy() { Some(now) } else { self.retry_at(now).map(|at| at.max(now)) }
    }
}

impl Hand {
    fn cycle(&mut self) {
        while !self.rings.orders.is_abandoned() {
            self.turn();
            self.rest();
        }
    }

    fn take_orders(&mut self) {
        for _ in 0..ORDERS_PER_TURN {
            let Ok(order) = self.rings.orders.pop() else { break };
            self.carry_out(order);
            self.help();
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
            self.start.owner.wake();
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Send { ticket, parcel, plan } => {
                self.waiting.push_back(Waiting { ticket, parcel, plan });
                self.send_waiting();
            }
            Order::Borrow(lent) => self.loans.take(*lent),
            Order::Reply { port, destination, source_ip, contents } => {
                let now = self.start.clock.now();
                let transmit = Transmit { destination, source_ip, ecn: None, contents: &contents, segment_size: None };
                if let Some(port) = self.port(port).filter(|port| port.has_room()) {
                    // The client asks again if it is lost.
                    let _sent = port.send(now, &transmit, || None);
                }
            }
            Order::Finish { next_ticket } => self.finishes = Some(next_ticket),
        }
    }

    /// Says that nothing is left to send, if it was asked and so it is.
    fn finish(&mut self) {
        // Orders come one after the other: those before the question were carried out.
        let is_done = self.waiting.is_empty() && self.ports.iter().all(|(_, port)| port.has_room());
        if is_done && let Some(next_ticket) = self.finishes.take() {
            self.tell(News::Finished { next_ticket });
        }
    }

    /// Seals a batch of the driver's own paths, if it has given one. That it does only while there is little to do here, so what it
    /// gives waits no longer than its turn: those behind it on its path wait, too.
    fn help(&mut self) {
        if self.others.helper.as_mut().is_some_and(Helper::serve) {
            self.batches += 1;
            self.has_told = true;
            self.wake_owner();
        }
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
        self.batches += 1;
        let now = self.start.clock.now();
        let (addresses, segment_size) = (plan.addresses, (plan.datagram_count() > 1).then_some(plan.segment_size));
        // Before the system call, so that no acknowledgement can overtake the report. It is in the ring, and who looks for arrivals
        // looks there first: to wake the driver is only of use if it is to make more plans.
        self.tell(News::Leaves { ticket, parcel: parcel.clone(), plan, at: now });
        if self.waiting.len() + self.rings.orders.slots() <= WAITING_LOW {
            self.wake_owner();
        }
        if let Some(addresses) = addresses
            && let Some(port) = self.port(usize::from(addresses.socket))
        {
            let transmit = Transmit {
                destination: addresses.remote,
                source_ip: addresses.local_ip,
                ecn: None,
                contents: &sealed,
                segment_size,
            };
            if let Sent::Lost(error) = port.send(now, &transmit, || Some(parcel.clone())) {
                self.tell(News::Refused { parcel, at: now, error });
            }
        }
        self.sealed = sealed;
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
            self.tell(News::Late { parcel, at: now });
        }
        if let Some((Some(parcel), error)) = self.ports[at].1.retry(now) {
            self.tell(News::Refused { parcel, at: now, error });
        }
    }

    /// One call to a socket, while there is room to tell of what comes.
    fn receive(&mut self, at: usize) {
        if !self.can_receive() {
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
        self.batches += count as u64;
        for at in 0..count {
            let (meta, batch) = (self.buffers.metas[at], self.buffers.take(at));
            let arrival = self.open(index, meta, batch);
            // There was room for all of them.
            let _abandoned = self.rings.arrivals.push(arrival);
            self.has_told = true;
            if at % OPENED_PER_WAKE == OPENED_PER_WAKE - 1 {
                self.wake_owner();
            }
            if !self.rings.orders.is_empty() {
                // What is to be sent does not wait for all that has arrived.
                self.take_orders();
            }
        }
    }

    /// Opens a batch if what that takes was lent. What it was lent for is looked at now, after the call to the socket: see
    /// [`loans`](super::loans).
    fn open(&mut self, port: usize, meta: RecvMeta, mut batch: Arrived) -> Arrival {
        let stride = meta.stride.max(1);
        let is_uniform = run_of_id(batch.bytes(), stride) == batch.bytes().len();
        let (loans, jobs) = (&mut self.loans, &mut self.rings.jobs);
        let spare = || jobs.pop().unwrap_or_default();
        let opened =
            if is_uniform { loans.open(arrived_at(port, &meta), stride, batch.bytes_mut(), spare) } else { None };
        Arrival { port, meta, batch, opened }
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
        let busy = self.is_busy();
        let now = self.start.clock.now();
        let until = if busy { Some(now) } else { self.retry_at(now) };
        if !busy {
            self.loans.sweep();
        }
        self.others.tally.add_some(std::mem::take(&mut self.batches), now.saturating_since(self.awake_since));
        let ready = self.sleeper.wait(now, until);
        self.awake_since = self.start.clock.now();
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
