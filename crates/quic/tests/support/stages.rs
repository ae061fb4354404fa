//! Who carries out a host's stages: the calls that do all in one go, or the same in steps: here, in any order, or on other
//! threads. What is sent must not depend on it.
//!
//! ```text
//!   arrivals of an instant ─▶ batches ─▶ begin_open ─▶ {open: here, shuffled, on workers} ─▶ handle_opened, in order begun
//!   poll_plan ─▶ {seal: here, twice, on workers} ─▶ handle_emitted
//! ```
//!
//! It is lock-step: the results of one instant are there before the next input, so time does not depend on threads. With
//! [`Staging::halved`] the receive half is taken out and what the halves have for each other is exchanged after every input.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bytes::BytesMut;
use quic::{
    Addresses, Connection, Findings, LeaseTerms, OpenJob, OpenLease, Orders, PathId, PathState, PathStats, Plan,
    ReceivePart, Strange, seal,
};
use units::{Duration, Instant, Ratio, Rng};

/// Datagrams of a batch, at most.
const BATCH_MAX: usize = 16;

/// Bytes of the connection ID of a short header, with its first byte: what tells two paths apart from outside.
const SHORT_ID_END: usize = 9;

/// Who opens and seals.
#[derive(Clone)]
pub enum By {
    /// `handle_datagrams`, which does all three steps.
    Caller,
    /// The three steps, one after the other on this thread.
    Steps,
    /// The middle step on other threads, and sealing too.
    Workers(Rc<Crew>),
    /// Leases open what arrives at once; what comes back is absorbed then. Holders learn of changes when a plan is made, and not
    /// before.
    Leases,
}

/// How a host's stages are carried out.
#[derive(Clone)]
pub struct Staging {
    pub by: By,
    /// What arrives at one instant from one address for one connection ID is one batch.
    pub gathers: bool,
    /// All batches of an instant are begun before the first is absorbed, and opened in any order. Plans are sealed twice, as
    /// if the first worker had died. Not for `By::Caller`, which cannot.
    pub together: bool,
    /// Arrivals are looked at so much later: those of some time are one instant, as for a driver that was busy.
    pub turn: Duration,
    /// Batches come back so much later than they were begun.
    pub hold: Duration,
    /// Share of batches that never come back.
    pub lose: Ratio,
    /// The receive half is apart whenever it can be. For `By::Caller` only: it opens for itself.
    pub halved: bool,
}

impl Default for Staging {
    fn default() -> Self {
        Self {
            by: By::Caller,
            gathers: false,
            together: false,
            turn: Duration::ZERO,
            hold: Duration::ZERO,
            lose: Ratio::ZERO,
            halved: false,
        }
    }
}

impl Staging {
    /// Each datagram is taken in as it arrives, by the connection itself.
    fn is_plain(&self) -> bool {
        matches!(self.by, By::Caller) && !self.gathers && self.turn.is_zero()
    }
}

/// What was done, so that tests can prove that it was.
#[derive(Debug, Default, Clone, Copy)]
pub struct Done {
    /// Batches opened in steps, and those of several datagrams among them.
    pub opened: u64,
    pub opened_many: u64,
    /// Batches opened before one that was begun earlier.
    pub overtook: u64,
    /// Batches that were absorbed after the keys had been updated since they were begun.
    pub stale: u64,
    /// Batches of paths that were not there yet, not validated, or about to move.
    pub unsettled: u64,
    /// Leases that ended because their terms changed.
    pub leases_ended: u64,
    pub lost: u64,
    /// Plans sealed twice or elsewhere.
    pub sealed: u64,
    /// Batches that a receive half took apart from the rest, and those it found strange.
    pub apart: u64,
    pub strange: u64,
}

