//! Fills plans: which frames go into which packet, and how many packets may leave.
//!
//! During the handshake, a plan is one datagram with coalesced packets of several spaces.
//! Afterwards it is a batch of 1-RTT packets of one path, all of the same size except the last; the
//! scheduler chooses the path. Each case has its own file; shared code is here. `at` is always the
//! index of the path for which a plan is made.

mod central_acks;
mod close;
mod confined;
mod data;
mod datagram_run;
mod handshake;
mod packet_run;
mod paths;
mod retransmit;

use recovery::SendStamp;
use units::{Duration, Instant, Rng};
use wire::quic::frame::{ack_len_max, emit_ack};
use wire::quic::{PacketType, PathId, Space, number_len};

use super::SendHalf;
use super::draft::{Draft, HeaderFields, lone_stream};
use super::frames::SentFrame;
use super::sent_log::{Content, Run};
use crate::exchange::{Exchange, ToControl, ToReceive};
use crate::plan::{PLAN_DATAGRAMS_MAX, Plan};
use crate::receive::acks::snapshot::{AckSnapshot, Snapshot};
use crate::spaces::DATA;

/// Ranges in one ACK frame: all that the receive half remembers, so that each is reported at least
/// once.
const ACK_RANGES_SENT_MAX: usize = crate::receive::acks::RANGES_MAX;

/// Our ack_delay_exponent: the default, so that it need not be sent (RFC 9000, section 18.2).
pub(crate) const ACK_DELAY_EXPONENT: u32 = 3;

/// The longest encoding of a path ID, bytes.
const PATH_LEN_MAX: usize = 8;

impl SendHalf {
    /// Fills `plan` with the packets that may leave now on one path, up to the space in its socket.
    /// Returns false if there are none.
    pub(crate) fn plan(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        socket_budget: &dyn Fn(u16) -> usize,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) -> bool {
        plan.clear();
        plan.planned_at = now;
        self.found_nothing_due = false;
        let socket_budget = |socket: u16| socket_budget(socket).min(PLAN_DATAGRAMS_MAX);
        let mut off_path = None;
        let at = if self.close.is_some() {
            let is_writable = |at: &usize| socket_budget(self.paths[*at].link.addresses.socket) > 0;
            let due = (0..self.paths.len().min(64)).filter(|at| self.close_due & 1 << at != 0).find(is_writable);
            if let Some(at) = due {
                self.plan_close(at, plan);
            }
            due.unwrap_or(0)
        } else if !self.off_paths.is_empty()
            && let Some((at, addresses)) = self.plan_off_path(&socket_budget, plan, exchange)
        {
            off_path = Some(addresses);
            at
        } else if self.paths.len() > 1 {
            self.plan_paths(now, snapshot, &socket_budget, plan, exchange)
        } else {
            let datagrams_max = socket_budget(self.paths[0].link.addresses.socket);
            if datagrams_max == 0 {
                return false;
            }
            self.streams.begin_plan(now, self.paths.first_mut());
            if self.keys.has_handshake() {
                self.plan_handshake(now, snapshot, plan, exchange);
            } else if self.keys[DATA].is_some() {
                self.plan_data(now, 0, PlanScope::All, snapshot, datagrams_max, plan, exchange);
            }
            self.streams.end_plan();
            0
        };
        if plan.items.is_empty() {
            return false;
        }
        self.datagrams.on_planned(now);
        for space in Space::ALL {
            if plan.numbers[space.index()].is_some() {
                plan.keys[space.index()].clone_from(&self.keys[space.index()]);
            }
        }
        let path = &mut self.paths[at];
        plan.path = path.id;
        plan.addresses = Some(off_path.unwrap_or(path.link.addresses));
        plan.ecn = path.recovery.ecn.codepoint();
        if off_path.is_none() {
            path.link.on_sent(plan.size_bytes as u64);
        }
        path.counts.packets_sent += plan.packet_count as u64;
        self.stats.datagrams_sent += plan.datagram_count as u64;
        self.stats.bytes_sent += plan.size_bytes as u64;
        self.stats.packets_sent += plan.packet_count as u64;
        self.stats.plans += 1;
        true
    }

