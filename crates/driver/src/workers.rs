//! [`Workers`]: the workers of a driver, as its [`Offload`]: a crypto pool, path workers or a
//! receive worker.

use std::sync::Arc;

use units::Instant;

use crate::crypto_pool::{CryptoPool, CryptoWorker, Finished as PoolFinished, PoolCounters, Tally};
use crate::driver::{RECV_BATCHES_MAX, RECV_CALLS_PER_TURN};
use crate::in_flight::{ConnectionRef, InFlightBatch};
use crate::offload::{Arrival, Finished, JobOutput, Offload, PathFlow, ReceiveHalfEvent, SendReport};
use crate::path_worker::{ARRIVALS_MAX as PATH_ARRIVALS_MAX, PathWorker, PathWorkerEvent, StateChange};
use crate::protocol::{Batch, Connection, ConnectionKey, Job, OpenJob, Plan, Protocol};
use crate::receive_worker::{ARRIVALS_MAX as RECEIVE_ARRIVALS_MAX, ReceiveWorker, ReceiveWorkerCounters};

/// Amount of [work](OpenJob::work_bytes) below which the driver opens received batches: opening
/// them takes no longer than passing them on, about a microsecond. The same limit applies to jobs.
const OPEN_OFFLOAD_BYTES_MIN: usize = 8 << 10;

/// Number of packets below which the driver seals a plan, for the same reason.
const SEAL_OFFLOAD_PACKETS_MIN: usize = 6;

/// Size of a received batch that makes the driver grant a lease for later batches. Smaller batches
/// take no longer to open than to pass on, and few of many connections are busy.
const LEASE_BYTES_MIN: usize = 8 << 10;

/// Maximum number of batches of the receive worker that are processed in one turn: as many as a
/// driver that receives itself takes from one socket.
const RECEIVE_ARRIVALS_PER_TURN: usize = RECV_CALLS_PER_TURN * RECV_BATCHES_MAX;

/// The workers of a driver. The placement determines which exist.
pub struct Workers<P: Protocol> {
    /// Processors that seal and open.
    pool: Option<CryptoPool<P>>,
    /// Processors that serve sockets. If there is also a pool, they are its processors.
    paths: Vec<PathWorker<P>>,
    /// The receive worker.
    receiver: Option<ReceiveWorker<P>>,
    /// The counters of the crypto workers or path workers.
    counters: Option<Arc<PoolCounters>>,
    /// Path worker that is polled next.
    next_path: usize,
    /// Number of batches that may still be taken from it in this turn.
    path_arrivals_left: usize,
    /// Number of batches that may still be taken from the receive worker in this turn.
    receive_arrivals_left: usize,
    /// Whether the liveness of the receive worker was checked in this turn.
    receiver_checked: bool,
}

impl<P: Protocol> Default for Workers<P> {
    fn default() -> Self {
        Self {
            pool: None,
            paths: Vec::new(),
            receiver: None,
            counters: None,
            next_path: 0,
            path_arrivals_left: 0,
            receive_arrivals_left: 0,
            receiver_checked: true,
        }
    }
}

impl<P: Protocol> Workers<P> {
    /// Creates workers that seal and open.
    pub fn of_pool(workers: Vec<CryptoWorker<P>>) -> Self {
        let counters = PoolCounters::new(workers.iter().map(|worker| Arc::clone(worker.tally())).collect());
        let counters = Arc::new(counters);
        Self {
            pool: Some(CryptoPool::new(workers, Arc::clone(&counters))),
            counters: Some(counters),
            ..Self::default()
        }
    }

    /// Creates workers that serve sockets. `helpers` are the same workers as processors that seal
    /// for the driver's sockets while they are idle; empty if the driver serves none.
    pub fn of_paths(paths: Vec<PathWorker<P>>, helpers: Vec<CryptoWorker<P>>) -> Self {
        if paths.is_empty() {
            return Self::default();
        }
        let counters = PoolCounters::new(paths.iter().map(|worker| Arc::clone(worker.tally())).collect());
        let counters = Arc::new(counters);
        let pool = (!helpers.is_empty()).then(|| CryptoPool::new(helpers, Arc::clone(&counters)));
        Self { paths, pool, counters: Some(counters), ..Self::default() }
    }

