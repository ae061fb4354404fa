//! A toy connection: the handshake of three segments, both halves, and the end.

use std::net::{IpAddr, SocketAddrV4};
use std::sync::Arc;

use driver::protocol::{Batch as _, EventSummary, Served};
use driver::{Connection, EndReason, SendError};
use units::{Duration, Instant};

use crate::app::{End, Fault, ToyCell};
use crate::detached::{DetachedHalf, Report, Update};
use crate::packets::{OpenJob, Plan, Planned, Segments};
use crate::protocol::{LINGER, RouteChange, Toy};
use crate::recv::{Decrypt, ReceiveHalf, ReceiveState, WINDOW};
use crate::send::{AckInfo, SendHalf};
use crate::wire::{ACK, FIN, HEADER_LEN, Hash, Header, PROBE, RST, SYN, Tuple};

const SYN_AGAIN: Duration = Duration::from_millis(100);
/// Maximum number of repetitions of the first segment without an answer.
pub(crate) const SYN_REPEATS_MAX: u32 = 50;
const BULK_FROM: usize = 8 << 10;
const DEFERRED_MAX: usize = 8;
/// Limit of bytes that are kept until they are acknowledged.
const SEND_BUFFER: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The first segment was sent.
    SynSent,
    /// The second segment was received. The third one is repeated until the peer sends another
    /// segment.
    Confirming,
    Open,
    Closed,
}

/// The state that the connection keeps while the receive half is detached.
struct Detached {
    state: ReceiveState,
    is_eof: bool,
    /// Whether the limit or the fault may have changed.
    has_changed: bool,
    is_quiet: bool,
    is_recalled: bool,
    deferred: Vec<(usize, Segments)>,
}

enum Receiving {
    Here(ReceiveHalf),
    There(Detached),
}

pub(crate) struct ToyConnection {
    pub(crate) cell: Arc<ToyCell>,
    pub(crate) tuple: Tuple,
    local: SocketAddrV4,
    is_accepted: bool,
    state: State,
    /// The number before the first byte of each stream.
    our_isn: u64,
    peer_isn: u64,
    send: SendHalf,
    receiving: Receiving,
    /// The limit for the peer, and the limit that was sent to it.
    limit: u64,
    announced_limit: u64,
    ack_due: bool,
    reset_due: bool,
    control_due: bool,
    control_at: Option<Instant>,
    /// Number of repetitions of the first segment.
    syn_repeats: u32,
    is_established_unreported: bool,
    end: Option<End>,
    is_end_reported: bool,
    route: Option<RouteChange>,
    bulk_arrives: bool,
    fault: Option<Fault>,
    /// The time of the last activity.
    now: Instant,
}

/// The content of a plan: offsets, and whether it was more than acknowledgements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receipt {
    /// The first offset. `None` without data.
    first: Option<u64>,
    is_control: bool,
}

impl ToyConnection {
    pub(crate) fn connect(cell: Arc<ToyCell>, local: SocketAddrV4, remote: SocketAddrV4, isn: u64) -> Self {
        let tuple = Tuple { remote, local_port: local.port() };
        Self {
            state: State::SynSent,
            control_due: true,
            is_established_unreported: false,
            is_accepted: false,
            ..Self::open(cell, local, tuple, isn, 0)
        }
    }

    /// Creates a connection of a peer whose third segment was received.
    pub(crate) fn open(cell: Arc<ToyCell>, local: SocketAddrV4, tuple: Tuple, our_isn: u64, peer_isn: u64) -> Self {
        let receiving = Receiving::Here(ReceiveHalf::new(Arc::clone(&cell), stream_key(peer_isn, our_isn)));
        Self {
            cell,
            tuple,
            local,
            is_accepted: true,
            state: State::Open,
            our_isn,
            peer_isn,
            send: SendHalf::new(),
            receiving,
            limit: WINDOW,
            announced_limit: WINDOW,
            ack_due: true,
            reset_due: false,
            control_due: false,
            control_at: None,
            syn_repeats: 0,
            is_established_unreported: true,
            end: None,
            is_end_reported: false,
            route: Some(RouteChange::Add(tuple)),
            bulk_arrives: false,
            fault: None,
            now: Instant::ZERO,
        }
    }

