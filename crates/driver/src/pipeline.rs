//! [`Pipeline`]: the other processors of a simulated driver, as queues between it and a model of them.
//! The driver plans and processes packets; the model times the steps before and after that.
//!
//! ```text
//!   Driver ── send ─▶ planned ─▶ model: serial step, stage, call ─▶ link
//!      ▲                                                   │
//!      ├── poll_report ◀── reports ◀───────────────────────┘
//!      ├── poll_arrival ◀─ arrivals ◀─ model: call, stage, serial step ◀── link
//!      └── run ─▶ jobs ─▶ model: stage ─▶ results, in order ─▶ poll_finished
//! ```
//!
//! To the driver, each of its sockets is served by a worker of its own. Its turns take no time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use units::Instant;

use crate::crypto_pool::order::{Ordered, Ticket};
use crate::in_flight::{ConnectionRef, InFlightBatch};
use crate::offload::{Arrival, Finished, JobOutput, Offload, PathFlow, SendReport};
use crate::protocol::{Connection, ConnectionKey, Job, Plan, Protocol};

/// Maximum number of outgoing packets of no connection. Further packets are dropped: the peer
/// retries.
const REPLIES_MAX: usize = 64;

/// Transport of packets in a model.
pub trait Carrier<P: Protocol> {
    /// Packets on their way to the network.
    type Packets;

    /// Takes the packets of a plan for the socket of a worker. `plan` can be reused afterwards.
    fn carry(&mut self, worker: usize, plan: &mut P::Plan) -> Self::Packets;

    /// Takes packets that belong to no connection. By default they are dropped.
    fn carry_reply(&mut self, packets: &P::Sealed) -> Option<Self::Packets> {
        let _ = packets;
        None
    }
}

/// Packets that a driver has planned.
pub struct Planned<P: Protocol, C: Carrier<P>> {
    /// The packets.
    pub packets: C::Packets,
    worker: usize,
    count: usize,
    /// Report of the packets; `None` for packets of no connection.
    report: Option<InFlightBatch<P>>,
}

/// A job that a driver has begun.
pub struct BegunJob<P: Protocol> {
    /// The job.
    pub job: Arc<P::Job>,
    ticket: Ticket,
}

/// A job, and its output once the model has run it.
struct Work<P: Protocol> {
    job: Arc<P::Job>,
    output: Option<JobOutput<P>>,
}

/// Packets and jobs between a driver and the processes of its host. Clones share them.
pub struct Pipeline<P: Protocol, C: Carrier<P>>(Rc<PipelineState<P, C>>);

struct PipelineState<P: Protocol, C: Carrier<P>> {
    workers: usize,
    /// Maximum number of sent plans in progress.
    plans_max: usize,
    /// The number of sent plans in progress, and of packets of no connection.
    sending: Cell<usize>,
    replying: Cell<usize>,
    /// Whether the serial step of the last plan is in progress, so that the driver makes no other.
    is_planning: Cell<bool>,
    runs_jobs: bool,
    /// Number of packets between plan and link.
    unsent: Cell<u64>,
    carrier: RefCell<C>,
    // The queues are bounded: `planned` and `reports` by `plans_max` and `REPLIES_MAX`, `arrivals`
    // by the batches received at one time and by one notice of space for each worker and completed
    // batch, `jobs` by the data that connections put into jobs at one time.
    planned: RefCell<VecDeque<Planned<P, C>>>,
    reports: RefCell<VecDeque<SendReport<P>>>,
    arrivals: RefCell<VecDeque<Arrival<P>>>,
    jobs: RefCell<VecDeque<BegunJob<P>>>,
    order: RefCell<Ordered<PathFlow, InFlightBatch<P, Work<P>>>>,
}

impl<P: Protocol, C: Carrier<P>> Clone for Pipeline<P, C> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<P: Protocol, C: Carrier<P>> Pipeline<P, C> {
    /// Creates queues for a driver whose sockets have `workers` workers, with at most `plans_max`
    /// sent plans in progress. The model runs jobs only if it is created [with
    /// jobs](Self::with_jobs).
    pub fn new(workers: usize, plans_max: usize, carrier: C) -> Self {
        Self(Rc::new(PipelineState::new(workers, plans_max, carrier, false)))
    }

    /// Creates queues like [`new`](Self::new). The model also runs the driver's jobs.
    pub fn with_jobs(workers: usize, plans_max: usize, carrier: C) -> Self {
        Self(Rc::new(PipelineState::new(workers, plans_max, carrier, true)))
    }

    /// Returns the next planned packets. [`finish_serial_step`](Self::finish_serial_step),
    /// [`report_emitted`](Self::report_emitted) and [`finish_sending`](Self::finish_sending)
    /// follow.
    pub fn take_planned(&self) -> Option<Planned<P, C>> {
        self.0.planned.borrow_mut().pop_front()
    }

    /// Finishes the serial step of a plan, so that the driver may make another.
    pub fn finish_serial_step(&self, planned: &Planned<P, C>) {
        if planned.report.is_some() {
            self.0.is_planning.set(false);
            self.announce_space();
        }
    }

    /// Reports that packets are being sent.
    pub fn report_emitted(&self, at: Instant, planned: &Planned<P, C>) {
        self.0.unsent.set(self.0.unsent.get() - planned.count as u64);
        let Some(batch) = planned.report.clone() else { return };
        let report = SendReport::Emitted { batch, at, follows_refusal: false, worker: planned.worker };
        self.0.reports.borrow_mut().push_back(report);
    }