    /// Creates a worker that receives.
    pub fn of_receiver(receiver: ReceiveWorker<P>) -> Self {
        Self { receiver: Some(receiver), ..Self::default() }
    }

    /// Creates a worker that sends, and one that receives through `intake`. Their counters, in this
    /// order, are those of the sender and of the intake.
    pub fn of_pipeline(sender: PathWorker<P>, receiver: ReceiveWorker<P>, intake: &Arc<Tally>) -> Self {
        let counters = PoolCounters::new(vec![Arc::clone(sender.tally()), Arc::clone(intake)]);
        Self { paths: vec![sender], receiver: Some(receiver), counters: Some(Arc::new(counters)), ..Self::default() }
    }

    /// Returns the counters of the crypto workers or path workers.
    pub fn pool_counters(&self) -> Option<&Arc<PoolCounters>> {
        self.counters.as_ref()
    }

    /// Returns the counters of the receive worker.
    pub fn receive_worker_counters(&self) -> Option<&Arc<ReceiveWorkerCounters>> {
        self.receiver.as_ref().map(ReceiveWorker::counters)
    }

    /// Returns the next event of a path worker.
    fn poll_path(&mut self, now: Instant) -> Option<Arrival<P>> {
        while let Some(path) = self.paths.get_mut(self.next_path) {
            let worker = self.next_path;
            if self.path_arrivals_left > 0
                && let Some(arrived) = path.take_arrival()
            {
                self.path_arrivals_left -= 1;
                let has_more = path.has_more_of(arrived.socket);
                let (socket, batch) = (arrived.socket, arrived.batch);
                return Some(match arrived.opened {
                    Some(opened) => Arrival::Opened { worker, opened, batch, has_more },
                    None => Arrival::Batch { socket, batch, has_more },
                });
            }
            self.next_path += 1;
            // The limit is the whole ring, so that a worker that has opened many batches does not
            // wait while the driver opens batches itself.
            self.path_arrivals_left = PATH_ARRIVALS_MAX;
            match path.check_liveness(now) {
                StateChange::None => {}
                StateChange::Back => return Some(Arrival::Back { worker }),
                StateChange::Lost => {
                    let is_gone = path.is_gone();
                    let mut unsent = Vec::new();
                    while is_gone && let Some(batch) = path.take_unsent() {
                        unsent.push(batch.sealed());
                    }
                    return Some(Arrival::Lost { worker, is_gone, unsent });
                }
            }
        }
        None
    }

    /// Returns the next event of the receive worker.
    fn poll_receiver(&mut self, now: Instant) -> Option<Arrival<P>> {
        let receiver = self.receiver.as_mut()?;
        if self.receive_arrivals_left > 0
            && let Some(arrived) = receiver.take_arrival()
        {
            self.receive_arrivals_left -= 1;
            let has_more = receiver.has_more_of(arrived.socket);
            return Some(Arrival::Batch { socket: arrived.socket, batch: arrived.batch, has_more });
        }
        self.receive_arrivals_left = 0;
        let is_lost = !std::mem::replace(&mut self.receiver_checked, true) && receiver.check_liveness(now);
        is_lost.then_some(Arrival::ReceiverLost)
    }
}

impl<P: Protocol> Offload<P> for Workers<P> {
    fn has_work(&self) -> bool {
        self.pool.as_ref().is_some_and(CryptoPool::has_returned)
            || self.paths.iter().any(PathWorker::has_events)
            || self.receiver.as_ref().is_some_and(ReceiveWorker::has_events)
    }