    pub(crate) fn take_route_change(&mut self) -> Option<RouteChange> {
        self.route.take()
    }

    fn check(&self, fault: Fault) {
        assert!(self.fault != Some(fault), "the test has requested this panic");
    }

    fn receive_state(&self) -> ReceiveState {
        match &self.receiving {
            Receiving::Here(half) => half.state(),
            Receiving::There(detached) => detached.state,
        }
    }

    fn close_with(&mut self, end: End, tells_peer: bool) {
        if self.state == State::Closed {
            return;
        }
        let knows_peer = self.state != State::SynSent;
        self.state = State::Closed;
        self.reset_due = tells_peer && knows_peer;
        (self.control_due, self.ack_due, self.control_at, self.send.deadline) = (false, false, None, None);
        let last = (end == End::Finished).then(|| (self.header(ACK, self.send.next()), self.now + LINGER));
        self.route = Some(RouteChange::Remove { tuple: self.tuple, last });
        self.end.get_or_insert(end);
    }

    /// Ends the connection when both streams are complete.
    fn look_for_end(&mut self) {
        let Receiving::Here(half) = &self.receiving else { return };
        // Only after the last acknowledgement was sent.
        if self.state == State::Open && self.send.is_finished() && half.is_eof() && !self.ack_due && !half.ack_due {
            self.close_with(End::Finished, false);
        }
    }

    /// Takes written data while the send buffer has space.
    fn take_written(&mut self) {
        let (chunks, is_finished) = self.cell.take_written(SEND_BUFFER.saturating_sub(self.send.backlog()));
        chunks.into_iter().for_each(|chunk| self.send.write(chunk));
        if is_finished {
            self.send.finish();
        }
    }

    // ── Receiving ────────────────────────────────────────────────────────────────────────────────

    fn absorb_segment(&mut self, now: Instant, header: &Header, payload: &[u8]) {
        match self.state {
            State::Closed => {}
            State::SynSent => self.absorb_answer(header),
            State::Confirming | State::Open => self.absorb_open(now, header, payload),
        }
    }

    fn absorb_answer(&mut self, header: &Header) {
        if !header.has(ACK) || header.ack != self.our_isn + 1 {
            return;
        }
        if header.has(RST) {
            self.close_with(End::Reset, false);
        } else if header.has(SYN) {
            self.peer_isn = header.seq;
            let half = ReceiveHalf::new(Arc::clone(&self.cell), stream_key(self.peer_isn, self.our_isn));
            self.receiving = Receiving::Here(half);
            self.state = State::Confirming;
            (self.control_due, self.control_at) = (true, None);
        }
    }

    fn absorb_open(&mut self, now: Instant, header: &Header, payload: &[u8]) {
        let first = self.peer_isn + 1;
        if header.has(RST) {
            // Only a reset with exactly the next number counts. Others are guesses.
            if header.seq == first + self.receive_state().next {
                self.close_with(End::Reset, false);
            }
            return;
        }
        if header.has(SYN) {
            // The answer to an old duplicate tells the peer the current numbers.
            self.ack_due = true;
            return;
        }
        let Some(offset) = header.seq.checked_sub(first) else { return };
        if std::mem::replace(&mut self.state, State::Open) == State::Confirming {
            (self.control_due, self.control_at, self.is_established_unreported) = (false, None, true);
        }
        if let Some(info) = ack_info(header, self.our_isn) {
            self.send.on_ack(now, info);
        }
        self.ack_due |= header.has(PROBE);
        if let Receiving::Here(half) = &mut self.receiving {
            half.absorb(header, offset, payload);
        }
    }

    /// Processes opened segments, each with its position in `batch`.
    pub(crate) fn absorb_segments(&mut self, now: Instant, opened: &[(usize, Header)], batch: &Segments) {
        self.check(Fault::Absorb);
        self.now = now;
        for (at, header) in opened {
            let payload = &batch.bytes[at + HEADER_LEN..at + header.segment_len()];
            self.absorb_segment(now, header, payload);
        }
        self.look_for_end();
    }

