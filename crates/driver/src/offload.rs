//! [`Offload`]: the driver's interface to other processors.
//!
//! The driver offloads work and takes results at fixed points of its turn:
//!
//! | point of the turn | offloaded | taken |
//! |---|---|---|
//! | before and between received batches | | [reports](Offload::poll_report) of sent packets, [reports](Offload::poll_half_event) of receive halves |
//! | receiving | batches to [open](Offload::open), [leases](Offload::lease) | [arrivals](Offload::poll_arrival), [opened](Offload::poll_finished) batches |
//! | before each visit of a connection | | reports of receive halves |
//! | beginning of a visit | [jobs](Offload::run) on absorbed data | |
//! | a visit | plans to [seal](Offload::seal) and to [send](Offload::send), [updates](Offload::update_receive_half) for the receive half | [finished](Offload::poll_finished) work of the visited connection |
//! | between visits | | finished work of all connections: sealed and opened batches, jobs |
//! | end of the turn | a [wake-up](Offload::wake) | |
//!
//! A visit of one connection never sends packets of another.

use std::sync::Arc;

use units::Instant;

use crate::in_flight::{ConnectionRef, InFlightBatch};
use crate::protocol::{ConnectionKey, Job, Protocol};
use crate::socket::SendError;

/// Destination of a batch or a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Packets to be sent.
    Out,
    /// Received packets, for the serial part.
    In,
    /// Data that the serial part has absorbed, for the application.
    Up,
}

/// One direction of a path of a connection. Batches of a flow are kept in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathFlow {
    /// The connection.
    pub key: ConnectionKey,
    /// The ID of the path; zero if the protocol has single-path connections, and for jobs.
    pub path: u64,
    /// The direction.
    pub direction: Direction,
}

/// A worker's report about packets that it sends.
pub enum SendReport<P: Protocol> {
    /// Packets are being sent.
    Emitted {
        /// The packets.
        batch: InFlightBatch<P>,
        /// The time.
        at: Instant,
        /// Whether the system refused the packets before them, so that the connection still waits.
        follows_refusal: bool,
        /// The worker, which may have space again.
        worker: usize,
    },
    /// Packets that were reported as sent but waited for socket space are being sent.
    EmittedLate {
        /// The packets.
        batch: InFlightBatch<P>,
        /// The time.
        at: Instant,
    },
    /// Packets that were reported as sent will not be sent.
    Refused {
        /// The packets.
        batch: InFlightBatch<P>,
        /// The time of the error.
        at: Instant,
        /// The error.
        error: SendError,
    },
}

/// An event of the workers that serve sockets.
pub enum Arrival<P: Protocol> {
    /// A batch was received from one of their sockets.
    Batch {
        /// The socket.
        socket: usize,
        /// The batch.
        batch: P::Batch,
        /// Whether another batch from this socket follows.
        has_more: bool,
    },
    /// A batch was received and opened with a lease.
    Opened {
        /// The worker, to which the job is returned.
        worker: usize,
        /// The job that opened it, and its connection.
        opened: InFlightBatch<P, Box<P::OpenJob>>,
        /// The batch.
        batch: P::Batch,
        /// Whether another batch from the same socket follows.
        has_more: bool,
    },
    /// A worker with sockets does not respond: its paths are unusable until it
    /// [responds](Self::Back).
    Lost {
        /// The worker.
        worker: usize,
        /// Whether it has ended. Otherwise it hangs.
        is_gone: bool,
        /// Plans that it has not reported as sent, if it has ended.
        unsent: Vec<InFlightBatch<P>>,
    },
    /// A worker responds again, or has space for plans again.
    Back {
        /// The worker.
        worker: usize,
    },
    /// The receive worker does not respond: its receive halves are lost, and the driver takes over
    /// receiving.
    ReceiverLost,
}

/// The result of a job of `P`.
pub type JobOutput<P> = <<P as Protocol>::Job as Job>::Output;

/// Work that the crypto pool has finished.
pub enum Finished<P: Protocol> {
    /// A plan is next in its flow to be sent.
    Sealed {
        /// The connection.
        connection: ConnectionRef<P>,
        /// The plan.
        plan: Arc<P::Plan>,
        /// The packets. `None` if its worker is late or has failed: the driver then seals the plan.
        packets: Option<P::Sealed>,
    },
    /// A batch was opened.
    Opened {
        /// The connection.
        connection: ConnectionRef<P>,
        /// The job that opened it.
        job: Box<P::OpenJob>,
        /// The batch.
        batch: P::Batch,
    },
    /// A batch to be opened is lost.
    Lost {
        /// The connection.
        key: ConnectionKey,
    },
    /// A job is next in its flow.
    Ran {
        /// The connection.
        connection: ConnectionRef<P>,
        /// The job.
        job: Arc<P::Job>,
        /// Its result. `None` if its worker is late or has failed: the driver then runs the job.
        output: Option<JobOutput<P>>,
    },
}

