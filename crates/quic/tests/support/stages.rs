//! The executors of a host's stages: the single calls that do everything, or the same in steps,
//! inline, in any order, or on other threads. The datagrams sent must not depend on it.
//!
//! ```text
//!   arrivals of an instant ─▶ batches ─▶ begin_open ─▶ {open: here, shuffled, on workers} ─▶ handle_opened, in order begun
//!   poll_plan ─▶ {seal: here, twice, on workers} ─▶ handle_emitted
//! ```
//!
//! Execution is in lock-step: the results of one instant are available before the next input, so
//! time does not depend on threads. With [`Staging::detached`] the receive half is detached, and
//! the halves exchange their values after every input.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bytes::BytesMut;
use quic::{
    Addresses, BatchMeta, Connection, DetachedReceiveHalf, LeaseTerms, NeedsConnection, OpenJob, OpenLease, PathId,
    PathState, PathStats, Plan, ReceiveCommands, ReceiveReport, seal,
};
use units::{Duration, Ecn, Instant, Ratio, Rng};

/// Datagrams of a batch, at most.
const BATCH_MAX: usize = 16;

/// Bytes of a short header up to the end of the connection ID, which identifies the path from
/// outside.
const SHORT_ID_END: usize = 9;

/// The executor of opening and sealing.
#[derive(Clone)]
pub enum By {
    /// `handle_datagrams`, which does all three steps.
    Caller,
    /// The three steps, one after the other on this thread.
    Steps,
    /// The middle step, and sealing, on other threads.
    Workers(Rc<WorkerPool>),
    /// Leases open arriving datagrams at once; the results are absorbed later. Lease holders learn
    /// of changes only when a plan is made.
    Leases,
}

/// How a host's stages are executed.
#[derive(Clone)]
pub struct Staging {
    pub by: By,
    /// Datagrams that arrive at one instant from one address for one connection ID form a batch.
    pub gathers: bool,
    /// All batches of an instant are begun before the first is absorbed, and opened in any order.
    /// Plans are sealed twice, as if the first worker had failed. Not for `By::Caller`, whose
    /// single call cannot be split.
    pub together: bool,
    /// Arrivals are processed with this delay: those within it are one instant, as for a busy
    /// driver.
    pub turn: Duration,
    /// Batches return with this delay after they were begun.
    pub hold: Duration,
    /// Share of batches that never return.
    pub lose: Ratio,
    /// The receive half is detached whenever possible. For `By::Caller` only, since it opens for
    /// itself.
    pub detached: bool,
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
            detached: false,
        }
    }
}

impl Staging {
    /// Each datagram is processed as it arrives, by the connection itself.
    fn is_plain(&self) -> bool {
        matches!(self.by, By::Caller) && !self.gathers && self.turn.is_zero()
    }
}

/// Counts of what was done, so that tests can prove that it happened.
#[derive(Debug, Default, Clone, Copy)]
pub struct Done {
    /// Batches opened in steps, and those of several datagrams among them.
    pub opened: u64,
    pub opened_many: u64,
    /// Batches opened before one that was begun earlier.
    pub overtook: u64,
    /// Batches that were absorbed after a key update since they were begun.
    pub stale: u64,
    /// Batches of paths that were not open, not validated, or about to migrate.
    pub unsettled: u64,
    /// Leases that ended because their terms changed.
    pub leases_ended: u64,
    pub lost: u64,
    /// Plans sealed twice or elsewhere.
    pub sealed: u64,
    /// Batches that a detached receive half processed, and those that it returned because they need
    /// the connection.
    pub detached_batches: u64,
    pub unrecognised: u64,
}

impl Done {
    /// The sum of both.
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
            detached_batches: self.detached_batches + other.detached_batches,
            unrecognised: self.unrecognised + other.unrecognised,
        }
    }
}

/// Datagrams that arrived together.
pub struct Arrival {
    pub addresses: Addresses,
    pub data: BytesMut,
    pub meta: BatchMeta,
}

impl Arrival {
    /// One datagram.
    pub fn new(datagram: &[u8], ecn: Option<Ecn>, addresses: Addresses) -> Self {
        Self { addresses, data: datagram.into(), meta: BatchMeta { stride: datagram.len().max(1), ecn } }
    }