    pub(super) fn fields<'a>(
        &self,
        at: usize,
        ty: PacketType,
        number_len: usize,
        token: &'a [u8],
        fixed_bit: bool,
    ) -> HeaderFields<'a> {
        let path = &self.paths[at];
        HeaderFields {
            ty,
            version: self.version,
            number: self.spaces[Self::index_of(ty.space(), at)].next_number,
            number_len,
            dcid: path.link.remote_id,
            scid: self.local_id,
            token,
            key_phase: self.key_phase % 2 == 1,
            fixed_bit,
        }
    }

    /// RFC 9287: a random QUIC bit for a peer that ignores it. Never on Initial packets, which a
    /// server may have to route before it knows our parameters (section 3.1 allows those only with
    /// a token from the same server).
    ///
    /// A function of the path and the first packet number, so that polling for a plan without data
    /// does not change the bit of the plan that follows.
    pub(super) fn fixed_bit(&self, at: usize, space: Space) -> bool {
        let greases = self.peer.grease_quic_bit && self.config.grease && space != Space::Initial;
        let number = self.spaces[Self::index_of(space, at)].next_number;
        // After 2^32 packets the bits repeat those of another path, which is harmless.
        let of_path = (space.index() as u64) << 62 ^ u64::from(self.paths[at].id.0) << 32;
        !greases || Rng::from_seed(self.seed ^ of_path ^ number).next_u64() & 1 == 0
    }

    /// Length of the packet numbers of the next `count` packets, bytes.
    pub(super) fn number_len(&self, at: usize, space: Space, count: u64) -> usize {
        let space = &self.spaces[Self::index_of(space, at)];
        number_len(space.next_number + count, space.largest_acked)
    }

    fn maybe_skip_number(&mut self, at: usize, plan: &Plan) {
        // Only between plans: the packet numbers of a plan are consecutive.
        if plan.items.is_empty() {
            self.paths[at].numbers.maybe_skip(&mut self.spaces[DATA + at], &mut self.rng);
        }
    }

    /// Logs a packet, unless nothing about it needs to be remembered.
    #[expect(clippy::too_many_arguments, reason = "one packet's facts; a struct would only rename them")]
    pub(super) fn record(
        &mut self,
        now: Instant,
        at: usize,
        space: Space,
        number: u64,
        size: usize,
        eliciting: bool,
        in_flight: bool,
        frames: &mut Vec<SentFrame>,
        exchange: &mut Exchange,
    ) {
        if !in_flight {
            // Neither ack-eliciting nor in flight: only its time may be of use.
            self.spaces[Self::index_of(space, at)].ack_only.on_sent(number, now);
            self.note_first_sent(space, number, exchange);
            frames.clear();
            return;
        }
        let log = &mut self.spaces[Self::index_of(space, at)].log;
        let content = match lone_stream(frames) {
            Some((id, range)) => {
                frames.clear();
                Content::Stream { id, offset: range.start, stride: (range.end - range.start) as u32 }
            }
            None if frames[..] == [SentFrame::Datagram] => {
                frames.clear();
                Content::Datagram
            }
            None => log.store_frames(frames),
        };
        let stamp = SendStamp::default();
        let (size, moved) = (size as u16, false);
        let run = Run { first: number, count: 1, size, eliciting, moved, sent_at: now, stamp, content };
        self.log_run(at, space, run, exchange);
    }

    /// Logs packets that count as in flight, and updates the timers and counters that depend on
    /// them.
    fn log_run(&mut self, at: usize, space: Space, mut run: Run, exchange: &mut Exchange) {
        let (now, bytes) = (run.sent_at, run.in_flight_bytes());
        self.note_first_sent(space, run.first, exchange);
        if run.eliciting {
            if !self.elicited {
                self.elicited = true;
                exchange.to_control.push_back(ToControl::ElicitingSent { at: now });
            }
            (self.paths[at].recovery.probe_anchor, self.paths[at].pings.is_due) = (now, false);
        }
        let path = &mut self.paths[at];
        path.recovery.in_flight += bytes;
        if bytes > 0 {
            run.stamp = path.recovery.delivery.on_sent(now, bytes, path.recovery.in_flight);
        }
        self.spaces[Self::index_of(space, at)].log.push(run);
        path.recovery.congestion.on_sent(now, bytes, path.recovery.in_flight);
    }

    fn note_first_sent(&self, space: Space, number: u64, exchange: &mut Exchange) {
        if number == 0 {
            exchange.to_control.push_back(ToControl::FirstSent(space));
        }
    }

    /// Requests a key update before the AEAD's confidentiality limit is near (RFC 9001, section
    /// 6.6).
    pub(super) fn count_sealed_packets(&mut self, packets: u64, exchange: &mut Exchange) {
        let before = self.sealed_in_phase;
        self.sealed_in_phase += packets;
        if before < self.config.key_update_interval && self.sealed_in_phase >= self.config.key_update_interval {
            exchange.to_control.push_back(ToControl::KeyWornOut);
        }
        // A peer that never follows a key update must not make us exceed the limit (RFC 9001,
        // section 6.6).
        let limit = self.keys[DATA].as_ref().map_or(u64::MAX, |keys| keys.packet.confidentiality_limit());
        if self.sealed_in_phase.saturating_add(PLAN_DATAGRAMS_MAX as u64) > limit {
            exchange.to_control.push_back(ToControl::KeyExhausted);
        }
    }
}