impl Done {
    /// Both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            opened: self.opened + other.opened,
            opened_many: self.opened_many + other.opened_many,
            overtook: self.overtook + other.overtook,
            stale: self.stale + other.stale,
            unsettled: self.unsettled + other.unsettled,
            leases_ended: self.leases_ended + other.leases_ended,
            lost: self.lost + other.lost,
            sealed: self.sealed + other.sealed,
            apart: self.apart + other.apart,
            strange: self.strange + other.strange,
        }
    }
}

/// Datagrams that arrived together.
pub struct Arrival {
    pub addresses: Addresses,
    pub data: BytesMut,
    pub stride: usize,
}

impl Arrival {
    /// One datagram.
    pub fn new(datagram: &[u8], addresses: Addresses) -> Self {
        Self { addresses, data: datagram.into(), stride: datagram.len().max(1) }
    }

    /// Appends a datagram if the kernel would have (GRO): same flow, same size, or shorter and then the last.
    fn extend(&mut self, next: &Self) -> bool {
        let is_short = |data: &[u8]| data.len() > SHORT_ID_END && data[0] & 0x80 == 0;
        let fits = self.addresses == next.addresses
            && is_short(&self.data)
            && is_short(&next.data)
            && self.data[1..SHORT_ID_END] == next.data[1..SHORT_ID_END]
            && self.data.len().is_multiple_of(self.stride)
            && self.data.len() / self.stride < BATCH_MAX
            && next.data.len() <= self.stride;
        if fits {
            self.data.extend_from_slice(&next.data);
        }
        fits
    }
}

/// A batch that was begun.
struct Begun {
    at: Instant,
    connection: usize,
    key_updates: u64,
    job: OpenJob,
    data: BytesMut,
    /// Not opened, since nothing was lent: where it came from, and the size of its datagrams.
    raw: Option<(Addresses, usize)>,
}

/// A lease with its connection, its connection ID and its terms.
struct Lent {
    connection: usize,
    id: [u8; SHORT_ID_END - 1],
    terms: LeaseTerms,
    lease: OpenLease,
}

/// The connection ID of a short header.
fn short_id(datagram: &[u8]) -> Option<[u8; SHORT_ID_END - 1]> {
    let is_short = datagram.first().is_some_and(|first| first & 0x80 == 0);
    datagram.get(1..SHORT_ID_END).filter(|_| is_short)?.try_into().ok()
}

/// The stages of one host.
pub struct Stages {
    staging: Staging,
    rng: Rng,
    arrivals: Vec<Arrival>,
    /// When they are looked at.
    turn_at: Option<Instant>,
    /// Begun and not absorbed, in this order.
    begun: VecDeque<Begun>,
    again: Vec<u8>,
    /// Receive halves that are apart, by connection.
    parts: BTreeMap<usize, ReceivePart>,
    findings: Findings,
    orders: Orders,
    /// The last time anything happened.
    now: Instant,
    leases: Vec<Lent>,
    pub done: Done,
}

impl Stages {
    pub fn new(staging: Staging, rng: Rng) -> Self {
        assert!(!staging.together || !matches!(staging.by, By::Caller), "one call cannot be taken apart");
        Self {
            staging,
            rng,
            arrivals: Vec::new(),
            turn_at: None,
            begun: VecDeque::new(),
            again: Vec::new(),
            parts: BTreeMap::new(),
            findings: Findings::default(),
            orders: Orders::default(),
            now: Instant::ZERO,
            leases: Vec::new(),
            done: Done::default(),
        }
    }

    /// Keeps a datagram until all of its instant are there; false if that is not wanted.
    pub fn keep(&mut self, now: Instant, datagram: &[u8], addresses: Addresses) -> bool {
        if self.staging.is_plain() {
            return false;
        }
        self.turn_at.get_or_insert(now + self.staging.turn);
        let next = Arrival::new(datagram, addresses);
        let is_part = self.staging.gathers && self.arrivals.last_mut().is_some_and(|last| last.extend(&next));
        if !is_part {
            self.arrivals.push(next);
        }
        true
    }

