//! Fills plans: which frames go into which packet, and how many packets may leave.
//!
//! During the handshake, a plan is one datagram with coalesced packets of several spaces.
//! Afterwards it is a batch of 1-RTT packets of one path, all of the same size except the last; the
//! scheduler chooses the path. Each case has its own file; shared code is here. `pass` has what all
//! steps of one plan need.

mod central_acks;
mod close;
mod confined;
mod data;
mod datagram_run;
mod handshake;
mod packet_run;
mod pass;
mod paths;
mod retransmit;

pub(super) use pass::{HeaderForm, LoggedPacket, Pass};

use recovery::SendStamp;
use units::{Duration, Instant};
use wire::quic::frame::{ack_len_max, emit_ack};
use wire::quic::{PacketType, PathId, Space, number_len};

use super::SendHalf;
use super::draft::{Draft, HeaderFields, lone_stream};
use super::frames::SentFrame;
use super::sent_log::{Content, Run};
use crate::addresses::Addresses;
use crate::exchange::{Exchange, ToControl, ToReceive};
use crate::plan::Plan;
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
        let mut pass = Pass { now, at: 0, snapshot, socket_budget, plan, exchange };
        let off_path = self.fill_plan(&mut pass);
        if pass.is_empty() {
            return false;
        }
        self.note_planned(&mut pass, off_path);
        true
    }

    /// Fills the plan, and chooses its path. Returns the address if it is not that of the path.
    fn fill_plan(&mut self, pass: &mut Pass<'_>) -> Option<Addresses> {
        if self.closing.is_begun() {
            let is_writable = |at: &usize| pass.budget_of(&self.paths[*at]) > 0;
            let due = (0..self.paths.len()).filter(|at| self.closing.is_due_on(*at)).find(is_writable);
            if let Some(at) = due {
                pass.at = at;
                self.plan_close(at, pass.plan);
            }
            return None;
        }
        if !self.off_paths.is_empty()
            && let Some(addresses) = self.plan_off_path(pass)
        {
            return Some(addresses);
        }
        if self.paths.len() > 1 {
            self.plan_paths(pass);
            return None;
        }
        let datagrams_max = pass.budget_of(&self.paths[0]);
        if datagrams_max > 0 {
            let path = &mut self.paths[0];
            self.streams.begin_plan(pass.now, Some(path.id), || path.background_budget());
            if self.seal.by_space.has_handshake() {
                self.plan_handshake(pass);
            } else if self.seal.by_space[DATA].is_some() {
                self.plan_data(pass, PlanScope::All, datagrams_max);
            }
            self.streams.end_plan();
        }
        None
    }

    /// Completes a plan with keys and addresses, and counts it.
    fn note_planned(&mut self, pass: &mut Pass<'_>, off_path: Option<Addresses>) {
        let plan = &mut *pass.plan;
        self.datagrams.on_planned(pass.now);
        for space in Space::ALL {
            if plan.numbers[space.index()].is_some() {
                plan.keys[space.index()].clone_from(&self.seal.by_space[space.index()]);
            }
        }
        let path = &mut self.paths[pass.at];
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
    }

    pub(super) fn fields<'a>(&self, at: usize, ty: PacketType, form: HeaderForm, token: &'a [u8]) -> HeaderFields<'a> {
        let path = &self.paths[at];
        HeaderFields {
            ty,
            version: self.long.version,
            number: self.spaces[Self::index_of(ty.space(), at)].next_number,
            number_len: form.number_len,
            dcid: path.link.remote_id,
            scid: self.long.local_id,
            token,
            key_phase: self.seal.phase_bit(),
            fixed_bit: form.fixed_bit,
        }
    }

    /// RFC 9287: a random QUIC bit for a peer that ignores it. Never on Initial packets, which a
    /// server may have to route before it knows our parameters (section 3.1 allows those only with
    /// a token from the same server).
    fn fixed_bit(&self, at: usize, space: Space) -> bool {
        let greases = self.peer.grease_quic_bit && self.config.grease && space != Space::Initial;
        let number = self.spaces[Self::index_of(space, at)].next_number;
        !greases || self.randomness.greased_bit(self.paths[at].id, space, number)
    }

    /// The form of the headers of the next `count` packets.
    pub(super) fn header_form(&self, at: usize, space: Space, count: u64) -> HeaderForm {
        let numbers = &self.spaces[Self::index_of(space, at)];
        HeaderForm {
            number_len: number_len(numbers.next_number + count, numbers.largest_acked),
            fixed_bit: self.fixed_bit(at, space),
        }
    }

    /// Logs a packet, unless nothing about it needs to be remembered.
    pub(super) fn record(&mut self, pass: &mut Pass<'_>, packet: LoggedPacket, frames: &mut Vec<SentFrame>) {
        let LoggedPacket { space, number, size, eliciting, in_flight } = packet;
        let sent_to = &mut self.spaces[Self::index_of(space, pass.at)];
        if !in_flight {
            // Neither ack-eliciting nor in flight: only its time may be of use.
            sent_to.ack_only.on_sent(number, pass.now);
            note_first_sent(space, number, pass.exchange);
            frames.clear();
            return;
        }
        let log = &mut sent_to.log;
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
        let run = Run { first: number, count: 1, size, eliciting, moved, sent_at: pass.now, stamp, content };
        self.log_run(pass, space, run);
    }

    /// Logs packets that count as in flight, and updates the timers and counters that depend on
    /// them.
    fn log_run(&mut self, pass: &mut Pass<'_>, space: Space, mut run: Run) {
        let (now, bytes) = (run.sent_at, run.in_flight_bytes());
        note_first_sent(space, run.first, pass.exchange);
        if run.eliciting {
            if !self.elicited {
                self.elicited = true;
                pass.exchange.to_control.push_back(ToControl::ElicitingSent { at: now });
            }
            let path = &mut self.paths[pass.at];
            (path.recovery.probe_anchor, path.pings.is_due) = (now, false);
        }
        let path = &mut self.paths[pass.at];
        path.recovery.in_flight += bytes;
        if bytes > 0 {
            run.stamp = path.recovery.delivery.on_sent(now, bytes, path.recovery.in_flight);
        }
        self.spaces[Self::index_of(space, pass.at)].log.push(run);
        path.recovery.congestion.on_sent(now, bytes, path.recovery.in_flight);
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

fn note_first_sent(space: Space, number: u64, exchange: &mut Exchange) {
    if number == 0 {
        exchange.to_control.push_back(ToControl::FirstSent(space));
    }
}

/// Writes an acknowledgement; with `multipath` it names its path (multipath draft-21, section 2.3).
fn put_ack(
    pass: &mut Pass<'_>,
    space: Space,
    path: PathId,
    multipath: bool,
    ack: &AckSnapshot,
    draft: &mut Draft,
    frames: &mut Vec<SentFrame>,
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
    let delay = pass.now.saturating_since(ack.largest_at);
    let delay = if space == Space::Data { delay } else { Duration::ZERO };
    let named = (multipath && space == Space::Data).then_some(path);
    let counts = ack.ecn_counts();
    draft.put_head(pass.plan, |out| emit_ack(named, delay.as_micros() >> ACK_DELAY_EXPONENT, ranges, counts, out));
    pass.plan.acks[space.index()] = true;
    frames.push(SentFrame::Ack { path, largest });
    pass.exchange.to_receive.push_back(ToReceive::AckSent { space, path, eliciting: ack.eliciting });
}