    fn dropped_packets(&self) -> u64 {
        let of_paths: u64 = self.paths.iter().map(PathWorker::dropped_packets).sum();
        of_paths + self.receiver.as_ref().map_or(0, ReceiveWorker::dropped_packets)
    }

    fn deadline(&self) -> Option<Instant> {
        let pool = self.pool.as_ref().and_then(CryptoPool::deadline);
        let receiver = self.receiver.as_ref().and_then(ReceiveWorker::deadline);
        self.paths.iter().filter_map(PathWorker::deadline).chain(pool).chain(receiver).min()
    }

    fn has_space_for_arrivals(&self) -> bool {
        self.pool.as_ref().is_none_or(|pool| !pool.has_enough_to_open())
    }

    fn is_drained(&mut self, now: Instant) -> bool {
        if self.pool.as_ref().is_some_and(|pool| !pool.is_empty()) {
            return false;
        }
        // All workers get the request before any answer is awaited, so that they finish in
        // parallel.
        self.paths.iter_mut().map(|path| path.has_finished(now)).filter(|finished| !finished).count() == 0
    }

    // ── Path workers ─────────────────────────────────────────────────────────────────────────────

    fn has_space(&self, worker: usize) -> bool {
        self.paths[worker].has_space()
    }

    fn is_well(&self, worker: usize) -> bool {
        self.paths[worker].works()
    }

    fn is_gone(&self, worker: usize) -> bool {
        self.paths[worker].is_gone()
    }

    fn send(&mut self, now: Instant, worker: usize, connection: ConnectionRef<P>, plan: &mut P::Plan) {
        let path = &mut self.paths[worker];
        let plan = Arc::new(std::mem::replace(plan, path.spare_plan()));
        path.send(now, connection, plan);
    }

    fn reply(&mut self, worker: usize, socket: usize, packets: &P::Sealed) {
        self.paths[worker].reply(socket, packets);
    }

    fn lease(&mut self, worker: usize, key: ConnectionKey, connection: &mut P::Connection, batch: &P::Batch) {
        if batch.len_bytes() >= LEASE_BYTES_MIN
            && let Some(lease) = connection.grant_lease(key, worker, batch)
        {
            self.paths[worker].grant(lease);
        }
    }

    fn poll_report(&mut self) -> Option<SendReport<P>> {
        for (worker, path) in self.paths.iter_mut().enumerate() {
            while let Some(event) = path.take_event() {
                match event {
                    PathWorkerEvent::Emitted { batch, at } => {
                        let follows_refusal = path.note_refused(false);
                        let report = batch.sealed();
                        path.keep_plan(batch.contents);
                        return Some(SendReport::Emitted { batch: report, at, follows_refusal, worker });
                    }
                    PathWorkerEvent::EmittedLate { batch, at } => return Some(SendReport::EmittedLate { batch, at }),
                    PathWorkerEvent::Refused { batch, at, error } => {
                        path.note_refused(true);
                        return Some(SendReport::Refused { batch, at, error });
                    }
                    // `PathWorker` has already processed it.
                    PathWorkerEvent::Finished { .. } => {}
                }
            }
        }
        None
    }

    fn begin_arrivals(&mut self) {
        (self.next_path, self.path_arrivals_left) = (0, PATH_ARRIVALS_MAX);
        (self.receive_arrivals_left, self.receiver_checked) = (RECEIVE_ARRIVALS_PER_TURN, false);
    }

    fn begin_all_arrivals(&mut self) {
        (self.receive_arrivals_left, self.receiver_checked) = (RECEIVE_ARRIVALS_MAX, true);
    }

    fn poll_arrival(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.poll_path(now).or_else(|| self.poll_receiver(now))
    }

    fn return_job(&mut self, worker: usize, job: Box<P::OpenJob>) {
        self.paths[worker].keep_job(job);
    }

    // ── The crypto pool ──────────────────────────────────────────────────────────────────────────

    fn sealers(&self) -> Option<usize> {
        self.pool.as_ref().map(CryptoPool::processors)
    }

