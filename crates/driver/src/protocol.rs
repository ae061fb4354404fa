//! The traits that a transport protocol implements so that a driver can run its connections.
//!
//! ```text
//!   Protocol     one per driver: routes received packets, begins connections, answers other packets
//!   Connection   one per connection: its serial part and the state of its handles
//!   Plan         packets to be sent; sealing it needs no connection, so any processor can do it
//!   OpenJob      opens a batch; this needs no connection either
//!   Job          work on absorbed data, such as a cipher above a byte stream; any processor can do it
//!   Batch        packets received together from one socket
//!   Sealed       encrypted packets that are sent together through one socket
//! ```
//!
//! Batches and sealed packets are types of the protocol: bytes for real packets, or lengths if a
//! simulation needs no bytes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use units::Instant;

use crate::in_flight::InFlightBatch;
use crate::shared::{Application, Shared};
use crate::socket::SendError;

/// Identifies a connection of one driver. A key is reused after its connection is removed. Code
/// that keeps a key across turns also keeps the connection's cell, to detect reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub u32);

/// The destination of the packets at the front of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// This connection.
    Known(ConnectionKey),
    /// The packets may begin a connection: see [`Protocol::accept`].
    Begins,
    /// The packets belong to no connection and are answered: see [`Protocol::reply`].
    Reply,
    /// No connection of this driver. Another driver of the endpoint may have it: see
    /// [`Protocol::shard_of`].
    Unknown,
}

/// Why a driver ends a connection or refuses to begin one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The endpoint was closed.
    EndpointClosed,
    /// The processor that ran the connection or its last path has failed.
    ProcessorGone,
    /// The handshake took too long.
    HandshakeTimedOut {
        /// The last error that the system reported for a batch, if any.
        last_send_error: Option<String>,
    },
    /// The limit of connections is reached.
    TooMany,
    /// No socket has the address family of the remote address.
    NoSocket,
}

/// A transport protocol: its state for one driver that belongs to no connection, such as the table
/// of routes.
pub trait Protocol: Sized {
    /// A connection with the state of its handles.
    type Connection: Connection<Self>;
    /// The types that handles and drivers exchange.
    type Application: Application;
    /// Packets received together from one socket.
    type Batch: Batch;
    /// Packets to be sent.
    type Plan: Plan<Sealed = Self::Sealed>;
    /// Encrypted packets that are sent together through one socket.
    type Sealed: Default + Clone;
    /// A job that opens a batch.
    type OpenJob: OpenJob<Batch = Self::Batch>;
    /// Work on data that the serial part has absorbed. [`NoJobs`] if there is none.
    type Job: Job;
    /// A worker's leases, with which it opens batches where they are received.
    type Leases: LeaseCache<Self>;
    /// The receive half of a connection, with its delivery to the application, on another
    /// processor.
    type ReceiveHalf: ReceiveHalf<Self>;
    /// Sent from a detached receive half to its connection.
    type HalfReport: HalfReport<Update = Self::HalfUpdate>;
    /// Sent from a connection to its detached receive half.
    type HalfUpdate: HalfUpdate<Report = Self::HalfReport>;
    /// The part of a packet that identifies its connection without a lookup.
    type RouteId: Ord + Clone;

    /// The destination of the front of `batch`, and how many bytes from the front have it. Never
    /// zero unless the batch is empty.
    fn route(&self, batch: &Self::Batch) -> (usize, Route);

    /// The route ID of the packets at the front of a batch, and how many bytes from the front have
    /// it. `None` if only [`route`](Self::route) can determine the route.
    fn route_id(batch: &Self::Batch) -> Option<(usize, Self::RouteId)>;

    /// Whether the first packet of a batch is still routed to this connection. Only asked of
    /// batches that were opened with a lease.
    fn leads_to(&self, batch: &Self::Batch, key: ConnectionKey) -> bool {
        self.route(batch).1 == Route::Known(key)
    }

    /// The driver, of `count` drivers of one endpoint, for a batch that is
    /// [unknown](Route::Unknown) to this one.
    fn shard_of(&self, batch: &Self::Batch, count: usize) -> Option<usize>;

