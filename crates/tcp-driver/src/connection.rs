//! [`TcpConnection`]: a TCP connection together with the state of its handles.

use std::net::IpAddr;
use std::sync::Arc;

use driver::protocol::{EventSummary, ReceiveHalf as _, Served, SocketsLost};
use driver::{Connection, EndReason, SendError};
use layers::RecordError;
use layers::secret::Salt;
use tcp::{CloseReason, Event, SoftError, State, TimeWait, Tuple};
use units::Instant;

use crate::application::{Closed, TcpCell};
use crate::counters::{Count, HostCounters};
use crate::delivery::Delivery;
use crate::detached::{ATTACHED_FOR, DetachedHalf, DetachedState, Report, Update};
use crate::info::TcpInfo;
use crate::layers::Layers;
use crate::listeners::Port;
use crate::packets::{OpenSegment, Opened, Received, SegmentPlan};
use crate::protocol::Tcp;
use crate::records::{Finished, RecordJob, RecordOutput, Records};
use crate::signature::Signature;

/// Limit on small writes that the driver sends before it receives.
const INTERACTIVE_MAX: u64 = 1024;

/// Number of bytes received between two visits that indicates a bulk transfer, for which it pays to
/// detach the receive half.
const BULK_FROM: usize = 8 << 10;

/// A TCP connection in a driver.
pub struct TcpConnection {
    connection: tcp::Connection,
    layers: Option<Arc<Layers>>,
    /// Verifier of the digests of its segments, if they have any.
    signature: Option<Arc<Signature>>,
    /// The cipher above TCP, if the stack has one.
    records: Option<Box<Records>>,
    cell: Arc<TcpCell>,
    counters: Arc<HostCounters>,
    socket: usize,
    is_accepted: bool,
    /// Whether a report that the peer is unreachable ends the attempt to connect.
    ends_if_unreachable: bool,
    /// Whether the protocol counts it among the half-open connections.
    is_half_open: bool,
    /// Change of routes that the protocol has not taken.
    route: Option<RouteChange>,
    /// Delivery to the application; `None` while the receive half is on another processor and has
    /// it.
    delivery: Option<Delivery>,
    detached: Option<Box<DetachedState>>,
    /// Whether the application has queried the state of the connection.
    wants_info: bool,
    /// Bytes received since the last visit. A large number is a reason to detach the receive half.
    arrived: usize,
    /// Time until which the receive half stays attached.
    attached_until: Instant,
    /// Whether the handles were notified of the end.
    is_close_reported: bool,
    /// Whether the last handle was dropped.
    is_dropped: bool,
    /// Whether, in addition, the connection has taken all written data.
    is_orphan: bool,
    /// Whether its route was removed.
    has_left: bool,
}

/// A change of the protocol's routes.
#[derive(Debug)]
pub(crate) enum RouteChange {
    Add {
        tuple: Tuple,
        /// Whether it is a peer's connection with an incomplete handshake.
        is_half_open: bool,
    },
    /// The handshake of a peer is complete.
    Connected,
    Remove {
        tuple: Tuple,
        /// Remaining connection that answers repeated segments for a while.
        time_wait: Option<TimeWait>,
    },
}

impl TcpConnection {
    pub(crate) fn new(
        connection: tcp::Connection,
        cell: Arc<TcpCell>,
        counters: Arc<HostCounters>,
        socket: usize,
        is_accepted: bool,
    ) -> Self {
        let is_half_open = is_accepted && connection.state() == State::SynReceived;
        let route = Some(RouteChange::Add { tuple: *connection.tuple(), is_half_open });
        cell.note_local(connection.tuple().local);
        let delivery = Some(Delivery::new(Arc::clone(&cell)));
        Self {
            connection,
            layers: None,
            signature: None,
            records: None,
            cell,
            counters,
            socket,
            is_accepted,
            ends_if_unreachable: false,
            is_half_open,
            route,
            delivery,
            detached: None,
            wants_info: false,
            arrived: 0,
            attached_until: Instant::ZERO,
            is_close_reported: false,
            is_dropped: false,
            is_orphan: false,
            has_left: false,
        }
    }

    /// Returns the port that the peer has connected to.
    pub(crate) fn port(&self) -> Option<&Arc<Port>> {
        self.cell.port()
    }

    /// Returns the underlying connection.
    pub const fn tcp(&self) -> &tcp::Connection {
        &self.connection
    }

    /// Adds the security layers of its stack. `salt` must be unique for each connection.
    pub(crate) fn with_layers(mut self, layers: Option<&Arc<Layers>>, salt: impl FnOnce() -> Salt) -> Self {
        self.records = Records::new(layers, salt);
        self.layers = layers.cloned();
        self
    }

