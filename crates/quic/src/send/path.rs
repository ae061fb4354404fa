//! The send half's view of a path.
//!
//! | file | content |
//! |---|---|
//! | `link` | addresses, the peer's connection ID, the anti-amplification limit, the socket |
//! | `datagram_size` | the datagram size and the search for a larger one |
//! | `recovery` | round trips, congestion control, pacing, what is in flight, suspicion |
//! | `queues` | data bound to the path that wait |
//! | `phase` | the path's state and its status as a backup |
//! | `numbers`, `pings` | skipped packet numbers; PING frames |

mod datagram_size;
mod link;
mod numbers;
mod phase;
mod pings;
mod queues;
mod recovery;

use units::{Instant, Rng};
use wire::quic::{ConnectionId, MIN_INITIAL_SIZE, PathId};

use super::draft::Draft;
use super::frames::SentFrame;
use super::sent_log::SentLog;
use super::validation::Validation;
use crate::addresses::Addresses;
use crate::config::TransportConfig;
use crate::exchange::{Exchange, ToControl};
use crate::plan::Plan;
use crate::stats::PathState;
use datagram_size::DatagramSize;
use numbers::PathNumbers;
use phase::PathPhase;
use pings::Pings;

pub(crate) use link::{AMPLIFICATION_BUDGET_MIN, AMPLIFICATION_FACTOR, Former, Link};
#[cfg(test)]
pub(crate) use queues::RESENDS_WAITING_MAX;
pub(crate) use queues::{PathQueues, SentRange};
pub(crate) use recovery::{PathRecovery, Sampling};

/// One path.
#[derive(Debug)]
pub(crate) struct SendPath {
    pub(crate) id: PathId,
    pub(crate) phase: PathPhase,
    pub(crate) link: Link,
    pub(crate) size: DatagramSize,
    pub(crate) recovery: PathRecovery,
    pub(crate) numbers: PathNumbers,
    pub(crate) pings: Pings,
    /// Challenges to send, their outstanding responses, and responses due to the peer.
    pub(crate) validation: Validation,
    pub(crate) queues: PathQueues,
    pub(crate) counts: PathCounts,
}

/// Counters of a path, for statistics.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathCounts {
    pub(crate) packets_sent: u64,
    pub(crate) packets_acked: u64,
    pub(crate) packets_lost: u64,
    pub(crate) bytes_acked: u64,
    /// Stream bytes.
    pub(crate) bytes_resent: u64,
    pub(crate) silences: u32,
    pub(crate) suspicions: u32,
    /// Suspicions that a response ended.
    pub(crate) false_suspicions: u32,
}

impl SendPath {
    pub(crate) fn new(
        id: PathId,
        addresses: Addresses,
        remote_id: ConnectionId,
        config: &TransportConfig,
        validated: bool,
        rng: &Rng,
    ) -> Self {
        Self {
            id,
            phase: PathPhase::new(),
            link: Link::new(addresses, remote_id, validated),
            size: DatagramSize::new(config.datagram_size, config.datagram_size_max),
            recovery: PathRecovery::new(id, config, rng),
            numbers: PathNumbers::new(),
            pings: Pings::default(),
            validation: Validation::default(),
            queues: PathQueues::new(),
            counts: PathCounts::default(),
        }
    }

    // ── The datagram size ────────────────────────────────────────────────────────────────────────────────────────────

    /// Changes the datagram size, here and in everything that counts in datagrams.
    pub(crate) fn set_datagram_size(&mut self, bytes: usize) {
        self.size.set(bytes);
        self.recovery.set_segment_size(bytes as u64);
    }

    /// The peer accepts no larger datagrams.
    pub(super) fn limit_datagram_size(&mut self, max: usize) {
        self.set_datagram_size(self.size.bytes().min(max));
        if let Some(search) = &mut self.size.search {
            search.limit(max);
        }
    }

    /// The size of the probe that is due, if any.
    pub(super) fn mtu_probe_due(&mut self, now: Instant) -> Option<usize> {
        if !self.is_active() || !self.link.is_validated() {
            return None;
        }
        let size = self.size.search.as_mut()?.due(now)?;
        // A probe may exceed the window by a part of it. In congestion avoidance there is never space
        // for several datagrams at a time, and a large probe would never leave.
        let has_window = self.recovery.available_window() >= self.size.bytes() as u64;
        (has_window && size as u64 <= self.recovery.congestion.window() / 2).then_some(size)
    }

    /// The probe of path MTU discovery was acknowledged.
    pub(super) fn on_mtu_probe_acked(&mut self) {
        if let Some(size) = self.size.search.as_mut().and_then(|search| search.on_acked()) {
            tracing::debug!(path = %self.id, size, "the path carries larger datagrams");
            self.set_datagram_size(size);
        }
    }