    /// Begins a connection for the application, from socket `socket`. `None` if the protocol
    /// refuses; it has then closed the cell.
    fn connect(
        &mut self,
        now: Instant,
        request: <Self::Application as Application>::Connect,
        cell: &Arc<CellOf<Self>>,
        socket: usize,
    ) -> Option<Self::Connection>;

    /// Takes a batch that may begin a connection of a peer. If `may_be_foreign`, another driver may
    /// have its connection, and a batch that begins none here is returned.
    fn accept(
        &mut self,
        now: Instant,
        shared: &Arc<Shared<Self::Application>>,
        socket: usize,
        batch: Self::Batch,
        may_be_foreign: bool,
    ) -> Begun<Self>;

    /// Writes the answer to a batch routed as [`Route::Reply`] that was received from socket
    /// `socket`. False if there is none, or none yet: see [`poll_reply`](Self::poll_reply).
    fn reply(&mut self, now: Instant, socket: usize, batch: &Self::Batch, out: &mut Self::Sealed) -> bool;

    /// Applies changes of a connection's routes. Called after each call that may change them.
    fn update_routes(&mut self, key: ConnectionKey, connection: &mut Self::Connection);

    /// Removes all routes to a connection that is removed.
    fn forget(&mut self, key: ConnectionKey);

    /// The next packet of the protocol itself that is due, and its socket. Called after
    /// [`handle_timeout`](Self::handle_timeout) until there is none.
    fn poll_reply(&mut self, now: Instant, out: &mut Self::Sealed) -> Option<usize> {
        let _ = (now, out);
        None
    }

    /// The next timeout of the protocol itself.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles a timeout of the protocol itself. Early calls have no effect.
    fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }
}

/// The state that the handles of a connection of `P` share with its driver.
pub type CellOf<P> = <<P as Protocol>::Application as Application>::Cell;

/// The result of [`Protocol::accept`].
pub enum Begun<P: Protocol> {
    /// A connection, and the cell of its handles.
    Connection(P::Connection, Arc<CellOf<P>>),
    /// No connection yet. This answer is sent, and another packet of the peer may begin one.
    Reply(P::Sealed),
    /// The batch begins no connection here and may belong to another driver.
    Foreign(P::Batch),
    /// The batch begins no connection.
    Nothing,
}

/// The state that the handles of a connection share with the driver.
pub trait Cell {
    /// Where the connection is. Set once, when the driver adds it to its table.
    fn place(&self) -> &std::sync::OnceLock<Place>;

    /// The peer's address. Its address family determines the socket that a connection begins at.
    fn remote(&self) -> SocketAddr;

    /// Closes the cell because the connection does not begin.
    fn refuse(&self, reason: EndReason);
}

/// Where a connection is.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its key in its driver.
    pub key: ConnectionKey,
    /// Its local address, if it is known.
    pub local: SocketAddr,
}

/// The result of [`Connection::serve`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// The new priority of the connection among those of its driver, if it was changed.
    pub priority: Option<i32>,
    /// The next data to be sent is interactive: small and not background. It is sent before the
    /// driver receives.
    pub is_interactive: bool,
}

/// The result of [`Connection::process_events`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventSummary {
    /// The handshake is complete.
    pub is_established: bool,
    /// The connection is closed.
    pub is_over: bool,
}

/// One connection in a driver: the serial part of the protocol and the state of its handles.
///
/// In a visit the driver calls [`Protocol::update_routes`], runs [jobs](Self::poll_job), [processes
/// events](Self::process_events), makes and sends [plans](Self::poll_plan), and then updates routes
/// and processes events again, because planning may have changed them. Last it reads the
/// [timeout](Self::poll_timeout). A visit follows every call after which there may be something to
/// do. Time never goes backwards.
pub trait Connection<P: Protocol> {
    /// Identifies the content of a plan, for the report that it was sent or not.
    type Receipt: Clone + fmt::Debug;

    // ── The application ──────────────────────────────────────────────────────────────────────────

    /// Processes the requests of the handles.
    fn serve(&mut self, now: Instant) -> Served;

    /// Passes events to the handles, and returns the changes of the state. `clock` is read for each
    /// event.
    fn process_events(&mut self, clock: &dyn Fn() -> Instant) -> EventSummary;

    /// Applies limits for data that the application wrote since the last [`serve`](Self::serve).
    /// Called after [`process_events`](Self::process_events) and before plans are made.
    fn apply_limits(&mut self) {}