    // ── Sending ──────────────────────────────────────────────────────────────────────────────────

    fn header(&self, flags: u8, offset: u64) -> Header {
        let state = self.receive_state();
        Header {
            source: self.local,
            destination: self.tuple.remote,
            flags,
            len: 0,
            seq: self.our_isn + 1 + offset,
            ack: self.peer_isn + 1 + state.next,
            limit: self.peer_isn + 1 + self.limit,
            held: state.held,
        }
    }

    fn control(&self) -> Planned {
        let header = match self.state {
            State::SynSent => Header { ack: 0, seq: self.our_isn, ..self.header(SYN, 0) },
            _ => self.header(ACK, 0),
        };
        Planned { header, payload: None, offset: 0 }
    }

    fn is_ack_due(&self) -> bool {
        let half_wants = matches!(&self.receiving, Receiving::Here(half) if half.ack_due);
        matches!(self.state, State::Open | State::Confirming) && (self.ack_due || half_wants)
    }

    fn has_something(&self) -> bool {
        self.reset_due
            || self.control_due
            || self.is_ack_due()
            || (self.state == State::Open && (self.send.probe || self.send.may_send()))
    }

    fn fill(&mut self, now: Instant, packets_max: usize, plan: &mut Plan) {
        plan.key = stream_key(self.our_isn, self.peer_isn);
        plan.panics = self.fault == Some(Fault::Seal);
        if std::mem::take(&mut self.reset_due) {
            let header = self.header(RST | ACK, self.send.next());
            plan.segments.push(Planned { header, payload: None, offset: 0 });
            plan.receipt.is_control = true;
            return;
        }
        if std::mem::take(&mut self.control_due) {
            plan.segments.push(self.control());
            plan.receipt.is_control = true;
            self.control_at = Some(now + SYN_AGAIN);
            return;
        }
        while self.state == State::Open
            && plan.segments.len() < packets_max
            && let Some(outgoing) = self.send.poll()
        {
            plan.receipt.first = Some(plan.receipt.first.map_or(outgoing.offset, |first| first.min(outgoing.offset)));
            let flags = if outgoing.is_fin { ACK | FIN } else { ACK };
            let len = outgoing.payload.as_ref().map_or(0, |payload| payload.range.len()) as u16;
            let header = Header { len, ..self.header(flags, outgoing.offset) };
            plan.segments.push(Planned { header, payload: outgoing.payload, offset: outgoing.offset });
        }
        if plan.segments.is_empty() {
            let flags = if std::mem::take(&mut self.send.probe) { ACK | PROBE } else { ACK };
            plan.segments.push(Planned { header: self.header(flags, self.send.next()), payload: None, offset: 0 });
        }
        (self.ack_due, self.announced_limit) = (false, self.limit);
        if let Receiving::Here(half) = &mut self.receiving {
            half.ack_due = false;
        }
    }
}

/// Returns the key of the stream that begins after `sender`.
fn stream_key(sender: u64, receiver: u64) -> u64 {
    Hash::of(&[sender, receiver])
}

/// Returns the acknowledgement in a segment, in offsets of our stream. `None` if it is invalid.
pub(crate) fn ack_info(header: &Header, our_isn: u64) -> Option<AckInfo> {
    let (ack, limit) = (header.ack.checked_sub(our_isn + 1)?, header.limit.checked_sub(our_isn + 1)?);
    header.has(ACK).then_some(AckInfo { ack, limit, held: header.held })
}

impl Connection<Toy> for ToyConnection {
    type Receipt = Receipt;

    fn serve(&mut self, now: Instant) -> Served {
        let (aborted, fault) = self.cell.begin_service();
        self.fault = fault;
        self.check(Fault::Serve);
        self.take_written();
        self.limit = self.cell.bytes_read() + WINDOW;
        self.ack_due |= self.limit >= self.announced_limit + WINDOW / 4;
        match &mut self.receiving {
            Receiving::Here(half) => (half.limit, half.fault) = (self.limit, fault),
            Receiving::There(detached) => detached.has_changed = true,
        }
        if aborted {
            self.close(now, EndReason::EndpointClosed);
        }
        Served { priority: None, is_interactive: false }
    }

