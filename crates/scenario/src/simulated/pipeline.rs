//! [`Pipeline`]: the other processors of a simulated host's driver. The driver plans and processes
//! batches; the steps before and after that are processes of the simulation (module `host`).
//!
//! ```text
//!   Driver ── send ─▶ planned ─▶ host: serial step, stage, call ─▶ link
//!      ▲                                                   │
//!      ├── poll_report ◀── reports ◀───────────────────────┘
//!      └── poll_arrival ◀─ arrivals ◀─ host: call, stage, serial step ◀── link
//! ```
//!
//! To the driver, each path is served by a worker of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use driver::in_flight::{ConnectionRef, InFlightBatch as DriverBatch};
use driver::offload::{Arrival, SendReport};
use driver::protocol::Connection as _;
use driver::{Offload, Protocol};
use quic_driver::Quic;
use units::Instant;

use crate::memory::datagram::InFlightBatch;
use crate::memory::lengths::{Lengths, Spares};

/// The protocol of simulated hosts with processors.
pub(crate) type LengthsQuic = Quic<Lengths>;

/// A planned batch.
pub(crate) struct PlannedBatch {
    pub(crate) in_flight: Rc<InFlightBatch>,
    report: DriverBatch<LengthsQuic>,
}

/// Batches between a driver and the processes of its host. Clones share them.
#[derive(Clone)]
pub(crate) struct Pipeline(Rc<PipelineState>);

struct PipelineState {
    paths: usize,
    /// Maximum number of sent batches in progress.
    batches_max: usize,
    /// The number of sent batches in progress.
    sending: Cell<usize>,
    /// The serial step of the last plan is in progress, so the driver makes no other.
    is_planning: Cell<bool>,
    /// Datagrams between plan and link.
    unsent: Cell<u64>,
    spares: RefCell<Spares>,
    // Bounded: `planned` and `reports` by `batches_max`, `arrivals` by the batches that are
    // received at one time and by one notice of space for each path and completed batch.
    planned: RefCell<VecDeque<PlannedBatch>>,
    reports: RefCell<VecDeque<SendReport<LengthsQuic>>>,
    arrivals: RefCell<VecDeque<Arrival<LengthsQuic>>>,
}

impl Pipeline {
    pub(crate) fn new(paths: usize, batches_max: usize) -> Self {
        Self(Rc::new(PipelineState {
            paths,
            batches_max,
            sending: Cell::new(0),
            is_planning: Cell::new(false),
            unsent: Cell::new(0),
            spares: RefCell::default(),
            planned: RefCell::default(),
            reports: RefCell::default(),
            arrivals: RefCell::default(),
        }))
    }

    /// The next planned batch. [`finish_serial_step`](Self::finish_serial_step) follows.
    pub(crate) fn take_planned(&self) -> Option<PlannedBatch> {
        self.0.planned.borrow_mut().pop_front()
    }

    /// The serial step of a plan is complete: the driver may make another.
    pub(crate) fn finish_serial_step(&self) {
        self.0.is_planning.set(false);
        self.announce_accepting();
    }

    /// A batch is being sent.
    pub(crate) fn report_emitted(&self, at: Instant, planned: &PlannedBatch) {
        self.0.unsent.set(self.0.unsent.get() - planned.in_flight.unsealed().datagram_count() as u64);
        let (batch, worker) = (planned.report.clone(), planned.in_flight.path());
        self.0.reports.borrow_mut().push_back(SendReport::Emitted { batch, at, follows_refusal: false, worker });
    }

    /// A sent batch is complete: another may be in progress.
    pub(crate) fn finish_sending(&self) {
        self.0.sending.set(self.0.sending.get() - 1);
        self.announce_accepting();
    }

    /// A batch of this path was received and opened.
    pub(crate) fn push_arrival(&self, path: usize, batch: <LengthsQuic as Protocol>::Batch) {
        self.0.arrivals.borrow_mut().push_back(Arrival::Batch { socket: path, batch, has_more: false });
    }

    /// Datagrams between plan and link.
    pub(crate) fn unsent(&self) -> u64 {
        self.0.unsent.get()
    }

    fn takes_plans(&self) -> bool {
        !self.0.is_planning.get() && self.0.sending.get() < self.0.batches_max
    }

    fn announce_accepting(&self) {
        if self.takes_plans() {
            self.0.arrivals.borrow_mut().extend((0..self.0.paths).map(|worker| Arrival::Back { worker }));
        }
    }
}

impl Offload<LengthsQuic> for Pipeline {
    fn has_work(&self) -> bool {
        !self.0.reports.borrow().is_empty() || !self.0.arrivals.borrow().is_empty()
    }

    fn has_space(&self, _worker: usize) -> bool {
        self.takes_plans()
    }

    fn send(
        &mut self,
        _now: Instant,
        worker: usize,
        connection: ConnectionRef<LengthsQuic>,
        plan: &mut <LengthsQuic as Protocol>::Plan,
    ) {
        assert!(self.takes_plans(), "the driver sends only if a worker accepts plans");
        let receipt = <LengthsQuic as Protocol>::Connection::receipt(plan);
        let in_flight = self.0.spares.borrow_mut().filled(|batch| batch.fill(worker, &mut plan.plan));
        self.0.unsent.set(self.0.unsent.get() + in_flight.unsealed().datagram_count() as u64);
        self.0.is_planning.set(true);
        self.0.sending.set(self.0.sending.get() + 1);
        let report = DriverBatch::new(connection, receipt);
        self.0.planned.borrow_mut().push_back(PlannedBatch { in_flight, report });
    }

    fn poll_report(&mut self) -> Option<SendReport<LengthsQuic>> {
        self.0.reports.borrow_mut().pop_front()
    }

    fn poll_arrival(&mut self, _now: Instant) -> Option<Arrival<LengthsQuic>> {
        self.0.arrivals.borrow_mut().pop_front()
    }
}
