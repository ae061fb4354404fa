//! The duty cycle of the receiver.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::Sender;

use bytes::BytesMut;
use net::RecvMeta;
use quic::{ConnectionKey, Strange};
use rtrb::{Consumer, Producer};
use units::{Duration, Instant};

use super::figures::{Figures, add};
use super::guest::Guest;
use super::values::{Arrival, News, Order};
use super::{GUESTS_MAX, NEWS_MAX, ORDERS_MAX, Start};
use crate::arrival::{LocalId, arrived_at, local_id, run_of_id};
use crate::crew;
use crate::port::NearPort;
use crate::receive::{Arrived, Buffers, RECV_BUFFERS};
use crate::sleep::Sleeper;
use crate::socket::Readiness;
use crate::wake::EngineWaker;

/// Orders carried out before the sockets are looked at again.
const ORDERS_PER_TURN: usize = 64;

/// Places of the ring of news that reports leave free: every half that is here may be quiet, and return.
const NEWS_RESERVED: usize = 3 * GUESTS_MAX + 1;

/// Values that one half may have found out and not told before nothing more is received.
const UNTOLD_MAX: usize = 1024;

/// Batches that are brought to readers before they are woken, within a turn: a quarter of a megabyte, some 100 us of work. One that
/// runs on this very processor takes it over when it is woken, and changing turns for each batch costs a sixth of the time. More
/// would leave the caches before they are read.
const BATCHES_PER_WAKE: usize = 4;

/// A half that nothing came for in so long may go home.
const QUIET_AFTER: Duration = Duration::from_secs(1);

/// The ends of the rings that the thread has.
pub(super) struct Rings {
    pub(super) orders: Consumer<Order>,
    pub(super) news: Producer<News>,
    pub(super) arrivals: Producer<Arrival>,
    pub(super) turns: Arc<AtomicU64>,
    pub(super) figures: Arc<Figures>,
}

/// The thread's own end.
pub(super) struct Hand {
    start: Start,
    ports: Vec<NearPort>,
    sleeper: Sleeper,
    waker: Arc<EngineWaker>,
    rings: Rings,
    guests: BTreeMap<ConnectionKey, Box<Guest>>,
    /// Whose datagrams are whose.
    ids: HashMap<LocalId, ConnectionKey>,
    buffers: Buffers,
    arrived: Vec<(RecvMeta, Arrived)>,
    has_told: bool,
    /// Batches, and words of the driver, that may have brought something since readers were last woken.
    brought: usize,
    /// The driver takes all that has arrived before more does.
    is_paused: bool,
    must_say_paused: bool,
    awake_since: Instant,
    /// Whose fault a panic is.
    attended: Option<ConnectionKey>,
    /// Dropped last.
    _ends: Sender<Infallible>,
}

impl Hand {
    pub(super) fn new(
        start: Start,
        ports: Vec<NearPort>,
        sleeper: Sleeper,
        waker: Arc<EngineWaker>,
        rings: Rings,
        ends: Sender<Infallible>,
    ) -> io::Result<Self> {
        for (index, port) in ports.iter().enumerate() {
            if let Readiness::Descriptor(descriptor) = port.readiness {
                sleeper.add(index, descriptor)?;
            }
        }
        Ok(Self {
            awake_since: start.clock.now(),
            start,
            ports,
            sleeper,
            waker,
            rings,
            guests: BTreeMap::new(),
            ids: HashMap::new(),
            buffers: Buffers::new(),
            arrived: Vec::with_capacity(RECV_BUFFERS),
            has_told: false,
            brought: 0,
            is_paused: false,
            must_say_paused: false,
            attended: None,
            _ends: ends,
        })
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
            tracing::error!("the receiver has panicked: connections whose receive half it had end");
        }
        // The driver sees that the rings are abandoned, once it looks.
        let owner = Arc::clone(&self.start.owner);
        drop(self);
        owner.wake();
    }

    fn turn(&mut self) {
        self.do_turn();
    }

    fn due_at(&self, now: Instant) -> Option<Instant> {
        if self.is_busy() { Some(now) } else { self.next_quiet().map(|at| at.max(now)) }
    }
}