    /// What has arrived, once it is to be looked at.
    pub fn take_arrivals(&mut self, now: Instant) -> Vec<Arrival> {
        if self.turn_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.turn_at = None;
        std::mem::take(&mut self.arrivals)
    }

    /// Whether what was begun is to be absorbed before a batch from these addresses is begun.
    ///
    /// Beginning notes whose bytes arrived, and only those of a path that is there count for it. So what comes on one that is
    /// not yet, or that moves, is less credit before validation (RFC 9000, section 8.1), or nothing at all, if what makes the
    /// path is begun and not absorbed. Such batches are left out: they go one by one.
    pub fn is_next_alone(&self, connection: &Connection, addresses: &Addresses) -> bool {
        self.staging.hold.is_zero() && !self.begun.is_empty() && !is_settled(connection, addresses, None)
    }

    /// Begins a batch that arrived for a connection, or does all of it. True if what was begun is to be
    /// [absorbed](Self::absorb) before more is begun.
    pub fn begin(&mut self, now: Instant, index: usize, connection: &mut Connection, arrival: Arrival) -> bool {
        let Arrival { addresses, mut data, stride } = arrival;
        if self.staging.halved {
            match self.take_apart(now, index, connection, addresses, data, stride) {
                Ok(()) => return false,
                Err(strange) => data = strange,
            }
        }
        let mut job = OpenJob::default();
        if matches!(self.staging.by, By::Leases) {
            let id = short_id(&data);
            let lent = self.leases.iter_mut().find(|lent| lent.connection == index && Some(lent.id) == id);
            let is_opened = lent.map(|lent| lent.lease.open(addresses, stride, &mut data, &mut job)).is_some();
            self.done.opened += u64::from(is_opened);
            self.done.opened_many += u64::from(is_opened && data.len() > stride);
            let key_updates = connection.stats().send.key_updates;
            let raw = (!is_opened).then_some((addresses, stride));
            self.begun.push_back(Begun { at: now, connection: index, key_updates, job, data, raw });
            return self.staging.hold.is_zero();
        }
        let is_begun =
            !matches!(self.staging.by, By::Caller) && connection.begin_open(now, addresses, &data, stride, &mut job);
        if !is_begun {
            connection.handle_datagrams(now, addresses, data, stride);
            return false;
        }
        self.done.opened += 1;
        self.done.opened_many += u64::from(data.len() > stride);
        let key_updates = connection.stats().send.key_updates;
        let is_settled = job.path().is_none_or(|id| is_settled(connection, &addresses, Some(id)));
        self.done.unsettled += u64::from(!is_settled);
        self.begun.push_back(Begun { at: now, connection: index, key_updates, job, data, raw: None });
        self.staging.hold.is_zero() && (!self.staging.together || !is_settled)
    }

    /// Opens what was begun and is due, and hands it back in the order in which it was begun.
    pub fn absorb(&mut self, now: Instant, connections: &mut [Option<Connection>]) {
        let due = self.begun.iter().take_while(|begun| begun.at + self.staging.hold <= now).count();
        if due == 0 {
            return;
        }
        let mut batches: Vec<Begun> = self.begun.drain(..due).collect();
        let is_lent = matches!(self.staging.by, By::Leases);
        if !is_lent {
            self.open(&mut batches);
        }
        for Begun { connection: index, key_updates, mut job, data, raw, .. } in batches {
            let Some(connection) = &mut connections[index] else { continue };
            if self.rng.chance(self.staging.lose) {
                self.done.lost += 1;
                continue;
            }
            self.done.stale += u64::from(connection.stats().send.key_updates != key_updates);
            if let Some((addresses, stride)) = raw {
                self.lend(index, connection, &data);
                connection.handle_datagrams(now, addresses, data, stride);
            } else if is_lent {
                connection.handle_opened_there(now, &mut job, &data.freeze());
            } else {
                connection.handle_opened(now, &mut job, &data.freeze());
            }
        }
    }