    // ── Receiving ────────────────────────────────────────────────────────────────────────────────

    /// Opens and processes a batch received from socket `socket`.
    fn absorb(&mut self, now: Instant, socket: usize, batch: P::Batch);

    /// Prepares a job that opens a batch on any processor. [`absorb_opened`](Self::absorb_opened)
    /// follows, in order for each [path](OpenJob::path). False if the batch must go to
    /// [`absorb`](Self::absorb).
    fn begin_open(&mut self, now: Instant, socket: usize, batch: &P::Batch, job: &mut P::OpenJob) -> bool;

    /// Processes a batch that was opened by a job.
    fn absorb_opened(&mut self, now: Instant, job: &mut P::OpenJob, batch: P::Batch);

    // ── Jobs on absorbed data ────────────────────────────────────────────────────────────────────

    /// The next job on absorbed data. Called at the beginning of each visit.
    /// [`finish_job`](Self::finish_job) follows for each, in the same order. The connection bounds
    /// the number of jobs in flight. A detached receive half runs its own jobs, so the connection
    /// [detaches](Self::detach) it only when no job is in flight.
    fn poll_job(&mut self) -> Option<P::Job> {
        None
    }

    /// Processes the output of a job. `output` can be reused afterwards. The connection is visited
    /// next.
    fn finish_job(&mut self, now: Instant, job: &P::Job, output: &mut <P::Job as Job>::Output) {
        let _ = (now, job, output);
    }

    // ── Sending ──────────────────────────────────────────────────────────────────────────────────

    /// Fills `plan` with packets that may be sent now. False if there are none. `room` is the
    /// number of packets that a socket takes at once, zero if it is full.
    fn poll_plan(&mut self, now: Instant, room: &dyn Fn(usize) -> usize, plan: &mut P::Plan) -> bool;

    /// Whether the remaining data does not fill a plan of this many packets.
    fn has_only_a_tail(&mut self, packets: usize) -> bool;

    /// Identifies the content of `plan`, for later reports.
    fn receipt(plan: &P::Plan) -> Self::Receipt;

    /// A plan is being sent. Reported before the system call, so that no answer overtakes the
    /// report.
    fn handle_emitted(&mut self, now: Instant, receipt: &Self::Receipt);

    /// A plan was not sent and will not be: its content is planned again. True if this may happen
    /// at once, false if the connection must wait.
    fn handle_not_emitted(&mut self, now: Instant, receipt: &Self::Receipt, error: &SendError) -> bool;

    /// A plan was not sent because its worker has failed: its content is planned again.
    fn handle_unsent(&mut self, receipt: &Self::Receipt) {
        let _ = receipt;
    }

    // ── Timeouts and closing ─────────────────────────────────────────────────────────────────────

    /// The next timeout.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles timeouts. Early calls have no effect.
    fn handle_timeout(&mut self, now: Instant);

    /// Closes the connection for a reason of the driver, with a close packet to the peer.
    fn close(&mut self, now: Instant, reason: EndReason);

    /// Whether the connection has ended and the driver may remove it.
    fn is_over(&self) -> bool;

    /// Ends the connection without waiting for packets, and its handles, unless they have ended.
    /// `reason` is reported unless there is an earlier one.
    fn end(&mut self, now: Instant, reason: EndReason);

    /// Ends the handles after a panic, without using the protocol, which may have panicked.
    fn abandon(&mut self, reason: EndReason);

    /// Some sockets are no longer served by their workers. Other paths carry the data that was in
    /// flight on theirs; a connection without another path ends if its worker has ended. True if
    /// the connection uses such a socket and must be visited.
    fn handle_sockets_lost(&mut self, now: Instant, lost: &SocketsLost<'_>) -> bool {
        let _ = (now, lost);
        false
    }

    // ── A receive half on another processor ──────────────────────────────────────────────────────

    /// A batch of this length was received. Long batches are a reason to detach the receive half.
    fn note_arrived(&mut self, len_bytes: usize) {
        let _ = len_bytes;
    }