impl Hand {
    /// Turns until nobody has orders any more. A half that panics takes no other along.
    fn cycle(&mut self) {
        while !self.rings.orders.is_abandoned() {
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.turn_and_rest())) else { continue };
            let Some(key) = self.attended.take() else { resume_unwind(panic) };
            tracing::error!(connection = key.0, "a receive half has broken: its connection ends, the others go on");
            self.bury(key);
        }
    }

    fn bury(&mut self, key: ConnectionKey) {
        self.ids.retain(|_, of| *of != key);
        let Some(guest) = self.guests.remove(&key) else { return };
        if let Some(cell) = guest.cell().cloned() {
            let _abandoned = self.rings.news.push(News::Broken { key, cell });
            self.has_told = true;
        }
        // Dropping it may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(guest))).is_err() {
            tracing::error!(connection = key.0, "a broken receive half does not even end in order");
        }
    }

    /// Sleeps after the turn if there is nothing to do.
    fn turn_and_rest(&mut self) {
        self.do_turn();
        self.rest();
    }

    /// Never runs long.
    fn do_turn(&mut self) {
        // Nobody else writes it.
        self.rings.turns.store(self.rings.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let had_many = self.rings.orders.slots() >= ORDERS_PER_TURN;
        self.take_orders(ORDERS_PER_TURN);
        // A driver that found the ring full is told that it is not.
        self.has_told |= had_many;
        for index in 0..self.ports.len() {
            self.receive(index);
        }
        if std::mem::take(&mut self.must_say_paused) {
            // Room is kept for it.
            let _abandoned = self.rings.news.push(News::Paused);
            self.has_told = true;
        }
        self.report_all();
        self.note_quiet();
        self.wake_owner();
        self.wake_readers();
    }

    // ── Orders ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn take_orders(&mut self, max: usize) {
        for _ in 0..max {
            let Ok(order) = self.rings.orders.pop() else { break };
            match order {
                Order::Take { key, guest } => {
                    self.guests.insert(key, guest);
                    self.learn_ids(key);
                }
                Order::Tell { key, word } => {
                    let now = self.start.clock.now();
                    self.attended = Some(key);
                    let has_ids = self.guests.get_mut(&key).is_some_and(|guest| guest.hear(now, word));
                    self.attended = None;
                    self.brought += 1;
                    if has_ids {
                        self.learn_ids(key);
                    }
                }
                Order::GiveBack { key } => self.give_back(key),
                // Said at the end of the turn: batches may be in hand.
                Order::Pause => (self.is_paused, self.must_say_paused) = (true, true),
                Order::Resume => self.is_paused = false,
            }
        }
    }

    /// Notes whose datagrams are this half's.
    fn learn_ids(&mut self, key: ConnectionKey) {
        self.ids.retain(|_, of| *of != key);
        let part = self.guests.get(&key).and_then(|guest| guest.part());
        for id in part.into_iter().flat_map(|part| part.ids()) {
            if let Ok(id) = LocalId::try_from(id.as_slice()) {
                self.ids.insert(id, key);
            }
        }
    }

    fn give_back(&mut self, key: ConnectionKey) {
        let Some(guest) = self.guests.remove(&key) else { return };
        self.ids.retain(|_, of| *of != key);
        // Room is kept for all of them; nobody may be left to take it.
        let is_taken = self.rings.news.push(News::Returned { key, guest }).is_ok();
        assert!(is_taken || self.rings.news.is_abandoned(), "a ring has room for all that are here");
        self.has_told = true;
    }

    /// Tells of those that nothing came for in a while. They stay until they are wanted back: there may be orders on their way.
    fn note_quiet(&mut self) {
        let Some(next) = self.next_quiet() else { return };
        let now = self.start.clock.now();
        if next > now || self.rings.news.slots() <= NEWS_RESERVED {
            return;
        }
        for (key, guest) in &mut self.guests {
            if let Some(cell) = guest.cell().cloned().filter(|_| guest.busy_at + QUIET_AFTER <= now)
                && !std::mem::replace(&mut guest.is_quiet, true)
            {
                let _abandoned = self.rings.news.push(News::Quiet { key: *key, cell });
                self.has_told = true;
            }
        }
    }

    /// When the next one has been quiet for long enough.
    fn next_quiet(&self) -> Option<Instant> {
        self.guests.values().filter(|guest| !guest.is_quiet).map(|guest| guest.busy_at + QUIET_AFTER).min()
    }

    // ── Arrivals ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Whether there is room to tell of what comes.
    fn may_receive(&self) -> bool {
        !self.is_paused
            && self.rings.arrivals.slots() >= RECV_BUFFERS
            && self.guests.values().all(|guest| guest.untold() < UNTOLD_MAX)
    }

    /// One call to a socket, while there is room to tell of what comes.
    fn receive(&mut self, index: usize) {
        let port = &mut self.ports[index];
        port.readable |= port.arrivals.take();
        if !port.readable || !self.may_receive() {
            return;
        }
        let count = self.ports[index].receive(&mut self.buffers);
        if count == 0 {
            return;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.extend((0..count).map(|batch| (self.buffers.metas[batch], self.buffers.take(batch))));
        let datagrams = arrived.iter().map(|(meta, _)| meta.len.div_ceil(meta.stride.max(1)) as u64).sum();
        add(&self.rings.figures.datagrams, datagrams);
        // What caused these batches may have been ordered meanwhile.
        self.take_orders(ORDERS_MAX);
        for (meta, batch) in arrived.drain(..) {
            self.deliver(index, meta, batch);
        }
        self.arrived = arrived;
    }

    /// Gives the datagrams of a batch to the half they belong to, or to the driver.
    fn deliver(&mut self, port: usize, meta: RecvMeta, batch: Arrived) {
        let data = batch.bytes();
        let stride = meta.stride.max(1);
        let first = &data[..stride.min(data.len())];
        let Some(key) = self.key_of(first) else { return self.pass_on(port, meta, batch) };
        if run_of_id(data, stride) == data.len() {
            return self.hand_over(port, key, meta, batch);
        }
        // Receive offload joins what comes from one address, and two connections may share one.
        let pieces: Vec<BytesMut> = data.chunks(stride).map(BytesMut::from).collect();
        for piece in pieces {
            let meta = RecvMeta { len: piece.len(), stride: piece.len(), ..meta };
            match self.key_of(&piece) {
                Some(key) => self.hand_over(port, key, meta, Arrived::Copied(piece)),
                None => self.pass_on(port, meta, Arrived::Copied(piece)),
            }
        }
    }

    /// The half that a datagram with a short header belongs to, if it is here.
    fn key_of(&self, datagram: &[u8]) -> Option<ConnectionKey> {
        self.ids.get(&local_id(datagram)?).copied()
    }

    fn hand_over(&mut self, port: usize, key: ConnectionKey, meta: RecvMeta, batch: Arrived) {
        let Some(guest) = self.guests.get_mut(&key) else { return self.pass_on(port, meta, batch) };
        let now = self.start.clock.now();
        self.attended = Some(key);
        let taken = guest.take(now, arrived_at(port, &meta), batch, meta.stride);
        self.attended = None;
        if let Err(Strange(batch)) = taken {
            return self.pass_on(port, meta, batch);
        }
        add(&self.rings.figures.batches, 1);
        self.brought += 1;
        if self.brought >= BATCHES_PER_WAKE {
            self.wake_readers();
        }
        if self.guests.get(&key).is_some_and(|guest| guest.is_urgent()) {
            self.report(key);
        }
    }

    /// The driver looks at it.
    fn pass_on(&mut self, port: usize, meta: RecvMeta, batch: Arrived) {
        // One that finds no room is lost, as on the way: a batch of many pieces may.
        add(&self.rings.figures.passed_on, 1);
        let _lost = self.rings.arrivals.push(Arrival { port, meta, batch });
        self.has_told = true;
    }

    /// Wakes those who read what was brought.
    fn wake_readers(&mut self) {
        if self.brought == 0 {
            return;
        }
        for (key, guest) in &mut self.guests {
            // A waker may be anybody's, and panic.
            self.attended = Some(*key);
            guest.wake_readers();
        }
        // Only now: if one panicked, those after it still wait.
        self.brought = 0;
        self.attended = None;
    }

    // ── News ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Tells the driver what a half has found out, if there is room; otherwise it is told later.
    fn report(&mut self, key: ConnectionKey) {
        if self.rings.news.slots() <= NEWS_RESERVED {
            return;
        }
        let Some(guest) = self.guests.get_mut(&key) else { return };
        self.attended = Some(key);
        let report = guest.report();
        self.attended = None;
        if let (Some(report), Some(cell)) = (report, guest.cell()) {
            let _abandoned = self.rings.news.push(News::Report { key, cell: Arc::clone(cell), report });
            add(&self.rings.figures.reports, 1);
            self.has_told = true;
        }
    }

    /// Tells what was found out: what is urgent, and the rest before there is nothing else to do. The driver need not wake for it
    /// meanwhile.
    fn report_all(&mut self) {
        let is_busy = self.has_work();
        let due = |guest: &Guest| guest.has_findings && (!is_busy || guest.is_urgent());
        let due: Vec<ConnectionKey> = self.guests.iter().filter(|(_, guest)| due(guest)).map(|(key, _)| *key).collect();
        due.into_iter().for_each(|key| self.report(key));
    }

    /// There are orders, or arrivals that may be taken.
    fn has_work(&self) -> bool {
        !self.rings.orders.is_empty()
            || self.rings.orders.is_abandoned()
            || (self.may_receive() && self.ports.iter().any(|port| port.readable || port.arrivals.has_some()))
    }

    /// There is something to do already.
    fn is_busy(&self) -> bool {
        let may_tell = self.rings.news.slots() > NEWS_RESERVED;
        self.has_work() || (may_tell && self.guests.values().any(|guest| guest.has_findings))
    }

    fn wake_owner(&mut self) {
        if std::mem::take(&mut self.has_told) {
            self.start.owner.wake();
        }
    }

    /// Sleeps until there is an order, an arrival, or room to tell.
    fn rest(&mut self) {
        self.waker.announce_sleep();
        fence(Ordering::SeqCst);
        let now = self.start.clock.now();
        let until = if self.is_busy() { Some(now) } else { self.next_quiet() };
        add(&self.rings.figures.busy_ns, now.saturating_since(self.awake_since).as_nanos());
        let ready = self.sleeper.wait(now, until);
        self.waker.announce_awake();
        self.awake_since = self.start.clock.now();
        match ready {
            Ok(ready) => {
                for ready in ready {
                    if let Some(port) = self.ports.get_mut(ready.socket) {
                        port.readable |= ready.readable;
                    }
                }
            }
            // Only a broken poll descriptor fails. Going on slowly beats spinning or giving up.
            Err(error) => tracing::error!(%error, "cannot wait for sockets"),
        }
    }
}

const _: () = assert!(NEWS_RESERVED < NEWS_MAX, "reports find room");