    /// Lends what opens those that follow, one lease for each path.
    fn lend(&mut self, index: usize, connection: &mut Connection, data: &[u8]) {
        let Some(id) = short_id(data) else { return };
        if self.leases.iter().any(|lent| lent.connection == index && lent.id == id) {
            return;
        }
        if let (Some(terms), Some(lease)) = (connection.lease_terms(), connection.lend_opening(data)) {
            self.leases.retain(|lent| lent.connection != index || lent.lease.path() != lease.path());
            self.leases.push(Lent { connection: index, id, terms, lease });
        }
    }

    /// A plan was made and leaves now: holders of leases learn what has changed.
    pub fn note_planned(&mut self, index: usize, connection: &Connection) {
        if self.leases.is_empty() {
            return;
        }
        let (terms, before) = (connection.lease_terms(), self.leases.len());
        self.leases.retain(|lent| lent.connection != index || Some(lent.terms) == terms);
        self.done.leases_ended += (before - self.leases.len()) as u64;
        for lent in self.leases.iter_mut().filter(|lent| lent.connection == index) {
            if let Some(largest) = connection.largest_heard(lent.lease.path()) {
                lent.lease.note_heard(largest);
            }
        }
    }

    fn open(&mut self, batches: &mut [Begun]) {
        let mut order: Vec<usize> = (0..batches.len()).collect();
        if self.staging.together {
            shuffle(&mut self.rng, &mut order);
        }
        if let By::Workers(crew) = &self.staging.by {
            let take = |at: &usize| {
                let batch = &mut batches[*at];
                (*at, Task::Open(std::mem::take(&mut batch.job), std::mem::take(&mut batch.data)))
            };
            let tasks = order.iter().map(take).collect();
            order.clear();
            for (at, task) in crew.carry_out(tasks) {
                let Task::Open(job, data) = task else { unreachable!("a worker keeps the kind of its task") };
                (batches[at].job, batches[at].data) = (job, data);
                order.push(at);
            }
        } else {
            for at in &order {
                let Begun { job, data, .. } = &mut batches[*at];
                job.open(data);
            }
        }
        let early = |(place, at): (usize, &usize)| order[place + 1..].iter().any(|later| later < at);
        self.done.overtook += order.iter().enumerate().filter(|(place, at)| early((*place, at))).count() as u64;
    }

    /// Seals a plan.
    pub fn seal(&mut self, plan: &mut Plan, sealed: &mut Vec<u8>) {
        self.done.sealed += u64::from(!matches!(self.staging.by, By::Caller));
        if let By::Workers(crew) = &self.staging.by {
            let task = Task::Seal(std::mem::take(plan), std::mem::take(sealed));
            let Some((_, Task::Seal(theirs, bytes))) = crew.carry_out(vec![(0, task)]).pop() else {
                unreachable!("a worker keeps the kind of its task")
            };
            (*plan, *sealed) = (theirs, bytes);
        } else {
            seal(plan, sealed);
        }
        if self.staging.together {
            seal(plan, &mut self.again);
            assert_eq!(*sealed, self.again, "a plan gives the same bytes, whoever seals it and how often");
        }
    }

    // ── Halves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The receive half takes a batch, apart from the rest; gives it back if it cannot be apart.
    fn take_apart(
        &mut self,
        now: Instant,
        index: usize,
        connection: &mut Connection,
        addresses: Addresses,
        data: BytesMut,
        stride: usize,
    ) -> Result<(), BytesMut> {
        if let Entry::Vacant(place) = self.parts.entry(index) {
            let Some(part) = connection.part() else { return Err(data) };
            place.insert(part);
        }
        self.exchange(now, index, connection);
        let part = self.parts.get_mut(&index).expect("it is there");
        let Err(Strange(data)) = part.handle_datagrams(now, addresses, data, stride) else {
            self.done.apart += 1;
            self.exchange(now, index, connection);
            return Ok(());
        };
        self.done.strange += 1;
        self.rejoin(index, connection);
        Err(data)
    }