    /// Adds the verifier of its segments.
    pub(crate) fn with_signature(self, signature: Option<Signature>) -> Self {
        Self { signature: signature.map(Arc::new), ..self }
    }

    /// Sets whether a report that the peer is unreachable ends the attempt to connect.
    pub(crate) fn with_end_if_unreachable(self, ends_if_unreachable: bool) -> Self {
        Self { ends_if_unreachable, ..self }
    }

    pub(crate) fn take_route_change(&mut self) -> Option<RouteChange> {
        let has_left = self.is_ending() && !self.connection.has_plan() && self.detached.is_none();
        if has_left && !std::mem::replace(&mut self.has_left, true) {
            // A connection that ends before its route was added has none.
            if let Some(RouteChange::Add { .. }) = self.route.take() {
                return None;
            }
            let tuple = *self.connection.tuple();
            return Some(RouteChange::Remove { tuple, time_wait: self.connection.time_wait() });
        }
        if let Some(route) = self.route.take() {
            return Some(route);
        }
        let is_connected = self.is_half_open && self.connection.state() != State::SynReceived;
        (is_connected && std::mem::take(&mut self.is_half_open)).then_some(RouteChange::Connected)
    }

    /// Passes written data to the send buffer while there is space. With a cipher, jobs take the
    /// data.
    fn take_written(&mut self) {
        if self.records.is_some() {
            return;
        }
        let connection = &mut self.connection;
        let space = connection.send_space();
        let is_finished = self.cell.take_written(space, |mut bytes| {
            // There is space, and the application has not finished. If the connection has ended,
            // the handles are notified.
            let _ended = connection.write(&mut bytes);
        });
        if is_finished {
            connection.finish();
            self.orphan_if_dropped();
        }
    }

    /// Detaches the application from the connection after the last handle was dropped. Called once
    /// the connection has taken all written data, because data left in the outbox must still be
    /// sent.
    fn orphan_if_dropped(&mut self) {
        if !self.is_dropped || self.is_orphan {
            return;
        }
        match &mut self.detached {
            // Only the detached half knows whether there are unread data.
            Some(detached) => detached.is_needed = true,
            None => {
                self.is_orphan = true;
                self.connection.orphan();
            }
        }
    }

    /// Passes received data on to the application.
    fn pass_received(&mut self) {
        if !self.is_read() || self.records.is_some() {
            return;
        }
        let (has_ended, connection) = (self.connection.close_reason().is_some(), &mut self.connection);
        match (&mut self.delivery, &mut self.detached) {
            (Some(delivery), _) => delivery.pass(has_ended, |len_max| connection.read(len_max)),
            (None, Some(detached)) => detached.wants_delivery = true,
            (None, None) => {}
        }
    }

    /// Returns whether the application still reads.
    fn is_read(&self) -> bool {
        !self.is_dropped && self.delivery.as_ref().is_none_or(|delivery| !delivery.has_passed_end)
    }

    /// Records that the end of the peer's data was passed on.
    fn note_passed_end(&mut self) {
        if let Some(delivery) = &mut self.delivery {
            delivery.has_passed_end = true;
        }
    }

    /// Returns whether the cipher still passes on received data.
    fn is_passing(&self) -> bool {
        self.is_read() && self.records.as_ref().is_some_and(|records| records.is_passing(&self.connection))
    }

    /// Ends the connection because the peer has sent an invalid record.
    fn fail(&mut self, error: RecordError) {
        tracing::debug!(%error, "a connection is reset");
        self.note_passed_end();
        self.connection.abort();
        self.cell.close(Closed::Records(error));
    }

    /// Reports the state of both halves to the application, if it was queried.
    fn answer_info(&mut self) {
        match &mut self.detached {
            Some(detached) => detached.is_needed |= self.wants_info,
            None if std::mem::take(&mut self.wants_info) => {
                self.cell.answer_info(TcpInfo::of(&self.connection));
                self.cell.wake();
            }
            None => {}
        }
    }

    /// Ends an attempt to connect to an unreachable peer. An established connection continues.
    fn give_up_connecting(&mut self) {
        if self.connection.state() == State::SynSent {
            self.cell.close(Closed::Tcp(CloseReason::Unreachable));
            self.connection.abort();
        }
    }

    fn take(&mut self, now: Instant, opened: Opened) {
        match opened {
            Opened::Segment(arrival) => {
                self.counters.add(Count::Taken);
                self.connection.handle_segment(now, arrival);
            }
            Opened::Error(error) => {
                self.counters.add(Count::Taken);
                self.connection.handle_icmp(now, &error);
            }
            Opened::Unauthentic => self.counters.add(Count::UnauthenticSegments),
            Opened::Dropped(reason) => self.counters.add(reason),
            Opened::Other => self.counters.add(Count::Unwanted),
        }
    }