    /// Appends a datagram if the kernel would (GRO): same flow, same size, or shorter and then the
    /// last.
    fn extend(&mut self, next: &Self) -> bool {
        let is_short = |data: &[u8]| data.len() > SHORT_ID_END && data[0] & 0x80 == 0;
        let stride = self.meta.stride;
        let fits = self.addresses == next.addresses
            && self.meta.ecn == next.meta.ecn
            && is_short(&self.data)
            && is_short(&next.data)
            && self.data[1..SHORT_ID_END] == next.data[1..SHORT_ID_END]
            && self.data.len().is_multiple_of(stride)
            && self.data.len() / stride < BATCH_MAX
            && next.data.len() <= stride;
        if fits {
            self.data.extend_from_slice(&next.data);
        }
        fits
    }
}

/// A batch that was begun.
struct PendingBatch {
    at: Instant,
    connection: usize,
    key_updates: u64,
    job: OpenJob,
    data: BytesMut,
    /// Not opened, since there is no lease: its addresses, size and codepoint.
    raw: Option<(Addresses, BatchMeta)>,
}

/// A lease with its connection, its connection ID and its terms.
struct HeldLease {
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
    /// When the arrivals are processed.
    turn_at: Option<Instant>,
    /// PendingBatch and not absorbed, in this order.
    begun: VecDeque<PendingBatch>,
    again: Vec<u8>,
    /// Detached receive halves, by connection.
    parts: BTreeMap<usize, DetachedReceiveHalf>,
    report: ReceiveReport,
    orders: ReceiveCommands,
    /// The last time anything happened.
    now: Instant,
    leases: Vec<HeldLease>,
    pub done: Done,
}

impl Stages {
    pub fn new(staging: Staging, rng: Rng) -> Self {
        assert!(!staging.together || !matches!(staging.by, By::Caller), "a single call cannot be split");
        Self {
            staging,
            rng,
            arrivals: Vec::new(),
            turn_at: None,
            begun: VecDeque::new(),
            again: Vec::new(),
            parts: BTreeMap::new(),
            report: ReceiveReport::default(),
            orders: ReceiveCommands::default(),
            now: Instant::ZERO,
            leases: Vec::new(),
            done: Done::default(),
        }
    }

    /// Keeps a datagram until all of its instant have arrived; returns it if arrivals are not
    /// gathered.
    pub fn keep(&mut self, now: Instant, next: Arrival) -> Option<Arrival> {
        if self.staging.is_plain() {
            return Some(next);
        }
        self.turn_at.get_or_insert(now + self.staging.turn);
        let is_part = self.staging.gathers && self.arrivals.last_mut().is_some_and(|last| last.extend(&next));
        if !is_part {
            self.arrivals.push(next);
        }
        None
    }

    /// The arrivals, once they are due.
    pub fn take_arrivals(&mut self, now: Instant) -> Vec<Arrival> {
        if self.turn_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.turn_at = None;
        std::mem::take(&mut self.arrivals)
    }

    /// Whether begun batches must be absorbed before a batch from these addresses is begun.
    ///
    /// Beginning a batch counts its bytes, for open paths only. Bytes of a path that is not open
    /// yet, or that migrates, earn less credit before validation (RFC 9000, section 8.1), or none,
    /// if the batch that creates the path is begun and not absorbed. Such batches are excluded:
    /// they are processed one by one.
    pub fn is_next_alone(&self, connection: &Connection, addresses: &Addresses) -> bool {
        self.staging.hold.is_zero() && !self.begun.is_empty() && !is_settled(connection, addresses, None)
    }

    /// Begins a batch that arrived for a connection, or processes all of it. Returns true if the
    /// begun batches must be [absorbed](Self::absorb) before the next is begun.
    pub fn begin(&mut self, now: Instant, index: usize, connection: &mut Connection, arrival: Arrival) -> bool {
        let Arrival { addresses, mut data, meta } = arrival;
        if self.staging.detached {
            match self.absorb_detached(now, index, connection, addresses, data, meta) {
                Ok(()) => return false,
                Err(unrecognised) => data = unrecognised,
            }
        }
        let mut job = OpenJob::default();
        if matches!(self.staging.by, By::Leases) {
            let id = short_id(&data);
            let held = self.leases.iter_mut().find(|held| held.connection == index && Some(held.id) == id);
            let is_opened = held.map(|held| held.lease.open(addresses, meta, &mut data, &mut job)).is_some();
            self.done.opened += u64::from(is_opened);
            self.done.opened_many += u64::from(is_opened && data.len() > meta.stride);
            let key_updates = connection.stats().send.key_updates;
            let raw = (!is_opened).then_some((addresses, meta));
            self.begun.push_back(PendingBatch { at: now, connection: index, key_updates, job, data, raw });
            return self.staging.hold.is_zero();
        }
        let is_begun =
            !matches!(self.staging.by, By::Caller) && connection.begin_open(now, addresses, &data, meta, &mut job);
        if !is_begun {
            connection.handle_datagrams(now, addresses, data, meta);
            return false;
        }
        self.done.opened += 1;
        self.done.opened_many += u64::from(data.len() > meta.stride);
        let key_updates = connection.stats().send.key_updates;
        let is_settled = job.path().is_none_or(|id| is_settled(connection, &addresses, Some(id)));
        self.done.unsettled += u64::from(!is_settled);
        self.begun.push_back(PendingBatch { at: now, connection: index, key_updates, job, data, raw: None });
        self.staging.hold.is_zero() && (!self.staging.together || !is_settled)
    }