    /// Whether the receive half should be detached now. True once for each request.
    fn take_detach_request(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// Detaches the receive half. `None` if that is not possible now.
    fn detach(&mut self) -> Option<P::ReceiveHalf> {
        None
    }

    /// Whether the receive half is on another processor.
    fn is_detached(&self) -> bool {
        false
    }

    /// Whether the receive half is on another processor and was not asked to return.
    fn has_detached_half(&self) -> bool {
        false
    }

    /// Whether `half` belongs to this connection.
    fn owns(&self, half: &P::ReceiveHalf) -> bool {
        let _ = half;
        false
    }

    /// Attaches the receive half again. Returns the batches that waited for it, with their sockets.
    fn attach(&mut self, now: Instant, half: P::ReceiveHalf) -> Vec<(usize, P::Batch)> {
        let _ = (now, half);
        Vec::new()
    }

    /// Processes a report of the detached receive half. `report` can be reused afterwards.
    fn handle_report(&mut self, now: Instant, report: &mut P::HalfReport) {
        let _ = (now, report);
    }

    /// Fills `update` for the detached receive half. Returns whether there is an update, and
    /// whether the half must return; the latter is true once.
    fn poll_update(&mut self, update: &mut P::HalfUpdate) -> (bool, bool) {
        let _ = update;
        (false, false)
    }

    /// The detached receive half has received nothing for a while.
    fn note_quiet(&mut self) {}

    /// Keeps a batch that concerns both halves until the detached receive half has returned.
    fn defer(&mut self, socket: usize, batch: P::Batch) {
        let _ = (socket, batch);
    }

    /// Ends the connection because its detached receive half is lost. Does nothing if the receive
    /// half is attached.
    fn lose_receive_half(&mut self, now: Instant, reason: EndReason) {
        let _ = (now, reason);
    }

    /// Processes a batch that a worker opened with a lease.
    fn absorb_leased(&mut self, now: Instant, job: &mut P::OpenJob, batch: P::Batch) {
        let _ = (now, job, batch);
    }

    /// Grants a lease to a worker from which an encrypted batch of this connection was received.
    /// `None` if the worker has one already, or the connection cannot lease.
    fn grant_lease(
        &mut self,
        key: ConnectionKey,
        worker: usize,
        batch: &P::Batch,
    ) -> Option<<P::Leases as LeaseCache<P>>::Lease> {
        let _ = (key, worker, batch);
        None
    }

    /// The local address, if the protocol knows it.
    fn local_ip(&self) -> Option<std::net::IpAddr>;

    /// Whether the peer began the connection.
    fn is_accepted(&self) -> bool;
}

/// The leases of a worker.
pub trait LeaseCache<P: Protocol>: Default {
    /// Opens batches of one path of a connection.
    type Lease;

    /// Adds a lease.
    fn insert(&mut self, lease: Self::Lease);

    /// Drops expired leases.
    fn sweep(&mut self);

    /// Opens a batch received from socket `socket`, if a lease covers all of it.
    fn open(
        &mut self,
        socket: usize,
        batch: &mut P::Batch,
        spare: impl FnOnce() -> Box<P::OpenJob>,
    ) -> Option<InFlightBatch<P, Box<P::OpenJob>>>;
}

/// For protocols without leases.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLeases;

impl<P: Protocol> LeaseCache<P> for NoLeases {
    type Lease = std::convert::Infallible;

    fn insert(&mut self, lease: Self::Lease) {
        match lease {}
    }

    fn sweep(&mut self) {}

    fn open(
        &mut self,
        _socket: usize,
        _batch: &mut P::Batch,
        _spare: impl FnOnce() -> Box<P::OpenJob>,
    ) -> Option<InFlightBatch<P, Box<P::OpenJob>>> {
        None
    }
}

/// A detached receive half.
pub trait ReceiveHalf<P: Protocol> {
    /// The cell of its connection. `None` once it was attached again.
    fn cell(&self) -> Option<Arc<CellOf<P>>>;

    /// Calls `each` with every route ID of its connection.
    fn for_each_route(&self, each: &mut dyn FnMut(P::RouteId));

    /// Processes a batch received from socket `socket` and delivers its data to the application.
    ///
    /// # Errors
    /// Returns the batch if it concerns more than the receive half.
    fn absorb(&mut self, now: Instant, socket: usize, batch: P::Batch) -> Result<(), P::Batch>;