    /// Returns whether nothing is left to do for the connection itself: in TIME-WAIT, and at the
    /// end.
    fn is_ending(&self) -> bool {
        matches!(self.connection.state(), State::Closed | State::TimeWait)
    }
}

impl Connection<Tcp> for TcpConnection {
    type Receipt = Option<u64>;

    fn serve(&mut self, _now: Instant) -> Served {
        let requests = self.cell.take_requests();
        if let Some(nagle) = requests.nagle {
            self.connection.set_nagle(nagle);
        }
        if let Some(keep_alive) = requests.keep_alive {
            self.connection.set_keep_alive(keep_alive);
        }
        if let Some(dscp) = requests.dscp {
            self.connection.set_dscp(dscp);
        }
        self.wants_info |= requests.wants_info;
        self.answer_info();
        self.is_dropped |= requests.is_dropped;
        self.take_written();
        // A peer must not take unread data for read (RFC 1122, section 4.2.2.13).
        if requests.is_aborted || requests.is_dropped_unread {
            self.connection.abort();
        }
        self.pass_received();
        let unsent = self.connection.unsent();
        Served { priority: None, is_interactive: unsent > 0 && unsent <= INTERACTIVE_MAX }
    }

    fn process_events(&mut self, _clock: &dyn Fn() -> Instant) -> EventSummary {
        let mut summary = EventSummary::default();
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Connected => {
                    (summary.is_established, summary.is_available) = (true, true);
                    self.cell.note_connected();
                }
                Event::Writable => self.take_written(),
                Event::Readable => self.pass_received(),
                Event::SoftError(SoftError::Unreachable) if self.ends_if_unreachable => self.give_up_connecting(),
                Event::SoftError(SoftError::OldTimestamps) => tracing::warn!(
                    tuple = %self.connection.tuple(),
                    "segments of a peer are dropped one after the other: its timestamps have gone back"
                ),
                _ => {}
            }
        }
        if self.records.as_ref().is_some_and(|records| records.has_sent_end()) {
            self.orphan_if_dropped();
        }
        if let Some(reason) = self.connection.close_reason() {
            if let Some(detached) = &mut self.detached {
                // The application gets the received data before it is notified of the end.
                detached.is_needed = true;
            } else if !self.is_passing() && !std::mem::replace(&mut self.is_close_reported, true) {
                summary.is_over = true;
                self.pass_received();
                self.cell.answer_info(TcpInfo::of(&self.connection));
                self.cell.close(Closed::Tcp(reason));
            }
        }
        self.cell.wake();
        summary
    }

    fn absorb(&mut self, now: Instant, _socket: usize, batch: Received) {
        self.take(now, batch.open(self.layers.as_deref(), self.signature.as_deref()));
    }

    fn begin_open(&mut self, _now: Instant, _socket: usize, _batch: &Received, job: &mut OpenSegment) -> bool {
        job.begin(self.layers.as_ref(), self.signature.as_ref());
        true
    }

    fn poll_job(&mut self) -> Option<RecordJob> {
        let is_read = self.is_read();
        let records = self.records.as_mut()?;
        match records.poll_job(&mut self.connection, &self.cell, is_read) {
            Ok(job) => job,
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn finish_job(&mut self, _now: Instant, job: &RecordJob, output: &mut RecordOutput) {
        let Some(records) = &mut self.records else { return };
        match records.finish_job(&mut self.connection, &self.cell, job, output) {
            Finished::Going => {}
            Finished::PeerEnded => {
                self.note_passed_end();
                self.cell.note_end();
            }
            Finished::Failed(error) => self.fail(error),
        }
    }

    fn absorb_opened(&mut self, now: Instant, job: &mut OpenSegment, _batch: Received) {
        self.take(now, std::mem::take(&mut job.opened));
    }

    fn poll_plan(&mut self, now: Instant, space: &dyn Fn(usize) -> usize, plan: &mut SegmentPlan) -> bool {
        let segments_max = space(self.socket);
        plan.socket = self.socket;
        plan.set_layers(self.layers.as_ref());
        segments_max > 0 && self.connection.poll_plan(now, segments_max, &mut plan.plan)
    }

    fn has_only_a_tail(&mut self, packets: usize) -> bool {
        self.connection.unsent() < packets as u64 * self.connection.segment()
    }

    fn receipt(plan: &SegmentPlan) -> Option<u64> {
        plan.plan.transmission()
    }

    fn handle_emitted(&mut self, now: Instant, receipt: &Option<u64>) {
        if let Some(transmission) = receipt {
            self.connection.handle_emitted(now, *transmission);
        }
    }

    fn handle_not_emitted(&mut self, _now: Instant, receipt: &Option<u64>, _error: &SendError) -> bool {
        self.handle_unsent(receipt);
        false
    }

    fn handle_unsent(&mut self, receipt: &Option<u64>) {
        if let Some(transmission) = receipt {
            self.connection.handle_not_emitted(*transmission);
        }
    }

    /// Ends the connection if it has lost its only device.
    fn handle_sockets_lost(&mut self, now: Instant, lost: &SocketsLost<'_>) -> bool {
        let is_gone = lost.is_gone && (lost.is_lost)(self.socket);
        if is_gone {
            self.end(now, EndReason::ProcessorGone);
        }
        is_gone
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
    }

    fn close(&mut self, _now: Instant, reason: EndReason) {
        self.cell.close(Closed::Driver(reason));
        self.connection.abort();
    }

    fn is_over(&self) -> bool {
        self.is_ending() && !self.connection.has_plan() && !self.is_passing()
    }

    fn end(&mut self, _now: Instant, reason: EndReason) {
        self.connection.abort();
        self.cell.close(Closed::Driver(reason));
    }

    fn abandon(&mut self, reason: EndReason) {
        self.cell.close(Closed::Driver(reason));
    }

    // ── A receive half on another processor ──────────────────────────────────────────────────────

    fn note_arrived(&mut self, len_bytes: usize) {
        self.arrived += len_bytes;
    }

    fn take_detach_request(&mut self, now: Instant) -> bool {
        let is_bulk = std::mem::take(&mut self.arrived) >= BULK_FROM;
        // With a cipher above it, received data go through jobs of the driver.
        let may_detach = self.delivery.is_some() && self.records.is_none();
        is_bulk && may_detach && self.attached_until <= now && self.connection.can_detach()
    }

    fn detach(&mut self) -> Option<Box<DetachedHalf>> {
        self.delivery.as_ref()?;
        let half = self.connection.detach()?;
        let delivery = self.delivery.take()?;
        self.detached = Some(Box::default());
        let terms = (self.layers.clone(), self.signature.clone());
        let counters = Arc::clone(&self.counters);
        Some(Box::new(DetachedHalf::new(*self.connection.tuple(), terms, counters, half, delivery)))
    }

    fn is_detached(&self) -> bool {
        self.detached.is_some()
    }

    fn has_detached_half(&self) -> bool {
        self.detached.as_ref().is_some_and(|detached| !detached.is_recalled)
    }

    fn owns(&self, half: &Box<DetachedHalf>) -> bool {
        half.cell().is_some_and(|cell| Arc::ptr_eq(&self.cell, &cell))
    }

    fn attach(&mut self, now: Instant, half: Box<DetachedHalf>) -> Vec<(usize, Received)> {
        let Some((half, delivery)) = half.into_parts() else { return Vec::new() };
        self.connection.attach(now, half);
        self.delivery = Some(delivery);
        (self.arrived, self.attached_until) = (0, now + ATTACHED_FOR);
        let deferred = self.detached.take().map(|detached| detached.deferred).unwrap_or_default();
        self.take_written();
        self.pass_received();
        self.answer_info();
        deferred
    }

    fn handle_report(&mut self, now: Instant, report: &mut Report) {
        self.connection.handle_report(now, &mut report.0);
    }

    fn must_update_half(&self) -> bool {
        self.connection.has_commands()
    }

    fn poll_update(&mut self, update: &mut Update) -> (bool, bool) {
        let Some(detached) = self.detached.as_mut().filter(|detached| !detached.is_recalled) else {
            return (false, false);
        };
        update.commands = self.connection.poll_commands();
        update.wants_delivery = std::mem::take(&mut detached.wants_delivery);
        (update.commands.is_some() || update.wants_delivery, detached.takes_recall())
    }

    fn note_quiet(&mut self) {
        if let Some(detached) = &mut self.detached {
            detached.is_quiet = true;
        }
    }

    fn defer(&mut self, socket: usize, batch: Received) -> bool {
        let is_kept = self.detached.as_mut().is_some_and(|detached| detached.defer(socket, batch));
        if !is_kept {
            self.counters.add(Count::QueueDrops);
        }
        is_kept
    }

    fn lose_receive_half(&mut self, now: Instant, reason: EndReason) -> usize {
        let Some(detached) = self.detached.take() else { return 0 };
        self.end(now, reason);
        self.counters.add_many(Count::LateDrops, detached.deferred.len() as u64);
        detached.deferred_packets()
    }

    fn local_ip(&self) -> Option<IpAddr> {
        Some(self.connection.tuple().local.ip())
    }

    fn is_accepted(&self) -> bool {
        self.is_accepted
    }
}
