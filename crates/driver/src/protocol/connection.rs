//! [`Connection`]: one connection of a protocol, as a driver runs it.

use std::fmt;

use units::Instant;

use super::Protocol;
use super::cell::{ConnectionKey, EndReason};
use super::job::Job;
use super::offloaded::LeaseCache;
use crate::send_error::SendError;

/// The result of [`Connection::serve`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// The new priority of the connection among those of its driver, if it was changed.
    pub priority: Option<i32>,
    /// Whether the next data to be sent is interactive: small and not background. It is sent before
    /// the driver receives.
    pub is_interactive: bool,
}

/// The result of [`Connection::process_events`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventSummary {
    /// Whether the handshake is complete.
    pub is_established: bool,
    /// Whether the application may have the connection, if a peer began it. Reported once: at the
    /// end of the handshake, or before.
    pub is_available: bool,
    /// Whether the connection is closed.
    pub is_over: bool,
}

/// One connection in a driver: the serial part of the protocol and the state of its handles.
///
/// In a visit the driver calls [`Protocol::update_routes`], runs [jobs](Self::poll_job), [processes
/// events](Self::process_events), makes and sends [plans](Self::poll_plan), and then updates routes
/// and processes events again, because planning may have changed them. Finally it reads the
/// [timeout](Self::poll_timeout). A visit follows every call after which there may be something to
/// do. Time never goes backwards.
pub trait Connection<P: Protocol> {
    /// Identifier of the content of a plan, for the report that it was sent or not.
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
    /// follows, in order for each [path](super::OpenJob::path). Returns false if the batch must go
    /// to [`absorb`](Self::absorb).
    fn begin_open(&mut self, now: Instant, socket: usize, batch: &P::Batch, job: &mut P::OpenJob) -> bool;

    /// Processes a batch that was opened by a job.
    fn absorb_opened(&mut self, now: Instant, job: &mut P::OpenJob, batch: P::Batch);

    // ── Jobs on absorbed data ────────────────────────────────────────────────────────────────────

    /// Returns the next job on absorbed data. Called at the beginning of each visit.
    /// [`finish_job`](Self::finish_job) follows for each, in the same order. The connection bounds
    /// the number of jobs in flight. A detached receive half runs its own jobs, so the connection
    /// [detaches](Self::detach) it only when no job is in flight.
    fn poll_job(&mut self) -> Option<P::Job> {
        None
    }

    /// Processes the output of a job. `output` can be reused afterwards. A visit of the connection
    /// follows.
    fn finish_job(&mut self, now: Instant, job: &P::Job, output: &mut <P::Job as Job>::Output) {
        let _ = (now, job, output);
    }

    // ── Sending ──────────────────────────────────────────────────────────────────────────────────

    /// Fills `plan` with packets that may be sent now. Returns false if there are none. `space`
    /// returns the number of packets that a socket accepts at once, zero if it is full.
    fn poll_plan(&mut self, now: Instant, space: &dyn Fn(usize) -> usize, plan: &mut P::Plan) -> bool;

    /// Returns whether the remaining data does not fill a plan of this many packets.
    fn has_only_a_tail(&mut self, packets: usize) -> bool;

    /// Returns the identifier of the content of `plan`, for later reports.
    fn receipt(plan: &P::Plan) -> Self::Receipt;

    /// Handles the report that a plan is being sent. The report precedes the system call, so that
    /// no answer overtakes it.
    fn handle_emitted(&mut self, now: Instant, receipt: &Self::Receipt);

    /// Handles the failure to send a plan, which will not be sent: its content is planned again.
    /// Returns true if this may happen at once, false if the connection must wait.
    fn handle_not_emitted(&mut self, now: Instant, receipt: &Self::Receipt, error: &SendError) -> bool;

    /// Handles the loss of a plan with its failed worker: its content is planned again.
    fn handle_unsent(&mut self, receipt: &Self::Receipt) {
        let _ = receipt;
    }

    // ── Timeouts and closing ─────────────────────────────────────────────────────────────────────

    /// Returns the next timeout.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles timeouts. Early calls have no effect.
    fn handle_timeout(&mut self, now: Instant);