/// An event of a receive half on the receive worker.
pub enum ReceiveHalfEvent<P: Protocol> {
    /// A receive half reports to its connection.
    Report {
        /// The connection.
        connection: ConnectionRef<P>,
        /// The report.
        report: P::HalfReport,
    },
    /// A receive half has received nothing for a while, so it may be recalled.
    Quiet {
        /// The connection.
        connection: ConnectionRef<P>,
    },
    /// A recalled receive half returns.
    Returned {
        /// The connection.
        key: ConnectionKey,
        /// The receive half.
        half: P::ReceiveHalf,
    },
    /// The worker has paused receiving: all batches that it has received can be taken.
    Paused,
    /// A receive half has panicked.
    Broken {
        /// The connection.
        connection: ConnectionRef<P>,
    },
}

/// The other processors of a driver. The default methods are for a driver without other processors.
pub trait Offload<P: Protocol> {
    // ── Before the driver waits ──────────────────────────────────────────────────────────────────

    /// Returns whether there is anything to take from workers.
    fn has_work(&self) -> bool {
        false
    }

    /// Returns the number of received packets that workers dropped, because the driver had not
    /// taken earlier ones.
    fn dropped_packets(&self) -> u64 {
        0
    }

    /// Returns the time of the next liveness check of workers, if nothing wakes the driver before.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Returns whether more may be received; false while too many batches are in flight.
    fn has_space_for_arrivals(&self) -> bool {
        true
    }

    /// Returns whether workers have sent all packets, as far as is known. Requests a report from
    /// them.
    fn is_drained(&mut self, now: Instant) -> bool {
        let _ = now;
        true
    }

    // ── Workers that serve sockets ───────────────────────────────────────────────────────────────

    /// Returns whether a worker accepts another plan for its sockets.
    fn has_space(&self, worker: usize) -> bool {
        let _ = worker;
        false
    }

    /// Returns whether the worker's paths are usable.
    fn is_well(&self, worker: usize) -> bool {
        let _ = worker;
        true
    }

    /// Returns whether the worker has ended.
    fn is_gone(&self, worker: usize) -> bool {
        let _ = worker;
        false
    }

    /// Sends a plan through a socket of a worker. `plan` can be reused afterwards.
    ///
    /// # Panics
    /// If the worker has no [space](Self::has_space).
    fn send(&mut self, now: Instant, worker: usize, connection: ConnectionRef<P>, plan: &mut P::Plan) {
        let _ = (now, worker, connection, plan);
        unreachable!("there is no worker");
    }

    /// Sends packets that belong to no connection. They may be dropped.
    fn reply(&mut self, worker: usize, socket: usize, packets: &P::Sealed) {
        let _ = (worker, socket, packets);
    }

    /// Handles an encrypted batch of a connection that was received from a worker, which may get a
    /// lease.
    fn lease(&mut self, worker: usize, key: ConnectionKey, connection: &mut P::Connection, batch: &P::Batch) {
        let _ = (worker, key, connection, batch);
    }

    /// Returns the next report about sent packets. Called before received batches are processed, so
    /// that no acknowledgement overtakes a report.
    fn poll_report(&mut self) -> Option<SendReport<P>> {
        None
    }

    /// Begins a turn, which resets the limit of events.
    fn begin_arrivals(&mut self) {}

    /// Returns the next event of workers in this turn.
    fn poll_arrival(&mut self, now: Instant) -> Option<Arrival<P>> {
        let _ = now;
        None
    }

    /// Returns a job to the worker that opened a batch with it.
    fn return_job(&mut self, worker: usize, job: Box<P::OpenJob>) {
        let _ = (worker, job);
    }

    // ── The pool that seals, opens and runs jobs ─────────────────────────────────────────────────

    /// Returns the number of processors that seal, including the driver, if plans go through the
    /// pool.
    fn sealers(&self) -> Option<usize> {
        None
    }

    /// Returns whether received batches, and jobs on absorbed data, go through the pool.
    fn opens(&self) -> bool {
        false
    }

    /// Returns whether the pool accepts no more plans.
    fn is_full(&mut self) -> bool {
        false
    }

    /// Makes space by work of the driver itself, if waiting would take longer. Returns false if
    /// there is no such work.
    fn make_space(&mut self) -> bool {
        false
    }

    /// Takes finished work from the pool, and reclaims the work of workers that are late or have
    /// failed.
    fn collect(&mut self, now: Instant) {
        let _ = now;
    }

    /// Returns the next finished batch, in the order of its flow; only of connection `only`, if it
    /// is given. `has_space` returns whether a socket accepts packets.
    fn poll_finished(&mut self, only: Option<ConnectionKey>, has_space: &dyn Fn(usize) -> bool) -> Option<Finished<P>> {
        let _ = (only, has_space);
        None
    }

    /// Passes a batch to another processor for opening, if that is worthwhile and one has space.
    ///
    /// # Errors
    /// Returns the arguments otherwise.
    fn open(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Box<P::OpenJob>,
        batch: P::Batch,
    ) -> Result<(), (Box<P::OpenJob>, P::Batch)> {
        let _ = (now, flow, connection);
        Err((job, batch))
    }