    /// Finishes the sending of packets, so that others may be in progress.
    pub fn finish_sending(&self, planned: &Planned<P, C>) {
        if planned.report.is_some() {
            self.0.sending.set(self.0.sending.get() - 1);
            self.announce_space();
        } else {
            self.0.replying.set(self.0.replying.get() - 1);
        }
    }

    /// Adds a batch that was received from this socket and opened.
    pub fn push_arrival(&self, socket: usize, batch: P::Batch) {
        self.0.arrivals.borrow_mut().push_back(Arrival::Batch { socket, batch, has_more: false });
    }

    /// Returns the next job. A call of [`finish_job`](Self::finish_job) must follow.
    pub fn take_job(&self) -> Option<BegunJob<P>> {
        self.0.jobs.borrow_mut().pop_front()
    }

    /// Runs a job at the end of its modelled duration.
    pub fn finish_job(&self, begun: &BegunJob<P>) {
        let mut output = JobOutput::<P>::default();
        begun.job.run(&mut output);
        let mut order = self.0.order.borrow_mut();
        let work = order.finish(begun.ticket).expect("a job is finished once");
        work.contents.output = Some(output);
    }

    /// Returns the number of packets between plan and link.
    pub fn unsent(&self) -> u64 {
        self.0.unsent.get()
    }

    fn takes_plans(&self) -> bool {
        !self.0.is_planning.get() && self.0.sending.get() < self.0.plans_max
    }

    fn announce_space(&self) {
        if self.takes_plans() {
            self.0.arrivals.borrow_mut().extend((0..self.0.workers).map(|worker| Arrival::Back { worker }));
        }
    }

    fn push_planned(&self, packets: C::Packets, worker: usize, count: usize, report: Option<InFlightBatch<P>>) {
        self.0.unsent.set(self.0.unsent.get() + count as u64);
        self.0.planned.borrow_mut().push_back(Planned { packets, worker, count, report });
    }
}

impl<P: Protocol, C: Carrier<P>> PipelineState<P, C> {
    fn new(workers: usize, plans_max: usize, carrier: C, runs_jobs: bool) -> Self {
        Self {
            workers,
            plans_max,
            sending: Cell::new(0),
            replying: Cell::new(0),
            is_planning: Cell::new(false),
            runs_jobs,
            unsent: Cell::new(0),
            carrier: RefCell::new(carrier),
            planned: RefCell::default(),
            reports: RefCell::default(),
            arrivals: RefCell::default(),
            jobs: RefCell::default(),
            order: RefCell::new(Ordered::new()),
        }
    }
}

impl<P: Protocol, C: Carrier<P>> Offload<P> for Pipeline<P, C> {
    fn has_work(&self) -> bool {
        let state = &self.0;
        !state.reports.borrow().is_empty() || !state.arrivals.borrow().is_empty() || state.order.borrow().has_ready()
    }

    fn has_space(&self, _worker: usize) -> bool {
        self.takes_plans()
    }

    fn send(&mut self, _now: Instant, worker: usize, connection: ConnectionRef<P>, plan: &mut P::Plan) {
        assert!(self.takes_plans(), "the driver sends only if a worker accepts plans");
        let (receipt, count) = (P::Connection::receipt(plan), plan.packet_count());
        let packets = self.0.carrier.borrow_mut().carry(worker, plan);
        self.0.is_planning.set(true);
        self.0.sending.set(self.0.sending.get() + 1);
        self.push_planned(packets, worker, count, Some(InFlightBatch::new(connection, receipt)));
    }

    fn reply(&mut self, worker: usize, _socket: usize, packets: &P::Sealed) {
        if self.0.replying.get() < REPLIES_MAX
            && let Some(packets) = self.0.carrier.borrow_mut().carry_reply(packets)
        {
            self.0.replying.set(self.0.replying.get() + 1);
            self.push_planned(packets, worker, 0, None);
        }
    }

    fn poll_report(&mut self) -> Option<SendReport<P>> {
        self.0.reports.borrow_mut().pop_front()
    }

    fn poll_arrival(&mut self, _now: Instant) -> Option<Arrival<P>> {
        self.0.arrivals.borrow_mut().pop_front()
    }

    /// Returns one sealer if the model runs jobs, so that the driver looks for finished jobs. Plans
    /// do not go through a pool.
    fn sealers(&self) -> Option<usize> {
        self.0.runs_jobs.then_some(1)
    }

    fn opens(&self) -> bool {
        self.0.runs_jobs
    }

    fn run(
        &mut self,
        _now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Arc<P::Job>,
        _is_last: bool,
    ) -> Result<(), Arc<P::Job>> {
        let work = Work { job: Arc::clone(&job), output: None };
        let ticket = self.0.order.borrow_mut().reserve(flow, InFlightBatch::new(connection.clone(), work));
        self.0.jobs.borrow_mut().push_back(BegunJob { job, ticket });
        Ok(())
    }

    fn poll_finished(
        &mut self,
        only: Option<ConnectionKey>,
        _has_space: &dyn Fn(usize) -> bool,
    ) -> Option<Finished<P>> {
        let may_go = |flow: PathFlow, _: &InFlightBatch<P, Work<P>>| only.is_none_or(|only| flow.key == only);
        let (_, InFlightBatch { connection, contents }) = self.0.order.borrow_mut().take(may_go)?;
        Some(Finished::Ran { connection, job: contents.job, output: contents.output })
    }
}