    /// Processes an update of its connection. True if its routes may have changed.
    fn handle_update(&mut self, now: Instant, update: P::HalfUpdate) -> bool;

    /// Wakes the readers of delivered data.
    fn wake_readers(&mut self);

    /// Whether there may be something to report.
    fn has_findings(&self) -> bool;

    /// Whether there is something that must be reported at once.
    fn is_urgent(&self) -> bool;

    /// The number of unreported values.
    fn unreported(&self) -> usize;

    /// The next report, if there is something to report.
    fn report(&mut self) -> Option<P::HalfReport>;
}

/// Sent from a connection to its detached receive half.
pub trait HalfUpdate: Default {
    /// The type of the reports.
    type Report;

    /// Returns a processed report, to be reused. The default frees it.
    fn set_spare(&mut self, report: Self::Report) {
        drop(report);
    }
}

/// Sent from a detached receive half to its connection.
pub trait HalfReport {
    /// The type of the updates.
    type Update;

    /// Takes a processed update, to be reused. By default there is none.
    fn take_spare(&mut self) -> Option<Self::Update> {
        None
    }
}

/// Which sockets are lost because a worker does not respond.
pub struct SocketsLost<'a> {
    /// Whether the worker of this socket does not respond.
    pub is_lost: &'a dyn Fn(usize) -> bool,
    /// Whether this socket can be used.
    pub is_served: &'a dyn Fn(usize) -> bool,
    /// The worker has ended. Otherwise it hangs and may recover.
    pub is_gone: bool,
}

/// Packets to be sent. Shares no state with the connection.
pub trait Plan: Default {
    /// Encrypted packets.
    type Sealed;

    /// The socket to send it through. `None` if it is empty.
    fn socket(&self) -> Option<usize>;

    /// The ID of its path; zero if the protocol has single-path connections.
    fn path(&self) -> u64 {
        0
    }

    /// The number of its packets.
    fn packet_count(&self) -> usize;

    /// Whether it is full for a socket that takes this many packets at a time.
    fn is_full(&self, packets_max: usize) -> bool;

    /// Whether all of its data has background class.
    fn is_background(&self) -> bool {
        false
    }

    /// Builds and encrypts its packets. Deterministic: the same plan gives the same packets on any
    /// processor, whatever `out` holds before.
    fn seal(&self, out: &mut Self::Sealed);

    /// Drops its references and keeps its memory, to be reused.
    fn release(&mut self) {}

    /// As [`seal`](Self::seal), for a plan that is not used afterwards.
    fn seal_once(&mut self, out: &mut Self::Sealed) {
        self.seal(out);
    }
}

/// A job that opens a batch. Shares no state with the connection.
pub trait OpenJob: Default {
    /// Packets received together.
    type Batch;

    /// The ID of the batch's path; zero if the protocol has single-path connections.
    fn path(&self) -> u64 {
        0
    }

    /// Opens `batch` in place. Deterministic: the same job gives the same result on any processor.
    fn open(&mut self, batch: &mut Self::Batch);

    /// Drops its references and keeps its memory, to be reused.
    fn clear(&mut self) {}
}

/// Work on data that the serial part of a connection has absorbed. Shares no state with the
/// connection.
///
/// The peer may have an acknowledgement of the data, so a job must not be lost. If a worker fails,
/// the driver runs its jobs again.
pub trait Job {
    /// The result.
    type Output: Default;

    /// The number of bytes that it processes.
    fn len_bytes(&self) -> usize;

    /// Runs it. Deterministic: the same job gives the same output on any processor, whatever `out`
    /// holds before.
    fn run(&self, out: &mut Self::Output);
}

/// For protocols without jobs.
#[derive(Debug, Clone, Copy)]
pub enum NoJobs {}

impl Job for NoJobs {
    type Output = ();

    fn len_bytes(&self) -> usize {
        match *self {}
    }

    fn run(&self, _out: &mut ()) {
        match *self {}
    }
}

/// Packets received together from one socket.
pub trait Batch: Sized {
    /// The length of all packets in bytes.
    fn len_bytes(&self) -> usize;

    /// The number of packets.
    fn packet_count(&self) -> usize;

    /// Splits this many bytes off the front.
    #[must_use]
    fn split_front(&mut self, len_bytes: usize) -> Self;
}