    /// Queues a batch that the driver has opened, behind the batches of its flow that are in
    /// flight.
    ///
    /// # Errors
    /// Returns the arguments if there are none: the batch is processed at once.
    fn queue_opened(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Box<P::OpenJob>,
        batch: P::Batch,
    ) -> Result<(), (Box<P::OpenJob>, P::Batch)> {
        let _ = (now, flow, connection);
        Err((job, batch))
    }

    /// Passes a plan to another processor for sealing, if that is worthwhile and one has space.
    ///
    /// # Errors
    /// Returns the plan otherwise.
    fn seal(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        plan: Arc<P::Plan>,
    ) -> Result<(), Arc<P::Plan>> {
        let _ = (now, flow, connection);
        Err(plan)
    }

    /// Queues packets that the driver has sealed, behind packets of their flow that are in flight
    /// or wait for socket space.
    ///
    /// # Errors
    /// Returns the arguments if the packets may be sent at once.
    fn queue_sealed(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        plan: Arc<P::Plan>,
        packets: P::Sealed,
        has_space: bool,
    ) -> Result<(), (Arc<P::Plan>, P::Sealed)> {
        let _ = (now, flow, connection, has_space);
        Err((plan, packets))
    }

    /// Passes a job to another processor, if that is worthwhile and one has space. `is_last` says
    /// that the connection has no other job now.
    ///
    /// Returns the job otherwise.
    fn run(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Arc<P::Job>,
        is_last: bool,
    ) -> Result<(), Arc<P::Job>> {
        let _ = (now, flow, connection, is_last);
        Err(job)
    }

    /// Queues a job that the driver has run, behind the jobs of its flow that are in flight.
    ///
    /// Returns the arguments if there are none: the job is finished at once.
    fn queue_run(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Arc<P::Job>,
        output: JobOutput<P>,
    ) -> Result<(), (Arc<P::Job>, JobOutput<P>)> {
        let _ = (now, flow, connection);
        Err((job, output))
    }

    /// Returns an empty plan.
    fn spare_plan(&mut self) -> P::Plan {
        P::Plan::default()
    }

    /// Returns an empty job.
    fn spare_job(&mut self) -> Box<P::OpenJob> {
        Box::default()
    }

    /// Returns memory for sealed packets.
    fn spare_packets(&mut self) -> P::Sealed {
        P::Sealed::default()
    }

    /// Returns memory for the output of a job.
    fn spare_output(&mut self) -> JobOutput<P> {
        JobOutput::<P>::default()
    }

    /// Returns the output of a job for reuse.
    fn keep_output(&mut self, output: JobOutput<P>) {
        let _ = output;
    }

    /// Returns a plan and its packets for reuse.
    fn keep_sealed(&mut self, plan: Arc<P::Plan>, packets: P::Sealed) {
        let _ = (plan, packets);
    }

    /// Returns a job for reuse.
    #[expect(clippy::boxed_local, reason = "implementations keep the box")]
    fn keep_job(&mut self, job: Box<P::OpenJob>) {
        let _ = job;
    }

    // ── The receive worker ───────────────────────────────────────────────────────────────────────

    /// Makes the workers that serve sockets receive, because the receive worker no longer does.
    fn receive_instead(&mut self) {}

    /// Returns whether it accepts another receive half.
    fn takes_receive_halves(&self) -> bool {
        false
    }

    /// Returns whether it accepts updates.
    fn has_space_for_updates(&self) -> bool {
        true
    }

    /// Returns the next event of receive halves. Called before plans are made.
    fn poll_half_event(&mut self) -> Option<ReceiveHalfEvent<P>> {
        None
    }

    /// Returns a report for reuse.
    fn return_report(&mut self, report: P::HalfReport) {
        let _ = report;
    }

    /// Requests a pause of receiving. The worker [reports](ReceiveHalfEvent::Paused) when it has
    /// paused.
    fn pause(&mut self, now: Instant) {
        let _ = now;
    }

    /// Begins a turn like [`begin_arrivals`](Self::begin_arrivals), with the limit raised to all
    /// batches that a paused worker has received.
    fn begin_all_arrivals(&mut self) {}

    /// Passes a receive half to it.
    fn detach(&mut self, now: Instant, key: ConnectionKey, half: P::ReceiveHalf) {
        let _ = (now, key, half);
    }

    /// Resumes receiving.
    fn resume(&mut self, now: Instant) {
        let _ = now;
    }

    /// Sends an update to a receive half, if its connection has one.
    fn update_receive_half(&mut self, now: Instant, key: ConnectionKey, connection: &mut P::Connection) {
        let _ = (now, key, connection);
    }

    /// Recalls a receive half.
    fn recall(&mut self, now: Instant, key: ConnectionKey) {
        let _ = (now, key);
    }

    /// Wakes workers with new work.
    fn wake(&mut self) {}
}

/// A driver without other processors.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOffload;

impl<P: Protocol> Offload<P> for NoOffload {}