    /// Opens the begun batches that are due, and absorbs them in the order in which they were
    /// begun.
    pub fn absorb(&mut self, now: Instant, connections: &mut [Option<Connection>]) {
        let due = self.begun.iter().take_while(|begun| begun.at + self.staging.hold <= now).count();
        if due == 0 {
            return;
        }
        let mut batches: Vec<PendingBatch> = self.begun.drain(..due).collect();
        let is_leased = matches!(self.staging.by, By::Leases);
        if !is_leased {
            self.open(&mut batches);
        }
        for PendingBatch { connection: index, key_updates, mut job, data, raw, .. } in batches {
            let Some(connection) = &mut connections[index] else { continue };
            if self.rng.chance(self.staging.lose) {
                self.done.lost += 1;
                continue;
            }
            self.done.stale += u64::from(connection.stats().send.key_updates != key_updates);
            if let Some((addresses, meta)) = raw {
                self.grant_lease(index, connection, &data);
                connection.handle_datagrams(now, addresses, data, meta);
            } else if is_leased {
                connection.handle_leased(now, &mut job, &data.freeze());
            } else {
                connection.handle_opened(now, &mut job, &data.freeze());
            }
        }
    }

    /// Grants the leases that open later datagrams, one for each path.
    fn grant_lease(&mut self, index: usize, connection: &mut Connection, data: &[u8]) {
        let Some(id) = short_id(data) else { return };
        if self.leases.iter().any(|held| held.connection == index && held.id == id) {
            return;
        }
        if let (Some(terms), Some(lease)) = (connection.lease_terms(), connection.grant_lease(data)) {
            self.leases.retain(|held| held.connection != index || held.lease.path() != lease.path());
            self.leases.push(HeldLease { connection: index, id, terms, lease });
        }
    }

    /// A plan was made and leaves now: lease holders are notified of changes.
    pub fn note_planned(&mut self, index: usize, connection: &Connection) {
        if self.leases.is_empty() {
            return;
        }
        let (terms, before) = (connection.lease_terms(), self.leases.len());
        self.leases.retain(|held| held.connection != index || Some(held.terms) == terms);
        self.done.leases_ended += (before - self.leases.len()) as u64;
        for held in self.leases.iter_mut().filter(|held| held.connection == index) {
            if let Some(largest) = connection.largest_received(held.lease.path()) {
                held.lease.note_received(largest);
            }
        }
    }

    fn open(&mut self, batches: &mut [PendingBatch]) {
        let mut order: Vec<usize> = (0..batches.len()).collect();
        if self.staging.together {
            shuffle(&mut self.rng, &mut order);
        }
        if let By::Workers(pool) = &self.staging.by {
            let take = |at: &usize| {
                let batch = &mut batches[*at];
                (*at, Task::Open(std::mem::take(&mut batch.job), std::mem::take(&mut batch.data)))
            };
            let tasks = order.iter().map(take).collect();
            order.clear();
            for (at, task) in pool.execute(tasks) {
                let Task::Open(job, data) = task else { unreachable!("a worker keeps the kind of its task") };
                (batches[at].job, batches[at].data) = (job, data);
                order.push(at);
            }
        } else {
            for at in &order {
                let PendingBatch { job, data, .. } = &mut batches[*at];
                job.open(data);
            }
        }
        let early = |(place, at): (usize, &usize)| order[place + 1..].iter().any(|later| later < at);
        self.done.overtook += order.iter().enumerate().filter(|(place, at)| early((*place, at))).count() as u64;
    }