/// The frames that a plan for a path may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanScope {
    /// Everything that is due.
    All,
    /// As much of it as the probes that are due carry.
    Probes,
    /// Everything but stream data.
    NoStreams,
    /// Only frames bound to the path: acknowledgements, challenges and responses.
    PathBound,
}

impl PlanScope {
    /// Whether the plan is as large as the path allows, and not just what has to leave.
    const fn fills_window(self) -> bool {
        matches!(self, Self::All | Self::NoStreams)
    }

    const fn has_streams(self) -> bool {
        matches!(self, Self::All | Self::Probes)
    }
}

/// Writes an acknowledgement; with `multipath` it names its path (multipath draft-21, section 2.3).
#[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
fn put_ack(
    now: Instant,
    space: Space,
    path: PathId,
    multipath: bool,
    ack: &AckSnapshot,
    draft: &mut Draft,
    plan: &mut Plan,
    frames: &mut Vec<SentFrame>,
    exchange: &mut Exchange,
) {
    let Some(largest) = ack.ranges.max() else { return };
    // The number of ranges that always fit: each takes at most two eight-byte integers besides the
    // fixed part.
    let least = ack_len_max(1) + PATH_LEN_MAX;
    let fit = draft.bytes_left.saturating_sub(least) / 16 + 1;
    if draft.bytes_left < least {
        return;
    }
    let ranges = ack.ranges.iter().rev().take(ACK_RANGES_SENT_MAX.min(fit)).map(|range| range.start..=range.end - 1);
    let delay = now.saturating_since(ack.largest_at);
    let delay = if space == Space::Data { delay } else { Duration::ZERO };
    let named = (multipath && space == Space::Data).then_some(path);
    let counts = ack.ecn_counts();
    draft.put_head(plan, |out| emit_ack(named, delay.as_micros() >> ACK_DELAY_EXPONENT, ranges, counts, out));
    plan.acks[space.index()] = true;
    frames.push(SentFrame::Ack { path, largest });
    exchange.to_receive.push_back(ToReceive::AckSent { space, path, eliciting: ack.eliciting });
}