    /// The path leads elsewhere: it is searched again, from `base` at most.
    pub(super) fn restart_mtu_search(&mut self, base: usize) {
        if self.size.bytes() > base {
            self.set_datagram_size(base);
        }
        self.size.restart_search(base.min(self.size.bytes()));
    }

    /// The path does not carry datagrams of the size in use.
    fn fall_back(&mut self) {
        let size = self.size.bytes();
        tracing::info!(path = %self.id, size, "too large for the path: datagrams of 1200 bytes from now on");
        self.set_datagram_size(MIN_INITIAL_SIZE);
        self.size.restart_search(MIN_INITIAL_SIZE);
    }

    /// The path fails to respond. The cause may be the datagram size: one of which no datagram was
    /// acknowledged is not used again.
    pub(super) fn suspect_datagram_size(&mut self, log: &SentLog) {
        if self.size.is_suspect_after_failure(log) {
            self.fall_back();
        }
    }

    /// Datagrams above the minimum size were lost.
    pub(super) fn on_large_loss(&mut self) {
        if self.size.is_too_large_after_loss() {
            self.fall_back();
        }
    }

    /// The system accepts no datagrams of this size; returns false if they already have the minimum
    /// size.
    pub(super) fn on_too_large(&mut self) -> bool {
        if self.size.is_probe_too_large() {
            return true;
        }
        let is_large = self.size.bytes() > MIN_INITIAL_SIZE;
        if is_large {
            self.fall_back();
        }
        is_large
    }

    // ── Responses ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// A packet sent on the path was acknowledged, or the path responded to a challenge. `next_number` is
    /// the number of its next packet.
    pub(super) fn on_alive(&mut self, now: Instant, next_number: u64, exchange: &mut Exchange) {
        self.counts.false_suspicions += u32::from(self.recovery.suspicion.end());
        self.recovery.acked_at = now;
        if self.recovery.ecn.may_retry() {
            self.recovery.ecn.restart(next_number);
        }
        // A new path becomes active only by a PATH_RESPONSE, and so does a silent one whose address has
        // changed: an acknowledgement validates no address (RFC 9000, section 8.2.3). To end the
        // validation here would leave the anti-amplification limit in force for ever.
        if self.phase.state != PathState::Silent || !self.link.is_validated() {
            return;
        }
        self.validation.on_active();
        self.link.refused_until = None;
        self.phase.state = PathState::Active;
        self.recovery.backoff.reset();
        exchange.to_control.push_back(ToControl::PathState { path: self.id, state: PathState::Active });
    }

    /// Adds responses to the peer's challenges, and a challenge of ours.
    pub(super) fn fill_validation(
        &mut self,
        rng: &mut Rng,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
    ) {
        if self.validation.fill_responses(draft, plan) {
            frames.push(SentFrame::Responses(self.id));
        }
        let is_expanded = plan.segment_size >= MIN_INITIAL_SIZE;
        if self.validation.fill_challenge(rng, is_expanded, draft, plan) {
            frames.push(SentFrame::Ping);
        }
    }

    /// When a full socket will have been full for longer than a driver takes to drain it.
    pub(crate) fn socket_stuck_at(&self) -> Option<Instant> {
        self.link.full_since.map(|since| since + self.recovery.rtt.pto_base())
    }

    /// Bytes of background streams that the scavenger window allows now.
    pub(super) fn background_budget(&mut self) -> u64 {
        self.recovery.background_budget(self.size.bytes())
    }

    /// Asks for a PING if the path could carry data, carries none, and its round trip is an old one.
    pub(crate) fn measure_if_idle(&mut self, now: Instant) {
        let is_unused = self.is_active() && self.recovery.in_flight == 0 && !self.phase.is_anyones_backup();
        self.pings.is_due |= is_unused && self.recovery.is_round_trip_old(now);
    }

    /// No data that it may send are due: it sends less than it could, and the pacer does not block it.
    pub(super) fn on_nothing_due(&mut self) {
        self.recovery.set_app_limited(true, self.size.bytes());
        self.recovery.release_at = None;
    }

    // ── Questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Data may be sent on the path.
    pub(crate) fn is_active(&self) -> bool {
        self.phase.state == PathState::Active
    }

    /// Packets may be sent on the path, if only challenges.
    pub(crate) fn is_open(&self) -> bool {
        self.phase.state != PathState::Abandoned
    }

    /// Its lost data may wait here: the path works, and its address is validated.
    pub(super) fn is_usable(&self) -> bool {
        self.works() && self.link.is_validated()
    }

    /// Data are sent on the path: it responds in time, and the system sends on it.
    pub(super) fn works(&self) -> bool {
        self.is_active() && !self.recovery.suspicion.is_suspect && self.link.refused_until.is_none()
    }
}

/// The index of path `id` in `paths`, if it exists.
pub(super) fn path_index(paths: &[SendPath], id: PathId) -> Option<usize> {
    if id == PathId::ZERO {
        return Some(0);
    }
    paths.iter().position(|path| path.id == id)
}