    /// Seals a plan.
    pub fn seal(&mut self, plan: &mut Plan, sealed: &mut Vec<u8>) {
        self.done.sealed += u64::from(!matches!(self.staging.by, By::Caller));
        if let By::Workers(pool) = &self.staging.by {
            let task = Task::Seal(std::mem::take(plan), std::mem::take(sealed));
            let Some((_, Task::Seal(theirs, bytes))) = pool.execute(vec![(0, task)]).pop() else {
                unreachable!("a worker keeps the kind of its task")
            };
            (*plan, *sealed) = (theirs, bytes);
        } else {
            seal(plan, sealed);
        }
        if self.staging.together {
            seal(plan, &mut self.again);
            assert_eq!(*sealed, self.again, "a plan gives the same bytes however often and wherever it is sealed");
        }
    }

    // ── Halves ───────────────────────────────────────────────────────────────────────────────────

    /// The detached receive half processes a batch; the batch is returned if the half cannot be
    /// detached.
    fn absorb_detached(
        &mut self,
        now: Instant,
        index: usize,
        connection: &mut Connection,
        addresses: Addresses,
        data: BytesMut,
        meta: BatchMeta,
    ) -> Result<(), BytesMut> {
        if let Entry::Vacant(vacant) = self.parts.entry(index) {
            let Some(part) = connection.detach() else { return Err(data) };
            vacant.insert(part);
        }
        self.exchange(now, index, connection);
        let part = self.parts.get_mut(&index).expect("it was just inserted");
        let Err(NeedsConnection(data)) = part.handle_datagrams(now, addresses, data, meta) else {
            self.done.detached_batches += 1;
            self.exchange(now, index, connection);
            return Ok(());
        };
        self.done.unrecognised += 1;
        self.attach(index, connection);
        Err(data)
    }

    /// Exchanges the values that the halves have for each other, until there are none.
    pub fn exchange(&mut self, now: Instant, index: usize, connection: &mut Connection) {
        self.now = now;
        let Some(part) = self.parts.get_mut(&index) else { return };
        loop {
            let is_told = connection.poll_commands(&mut self.orders);
            if is_told {
                part.handle_commands(now, &mut self.orders);
            }
            if part.poll_report(&mut self.report) {
                connection.handle_report(now, &mut self.report);
            } else if !is_told {
                return;
            }
        }
    }

    /// Attaches the receive half of a connection, if it is detached.
    pub fn attach(&mut self, index: usize, connection: &mut Connection) {
        if let Some(part) = self.parts.remove(&index) {
            connection.attach(self.now, part);
        }
    }

    /// The next application event of a detached receive half.
    pub fn poll_event(&mut self, index: usize) -> Option<quic::Event> {
        self.parts.get_mut(&index)?.poll_event()
    }

    /// When arrivals are due, or the next batch returns.
    pub fn timeout(&self) -> Option<Instant> {
        let back = self.begun.front().map(|begun| begun.at + self.staging.hold);
        [back, self.turn_at].into_iter().flatten().min()
    }
}

/// Whether the path between these ends, with this ID if it is known, is open and validated.
fn is_settled(connection: &Connection, addresses: &Addresses, id: Option<PathId>) -> bool {
    let is_valid = |path: &PathStats| matches!(path.state, PathState::Active | PathState::Silent);
    let ends = |addresses: &Addresses| (addresses.remote, addresses.socket);
    let is_it = |path: &PathStats| id.is_none_or(|id| path.id == id) && ends(&path.addresses) == ends(addresses);
    connection.path_stats().iter().any(|path| is_it(path) && is_valid(path))
}

/// Shuffles; all orders are equally likely.
pub fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

// ── Workers ──────────────────────────────────────────────────────────────────────────────────────

/// The work of a worker.
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

/// Threads that take tasks in turn. The caller of `execute` waits for all of them.
pub struct WorkerPool {
    tasks: Vec<Sender<(usize, Task)>>,
    results: Receiver<(usize, Task)>,
    threads: Vec<JoinHandle<()>>,
    next: std::cell::Cell<usize>,
}

impl WorkerPool {
    /// Starts a pool of `count` threads.
    #[expect(clippy::disallowed_methods, reason = "the test needs real threads")]
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

    /// Executes all tasks; returns them in order of completion.
    fn execute(&self, tasks: Vec<(usize, Task)>) -> Vec<(usize, Task)> {
        let count = tasks.len();
        for task in tasks {
            let worker = self.next.replace((self.next.get() + 1) % self.tasks.len());
            self.tasks[worker].send(task).expect("the workers live as long as the pool");
        }
        (0..count).map(|_| self.results.recv().expect("every task comes back")).collect()
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.tasks.clear();
        for thread in self.threads.drain(..) {
            let result = thread.join();
            assert!(result.is_ok() || std::thread::panicking(), "a worker has panicked");
        }
    }
}
