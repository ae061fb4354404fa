//! Choice of the next segments to send.

use units::{Instant, Seq32};
use wire::tcp::{Flags, HEADER_LEN, Header, Options};

use super::{Connection, Reset};
use crate::md5::MD5_LEN;
use crate::plan::{PLAN_BYTES_MAX, Plan};
use crate::receive::ReceiveHalf;
use crate::send::next::Next;
use crate::state::State;

/// Length limit of the options (RFC 9293, section 3.1).
const OPTIONS_LEN_MAX: u16 = 40;

impl Connection {
    /// Fills `plan` with segments that may be sent now, at most `segments_max`. Returns false if
    /// there are none. The contents count as sent at `now`;
    /// [`handle_emitted`](Self::handle_emitted) reports the actual time.
    pub fn poll_plan(&mut self, now: Instant, segments_max: usize, plan: &mut Plan) -> bool {
        if self.journal.is_some() {
            return self.plan_recorded(now, segments_max, plan);
        }
        plan.release();
        plan.tuple = self.tuple;
        (plan.dscp, plan.ecn) = (self.dscp, None);
        plan.sign(self.config.md5.as_ref());
        plan.segment = self.send.segment() as usize;
        if let Some(reset) = self.reset_due.take() {
            self.fill_reset(now, reset, plan);
            return true;
        }
        if self.state == State::Closed {
            return false;
        }
        self.watch_orphan(now);
        if let Some(receive) = &mut self.receive {
            receive.tune(now, self.send.rtt().smoothed());
        }
        // SACK blocks leave in a separate segment: a full segment has no space for them.
        let needs_own = |receive: &ReceiveHalf| (receive.is_ack_due() && receive.has_blocks()) || receive.is_code_due();
        if self.send.is_syn_acked() && self.receive.as_ref().is_some_and(needs_own) {
            self.fill_ack(now, plan);
            return true;
        }
        let segments_max = if self.is_cwr_counter() { 1 } else { segments_max };
        let segment = self.send.segment();
        // Each plan fits at least one segment: `negotiated` has ensured that it fits into a packet.
        let bytes_max = (segments_max as u64 * segment).min(PLAN_BYTES_MAX as u64).max(segment);
        if let Some(next) = self.send.next(now, bytes_max, &mut plan.pieces) {
            self.fill(now, &next, plan);
            if next.has_fin {
                self.state.on_fin_sent();
            }
            return true;
        }
        // Before our SYN is acknowledged, an acknowledgement only answers an unacceptable segment
        // (RFC 9293, section 3.10.7.4, first check).
        if self.receive.as_ref().is_some_and(|receive| receive.is_ack_due()) && self.send.is_syn_sent() {
            self.fill_ack(now, plan);
            return true;
        }
        self.take_keep_alive(now, plan)
    }

    /// Records that the plan `transmission` leaves now. Call it before the system call, so that no
    /// answer overtakes it.
    pub fn handle_emitted(&mut self, now: Instant, transmission: u64) {
        self.record(|journal| journal.emitted(now, transmission));
        self.send.handle_emitted(now, transmission);
    }

    /// Records that the plan `transmission` was not and will not be sent: its contents are planned
    /// again.
    pub fn handle_not_emitted(&mut self, transmission: u64) {
        self.record(|journal| journal.not_emitted(transmission));
        self.send.handle_not_emitted(transmission);
    }

    fn fill(&mut self, now: Instant, next: &Next, plan: &mut Plan) {
        plan.transmission = Some(next.transmission);
        plan.data_len = next.data_len as usize;
        if next.is_probe {
            plan.segment = plan.data_len;
        }
        let seq = self.send.space().wire(next.start);
        if next.has_syn {
            let (options, flags) = self.syn(now);
            let (ack, window) = match &mut self.receive {
                Some(receive) => (receive.snapshot_of_syn(), receive.unscaled_window()),
                None => (Seq32::new(0), self.config.initial_window()),
            };
            plan.header = self.header(seq, ack, flags, window, options);
            return;
        }
        let flag = |is_set: bool, flag: Flags| if is_set { flag } else { Flags::default() };
        let flags = flag(next.has_fin, Flags::FIN) | flag(next.is_push, Flags::PSH) | flag(next.is_cwr, Flags::CWR);
        self.fill_header(now, seq, flags, 0, plan);
        plan.ecn = next.ecn;
    }

    /// Returns whether CWR is now a bit of the marked packet count. A device that segments a plan
    /// clears CWR in all segments but the first, as RFC 3168 requires.
    fn is_cwr_counter(&self) -> bool {
        self.negotiated.accurate_ecn
            && self.receive.as_ref().is_some_and(|receive| receive.mark_flags().contains(Flags::CWR))
    }

    /// Fills `plan` with a segment without data.
    fn fill_ack(&mut self, now: Instant, plan: &mut Plan) {
        // Space left in the 40 bytes of options: four blocks, three beside timestamps (RFC 2018,
        // section 3), two beside a digest, none beside both.
        let blocks_max = usize::from((OPTIONS_LEN_MAX - self.options_len()).saturating_sub(4) / 8);
        let counters = self.receive.as_mut().and_then(ReceiveHalf::mark_counters);
        self.fill_header(now, self.send.nxt_on_wire(), Flags::default(), blocks_max, plan);
        // Blocks and a digest take precedence.
        let digest_len = if self.config.md5.is_some() { MD5_LEN } else { 0 };
        plan.header.options.accecn = counters;
        if plan.header.len() + usize::from(digest_len) > HEADER_LEN + usize::from(OPTIONS_LEN_MAX) {
            plan.header.options.accecn = None;
        }
    }

    /// Fills in the header of a segment that acknowledges the received data.
    pub(super) fn fill_header(&mut self, now: Instant, seq: Seq32, flags: Flags, blocks_max: usize, plan: &mut Plan) {
        let Some(receive) = &mut self.receive else { return };
        let snapshot = receive.snapshot(blocks_max);
        let timestamps = self.negotiated.timestamps.then(|| self.stamp(now));
        let options = Options { timestamps, sack: snapshot.sack, ..Options::default() };
        plan.header = self.header(seq, snapshot.ack, flags | Flags::ACK | snapshot.marks, snapshot.window, options);
    }

    fn fill_reset(&mut self, now: Instant, reset: Reset, plan: &mut Plan) {
        let (seq, ack, flags) = match (reset, &self.receive) {
            (Reset::Abort(seq), Some(receive)) => (seq, receive.nxt_on_wire(), Flags::RST | Flags::ACK),
            // In these states it must not acknowledge anything (RFC 9293, sections 3.10.7.3 and
            // 3.10.7.4).
            (Reset::Abort(seq) | Reset::Unacceptable(seq), _) => (seq, Seq32::new(0), Flags::RST),
        };
        // A peer that checks timestamps may check that of a reset, too (RFC 7323, section 3.2).
        let timestamps = self.negotiated.timestamps.then(|| self.stamp(now));
        plan.header = self.header(seq, ack, flags, 0, Options { timestamps, ..Options::default() });
    }

    fn header(&self, seq: Seq32, ack: Seq32, flags: Flags, window: u16, options: Options) -> Header {
        Header {
            source_port: self.tuple.local.port(),
            destination_port: self.tuple.remote.port(),
            seq,
            ack,
            flags,
            window,
            urgent: 0,
            options,
        }
    }
}