    /// Closes the connection for a reason of the driver, with a close packet to the peer.
    fn close(&mut self, now: Instant, reason: EndReason);

    /// Returns whether the connection has ended and the driver may remove it.
    fn is_over(&self) -> bool;

    /// Ends the connection without waiting for packets, and its handles, unless they have ended.
    /// `reason` is reported unless there is an earlier one.
    fn end(&mut self, now: Instant, reason: EndReason);

    /// Ends the handles after a panic, without using the protocol, which may have panicked.
    fn abandon(&mut self, reason: EndReason);

    /// Handles the loss of sockets that are no longer served by their workers. Other paths carry
    /// the data that was in flight on these sockets; a connection without another path ends if its
    /// worker has ended. Returns true if the connection uses such a socket and must be visited.
    fn handle_sockets_lost(&mut self, now: Instant, lost: &SocketsLost<'_>) -> bool {
        let _ = (now, lost);
        false
    }

    // ── A receive half on another processor ──────────────────────────────────────────────────────

    /// Records the length of a received batch. Long batches are a reason to detach the receive
    /// half.
    fn note_arrived(&mut self, len_bytes: usize) {
        let _ = len_bytes;
    }

    /// Returns whether the receive half should be detached now. Returns true once for each request.
    fn take_detach_request(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// Detaches the receive half. Returns `None` if that is not possible now.
    fn detach(&mut self) -> Option<P::ReceiveHalf> {
        None
    }

    /// Returns whether the receive half is on another processor.
    fn is_detached(&self) -> bool {
        false
    }

    /// Returns whether the receive half is on another processor and was not asked to return.
    fn has_detached_half(&self) -> bool {
        false
    }

    /// Returns whether `half` belongs to this connection.
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

    /// Returns whether the plan that was just made changes what the detached receive half must know
    /// when the answer arrives. An update then precedes the plan.
    fn must_update_half(&self) -> bool {
        false
    }

    /// Fills `update` for the detached receive half. Returns whether there is an update, and
    /// whether the half must return; the latter is true once.
    fn poll_update(&mut self, update: &mut P::HalfUpdate) -> (bool, bool) {
        let _ = update;
        (false, false)
    }

    /// Records that the detached receive half has received nothing for a while.
    fn note_quiet(&mut self) {}

    /// Keeps a batch that concerns both halves until the detached receive half has returned.
    /// Returns false if too many are kept: the batch is then dropped.
    fn defer(&mut self, socket: usize, batch: P::Batch) -> bool {
        let _ = (socket, batch);
        false
    }

    /// Ends the connection because its detached receive half is lost. Does nothing if the receive
    /// half is attached. Returns the number of packets that waited for the half and are dropped.
    fn lose_receive_half(&mut self, now: Instant, reason: EndReason) -> usize {
        let _ = (now, reason);
        0
    }

    /// Processes a batch that a worker opened with a lease.
    fn absorb_leased(&mut self, now: Instant, job: &mut P::OpenJob, batch: P::Batch) {
        let _ = (now, job, batch);
    }

    /// Grants a lease to a worker that received an encrypted batch of this connection. Returns
    /// `None` if the worker already has one, or the connection cannot lease.
    fn grant_lease(
        &mut self,
        key: ConnectionKey,
        worker: usize,
        batch: &P::Batch,
    ) -> Option<<P::Leases as LeaseCache<P>>::Lease> {
        let _ = (key, worker, batch);
        None
    }

    /// Returns the local address, if the protocol knows it.
    fn local_ip(&self) -> Option<std::net::IpAddr>;

    /// Returns whether the peer began the connection.
    fn is_accepted(&self) -> bool;
}

/// Sockets that are lost because a worker does not respond.
pub struct SocketsLost<'a> {
    /// Whether the worker of this socket does not respond.
    pub is_lost: &'a dyn Fn(usize) -> bool,
    /// Whether this socket can be used.
    pub is_served: &'a dyn Fn(usize) -> bool,
    /// Whether the worker has ended. Otherwise it hangs and may recover.
    pub is_gone: bool,
}