    fn process_events(&mut self, _clock: &dyn Fn() -> Instant) -> EventSummary {
        self.check(Fault::Events);
        // Acknowledgements may have made space.
        self.take_written();
        let is_established = std::mem::take(&mut self.is_established_unreported);
        let mut summary = EventSummary { is_established, is_available: is_established, is_over: false };
        if summary.is_established {
            self.cell.note_connected();
        }
        self.look_for_end();
        if let Some(end) = self.end.clone()
            && !std::mem::replace(&mut self.is_end_reported, true)
        {
            summary.is_over = true;
            self.cell.end(end);
        }
        self.cell.wake();
        summary
    }

    fn absorb(&mut self, now: Instant, _socket: usize, mut batch: Segments) {
        let mut job = OpenJob::default();
        driver::protocol::OpenJob::open(&mut job, &mut batch);
        self.absorb_segments(now, &job.opened, &batch);
    }

    fn begin_open(&mut self, _now: Instant, _socket: usize, _batch: &Segments, _job: &mut OpenJob) -> bool {
        true
    }

    fn absorb_opened(&mut self, now: Instant, job: &mut OpenJob, batch: Segments) {
        self.absorb_segments(now, &job.opened, &batch);
    }

    fn poll_job(&mut self) -> Option<Decrypt> {
        match &mut self.receiving {
            Receiving::Here(half) => half.poll_job(),
            Receiving::There(_) => None,
        }
    }

    fn finish_job(&mut self, _now: Instant, job: &Decrypt, output: &mut Vec<u8>) {
        if let Receiving::Here(half) = &mut self.receiving {
            half.finish_job(job, output);
        }
    }

    fn poll_plan(&mut self, now: Instant, space: &dyn Fn(usize) -> usize, plan: &mut Plan) -> bool {
        self.check(Fault::Plan);
        self.send.watch_window(now);
        if !self.has_something() {
            return false;
        }
        let packets_max = space(0);
        if packets_max == 0 {
            return false;
        }
        plan.segments.clear();
        plan.receipt = Receipt::default();
        self.fill(now, packets_max, plan);
        true
    }

    fn has_only_a_tail(&mut self, packets: usize) -> bool {
        self.send.unsent() < (packets * crate::wire::MSS) as u64
    }

    fn receipt(plan: &Plan) -> Receipt {
        plan.receipt.clone()
    }

    fn handle_emitted(&mut self, now: Instant, receipt: &Receipt) {
        self.now = now;
        if receipt.first.is_some() {
            self.send.on_emitted(now);
        }
        self.look_for_end();
    }

    fn handle_not_emitted(&mut self, _now: Instant, receipt: &Receipt, _error: &SendError) -> bool {
        self.handle_unsent(receipt);
        false
    }

    fn handle_unsent(&mut self, receipt: &Receipt) {
        if let Some(first) = receipt.first {
            self.send.on_not_emitted(first);
        }
        self.control_due |= receipt.is_control && matches!(self.state, State::SynSent | State::Confirming);
        self.ack_due = true;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.send.deadline.into_iter().chain(self.control_at).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.check(Fault::Timeout);
        if self.control_at.is_some_and(|at| at <= now) {
            self.syn_repeats += u32::from(self.state == State::SynSent);
            if self.syn_repeats > SYN_REPEATS_MAX {
                return self.close_with(End::TimedOut, false);
            }
            (self.control_due, self.control_at) = (true, None);
        }
        self.send.on_timeout(now);
    }

    fn close(&mut self, _now: Instant, reason: EndReason) {
        self.close_with(End::Closed(reason), true);
    }

    fn is_over(&self) -> bool {
        self.state == State::Closed && !self.reset_due
    }

    fn end(&mut self, _now: Instant, reason: EndReason) {
        self.close_with(End::Closed(reason.clone()), false);
        self.cell.end(self.end.clone().unwrap_or(End::Closed(reason)));
    }

    fn abandon(&mut self, reason: EndReason) {
        self.cell.end(End::Closed(reason));
    }