    /// Both halves hear what they have for each other, until that is nothing.
    pub fn exchange(&mut self, now: Instant, index: usize, connection: &mut Connection) {
        self.now = now;
        let Some(part) = self.parts.get_mut(&index) else { return };
        loop {
            let is_told = connection.poll_orders(&mut self.orders);
            if is_told {
                part.handle_orders(now, &mut self.orders);
            }
            if part.poll_findings(&mut self.findings) {
                connection.handle_findings(now, &mut self.findings);
            } else if !is_told {
                return;
            }
        }
    }

    /// A connection is whole again, if it was not.
    pub fn rejoin(&mut self, index: usize, connection: &mut Connection) {
        if let Some(part) = self.parts.remove(&index) {
            connection.rejoin(self.now, part);
        }
    }

    /// What a receive half that is apart has to say to the application.
    pub fn poll_event(&mut self, index: usize) -> Option<quic::Event> {
        self.parts.get_mut(&index)?.poll_event()
    }

    /// When arrivals are looked at, or the next batch comes back.
    pub fn timeout(&self) -> Option<Instant> {
        let back = self.begun.front().map(|begun| begun.at + self.staging.hold);
        [back, self.turn_at].into_iter().flatten().min()
    }
}

/// Whether the path between these ends, and of this ID if it is known, is there and validated.
fn is_settled(connection: &Connection, addresses: &Addresses, id: Option<PathId>) -> bool {
    let is_valid = |path: &PathStats| matches!(path.state, PathState::Active | PathState::Silent);
    let ends = |addresses: &Addresses| (addresses.remote, addresses.socket);
    let is_it = |path: &PathStats| id.is_none_or(|id| path.id == id) && ends(&path.addresses) == ends(addresses);
    connection.path_stats().iter().any(|path| is_it(path) && is_valid(path))
}

/// Any order, all equally likely.
pub fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

// ── Workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// What a worker does.
enum Task {
    Seal(Plan, Vec<u8>),
    Open(OpenJob, BytesMut),
}

impl Task {
    fn run(&mut self) {
        match self {
            Self::Seal(plan, sealed) => seal(plan, sealed),
            Self::Open(job, data) => job.open(data),
        }
    }
}

/// Threads that take tasks in turn. Whoever gives them some waits for all of them.
pub struct Crew {
    tasks: Vec<Sender<(usize, Task)>>,
    results: Receiver<(usize, Task)>,
    threads: Vec<JoinHandle<()>>,
    next: std::cell::Cell<usize>,
}

impl Crew {
    /// A crew of `count` threads.
    #[expect(clippy::disallowed_methods, reason = "real threads are what is put to the test")]
    pub fn start(count: usize) -> Rc<Self> {
        let (done, results) = channel();
        let (tasks, threads) = (0..count)
            .map(|_| {
                let (give, to_do) = channel::<(usize, Task)>();
                let done = done.clone();
                let thread = std::thread::spawn(move || {
                    while let Ok((at, mut task)) = to_do.recv() {
                        task.run();
                        if done.send((at, task)).is_err() {
                            return;
                        }
                    }
                });
                (give, thread)
            })
            .unzip();
        Rc::new(Self { tasks, results, threads, next: std::cell::Cell::new(0) })
    }

    /// All tasks, done, in the order in which they were finished.
    fn carry_out(&self, tasks: Vec<(usize, Task)>) -> Vec<(usize, Task)> {
        let count = tasks.len();
        for task in tasks {
            let worker = self.next.replace((self.next.get() + 1) % self.tasks.len());
            self.tasks[worker].send(task).expect("the workers live as long as the crew");
        }
        (0..count).map(|_| self.results.recv().expect("every task comes back")).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.tasks.clear();
        for thread in self.threads.drain(..) {
            let result = thread.join();
            assert!(result.is_ok() || std::thread::panicking(), "a worker has panicked");
        }
    }
}