    fn opens(&self) -> bool {
        self.pool.is_some() && self.paths.is_empty()
    }

    fn is_full(&mut self) -> bool {
        self.pool.as_ref().is_some_and(CryptoPool::is_full)
    }

    fn make_space(&mut self) -> bool {
        // Path workers give priority to their own paths, so plans are not left waiting for them.
        !self.paths.is_empty() && self.pool.as_mut().is_some_and(CryptoPool::take_back_awaited)
    }

    fn collect(&mut self, now: Instant) {
        if let Some(pool) = self.pool.as_mut().filter(|pool| !pool.is_empty() || pool.has_returned()) {
            pool.collect(now);
        }
    }

    fn poll_finished(&mut self, only: Option<ConnectionKey>, has_space: &dyn Fn(usize) -> bool) -> Option<Finished<P>> {
        let may_go = |flow: PathFlow, finished: &PoolFinished<P>| {
            only.is_none_or(|only| flow.key == only)
                && match finished {
                    PoolFinished::Sealed { plan, .. } => plan.socket().is_none_or(has_space),
                    PoolFinished::Opened { .. } | PoolFinished::Lost | PoolFinished::Ran { .. } => true,
                }
        };
        let (_, InFlightBatch { connection, contents }) = self.pool.as_mut()?.take(may_go)?;
        Some(match contents {
            PoolFinished::Sealed { plan, packets } => Finished::Sealed { connection, plan, packets },
            PoolFinished::Opened { job, batch } => Finished::Opened { connection, job, batch },
            PoolFinished::Lost => Finished::Lost { key: connection.key },
            PoolFinished::Ran { job, output } => Finished::Ran { connection, job, output },
        })
    }

    fn open(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Box<P::OpenJob>,
        batch: P::Batch,
    ) -> Result<(), (Box<P::OpenJob>, P::Batch)> {
        let is_worthwhile = job.work_bytes(&batch) >= OPEN_OFFLOAD_BYTES_MIN;
        match self.pool.as_mut().filter(|pool| is_worthwhile && pool.has_space()) {
            Some(pool) => {
                pool.open_by_worker(now, flow, connection.clone(), job, batch);
                Ok(())
            }
            None => Err((job, batch)),
        }
    }

    fn queue_opened(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Box<P::OpenJob>,
        batch: P::Batch,
    ) -> Result<(), (Box<P::OpenJob>, P::Batch)> {
        match self.pool.as_mut().filter(|pool| pool.is_busy(flow)) {
            Some(pool) => {
                pool.put(now, flow, connection.clone(), PoolFinished::Opened { job, batch });
                Ok(())
            }
            None => Err((job, batch)),
        }
    }

    fn seal(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        plan: Arc<P::Plan>,
    ) -> Result<(), Arc<P::Plan>> {
        let Some(pool) = &mut self.pool else { return Err(plan) };
        for (index, path) in self.paths.iter().enumerate() {
            pool.set_load(index, path.send_count());
        }
        if plan.packet_count() < SEAL_OFFLOAD_PACKETS_MIN || !pool.has_space() {
            return Err(plan);
        }
        pool.seal_by_worker(now, flow, connection.clone(), plan);
        Ok(())
    }

    fn queue_sealed(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        plan: Arc<P::Plan>,
        packets: P::Sealed,
        has_space: bool,
    ) -> Result<(), (Arc<P::Plan>, P::Sealed)> {
        match self.pool.as_mut().filter(|pool| pool.is_busy(flow) || !has_space) {
            Some(pool) => {
                pool.put(now, flow, connection.clone(), PoolFinished::Sealed { plan, packets: Some(packets) });
                Ok(())
            }
            None => Err((plan, packets)),
        }
    }

    fn run(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Arc<P::Job>,
        is_last: bool,
    ) -> Result<(), Arc<P::Job>> {
        let work = job.work_bytes();
        match self.pool.as_mut().filter(|pool| work >= OPEN_OFFLOAD_BYTES_MIN && pool.has_space_for(work, is_last)) {
            Some(pool) => {
                pool.run_by_worker(now, flow, connection.clone(), job);
                Ok(())
            }
            None => Err(job),
        }
    }