    fn note_arrived(&mut self, len_bytes: usize) {
        self.bulk_arrives |= len_bytes >= BULK_FROM;
    }

    fn take_detach_request(&mut self, _now: Instant) -> bool {
        self.state == State::Open
            && matches!(&self.receiving, Receiving::Here(half) if !half.is_eof())
            && std::mem::take(&mut self.bulk_arrives)
    }

    fn detach(&mut self) -> Option<DetachedHalf> {
        let state = self.receive_state();
        match &self.receiving {
            Receiving::Here(half) if self.state == State::Open && !half.has_jobs() => {}
            _ => return None,
        }
        let detached = Detached {
            state,
            is_eof: false,
            has_changed: false,
            is_quiet: false,
            is_recalled: false,
            deferred: Vec::new(),
        };
        match std::mem::replace(&mut self.receiving, Receiving::There(detached)) {
            Receiving::Here(mut half) => {
                self.ack_due |= std::mem::take(&mut half.ack_due);
                Some(DetachedHalf::new(half, self.tuple, self.our_isn, self.peer_isn))
            }
            Receiving::There(_) => None,
        }
    }

    fn is_detached(&self) -> bool {
        matches!(self.receiving, Receiving::There(_))
    }

    fn has_detached_half(&self) -> bool {
        matches!(&self.receiving, Receiving::There(detached) if !detached.is_recalled)
    }

    fn owns(&self, half: &DetachedHalf) -> bool {
        Arc::ptr_eq(&half.half.cell, &self.cell)
    }

    fn attach(&mut self, now: Instant, mut half: DetachedHalf) -> Vec<(usize, Segments)> {
        if let Some(mut report) = driver::protocol::ReceiveHalf::report(&mut half) {
            self.handle_report(now, &mut report);
        }
        let mut half = half.half;
        (half.fault, self.bulk_arrives) = (self.fault, false);
        half.limit = self.limit;
        let detached = match std::mem::replace(&mut self.receiving, Receiving::Here(half)) {
            Receiving::There(detached) => detached.deferred,
            Receiving::Here(_) => Vec::new(),
        };
        self.look_for_end();
        detached
    }

    fn handle_report(&mut self, now: Instant, report: &mut Report) {
        for info in report.acks.drain(..) {
            self.send.on_ack(now, info);
        }
        self.ack_due |= report.ack_due;
        if let Receiving::There(detached) = &mut self.receiving {
            (detached.state, detached.is_eof) = (report.state, report.is_eof);
        }
    }

    fn poll_update(&mut self, update: &mut Update) -> (bool, bool) {
        let is_closed = self.state == State::Closed;
        (update.limit, update.fault) = (self.limit, self.fault);
        let Receiving::There(detached) = &mut self.receiving else { return (false, false) };
        if detached.is_recalled {
            return (false, false);
        }
        let has_update = std::mem::take(&mut detached.has_changed);
        detached.is_recalled = is_closed || detached.is_eof || detached.is_quiet || !detached.deferred.is_empty();
        (has_update, detached.is_recalled)
    }

    fn note_quiet(&mut self) {
        if let Receiving::There(detached) = &mut self.receiving {
            detached.is_quiet = true;
        }
    }

    fn defer(&mut self, socket: usize, batch: Segments) -> bool {
        if let Receiving::There(detached) = &mut self.receiving
            && detached.deferred.len() < DEFERRED_MAX
        {
            detached.deferred.push((socket, batch));
            return true;
        }
        false
    }

    fn lose_receive_half(&mut self, _now: Instant, reason: EndReason) -> usize {
        let Receiving::There(detached) = &self.receiving else { return 0 };
        let dropped = detached.deferred.iter().map(|(_, batch)| batch.packet_count()).sum();
        self.receiving = Receiving::Here(ReceiveHalf::new(Arc::clone(&self.cell), 0));
        self.close_with(End::Closed(reason), true);
        dropped
    }

    fn local_ip(&self) -> Option<IpAddr> {
        Some((*self.local.ip()).into())
    }

    fn is_accepted(&self) -> bool {
        self.is_accepted
    }
}