    fn queue_run(
        &mut self,
        now: Instant,
        flow: PathFlow,
        connection: &ConnectionRef<P>,
        job: Arc<P::Job>,
        output: JobOutput<P>,
    ) -> Result<(), (Arc<P::Job>, JobOutput<P>)> {
        match self.pool.as_mut().filter(|pool| pool.is_busy(flow)) {
            Some(pool) => {
                pool.put(now, flow, connection.clone(), PoolFinished::Ran { job, output: Some(output) });
                Ok(())
            }
            None => Err((job, output)),
        }
    }

    fn spare_plan(&mut self) -> P::Plan {
        self.pool.as_mut().map(CryptoPool::spare_plan).unwrap_or_default()
    }

    fn spare_job(&mut self) -> Box<P::OpenJob> {
        self.pool.as_mut().map(CryptoPool::spare_job).unwrap_or_default()
    }

    fn spare_packets(&mut self) -> P::Sealed {
        self.pool.as_mut().map(CryptoPool::spare_packets).unwrap_or_default()
    }

    fn spare_output(&mut self) -> JobOutput<P> {
        self.pool.as_mut().map(CryptoPool::spare_output).unwrap_or_default()
    }

    fn keep_output(&mut self, output: JobOutput<P>) {
        if let Some(pool) = &mut self.pool {
            pool.keep_output(output);
        }
    }

    fn keep_sealed(&mut self, plan: Arc<P::Plan>, packets: P::Sealed) {
        if let Some(pool) = &mut self.pool {
            pool.keep(plan, packets);
        }
    }

    fn keep_job(&mut self, job: Box<P::OpenJob>) {
        if let Some(pool) = &mut self.pool {
            pool.keep_job(job);
        }
    }

    // ── The receive worker ───────────────────────────────────────────────────────────────────────

    fn receive_instead(&mut self) {
        self.paths.iter_mut().for_each(PathWorker::receive_here);
    }

    fn takes_receive_halves(&self) -> bool {
        self.receiver.as_ref().is_some_and(ReceiveWorker::takes_halves)
    }

    fn has_space_for_updates(&self) -> bool {
        self.receiver.as_ref().is_none_or(ReceiveWorker::has_space)
    }

    fn poll_half_event(&mut self) -> Option<ReceiveHalfEvent<P>> {
        self.receiver.as_mut()?.take_event()
    }

    fn return_report(&mut self, report: P::HalfReport) {
        if let Some(receiver) = &mut self.receiver {
            receiver.keep_report(report);
        }
    }

    fn pause(&mut self, now: Instant) {
        if let Some(receiver) = &mut self.receiver {
            receiver.pause(now);
        }
    }

    fn detach(&mut self, now: Instant, key: ConnectionKey, half: P::ReceiveHalf) {
        if let Some(receiver) = &mut self.receiver {
            receiver.take(now, key, half);
        }
    }

    fn resume(&mut self, now: Instant) {
        if let Some(receiver) = &mut self.receiver {
            receiver.resume(now);
        }
    }

    fn update_receive_half(&mut self, now: Instant, key: ConnectionKey, connection: &mut P::Connection) {
        let Some(receiver) = &mut self.receiver else { return };
        let mut update = receiver.spare_update();
        let (has_update, is_recalled) = connection.poll_update(&mut update);
        if has_update {
            receiver.update(now, key, update);
        } else {
            receiver.keep_update(update);
        }
        if is_recalled {
            receiver.recall(now, key);
        }
    }

    fn recall(&mut self, now: Instant, key: ConnectionKey) {
        if let Some(receiver) = &mut self.receiver {
            receiver.recall(now, key);
        }
    }

    fn wake(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            receiver.wake();
        }
    }
}
