//! The send half: what is in flight and what is sent next.
//!
//! It owns stream data that are not yet acknowledged, the sent logs, congestion windows and
//! retransmission timers. It never touches stream payload: it makes [`Plan`](crate::plan::Plan)s,
//! and [`crate::seal`] turns them into packets.
//!
//! | file | content |
//! |---|---|
//! | `planner` | fills plans: which frames go into which packet |
//! | `draft` | one packet under construction |
//! | `acknowledge` | acknowledgements, losses, loss and probe timers |
//! | `streams`, `buffer` | sending parts of streams and their bytes |
//! | `streams/classes` | rate limits and permitted paths of streams |
//! | `scavenger` | a delay-based window for background streams |
//! | `grants` | flow-control credit to announce to the peer |
//! | `flow_blocked` | repetition of BLOCKED frames while the peer's credit is exhausted |
//! | `early` | 0-RTT packets of a client |
//! | `ack_frequency` | the ACK frequency requested from the peer |
//! | `keys`, `emission` | keys installed, updated, discarded; plans that leave or are refused |
//! | `datagrams`, `waiting_datagrams` | DATAGRAM frames that wait |
//! | `datagram_window` | how many of them should wait |
//! | `resends` | lost data bound to the path that lost them |
//! | `paths`, `validation` | opening, failure and closing of paths; path validation |
//! | `migration`, `off_path` | paths whose addresses change, and addresses that are only probed |
//! | `path`, `space`, `sent_log` | a path, a packet number space, the packets outstanding in it |

pub(crate) mod ack_frequency;
mod ack_only;
pub(crate) mod acknowledge;
pub(crate) mod buffer;
mod datagram_window;
pub(crate) mod datagrams;
pub(crate) mod draft;
mod early;
mod ecn;
mod ecn_reports;
mod emission;
mod flow_blocked;
pub(crate) mod frames;
pub(crate) mod grants;
mod keys;
mod migration;
mod mtu;
mod mtu_probes;
mod off_path;
pub(crate) mod path;
mod paths;
pub(crate) mod planner;
mod reordering;
mod resends;
mod scavenger;
pub(crate) mod script;
pub(crate) mod sent_log;
pub(crate) mod space;
pub(crate) mod streams;
mod validation;
mod views;
mod waiting_datagrams;

use std::sync::Arc;

use units::{Duration, Instant, Rng};
use wire::quic::{ConnectionId, ErrorCode, PathId, Side, Space, StreamId, TransportParameters, Version};

use crate::addresses::Addresses;
use crate::class::PathSet;
use crate::config::TransportConfig;
use crate::error::TransportError;
use crate::event::Events;
use crate::exchange::{Exchange, HandshakeStep, Retry, ToControl, ToPath, ToReceive, ToSend};
use crate::observed::ObservedLosses;
use crate::queue::Queue;
use crate::session::DirectionKeys;
use crate::spaces::Spaces;
use crate::stats::SendStats;
use ack_frequency::AckFrequency;
use acknowledge::Acknowledgement;
use buffer::SendBuffer;
use frames::{ControlFrame, SentFrame};
use grants::Grants;
use off_path::OffPath;
use path::SendPath;
use scheduler::Scheduler;
use sent_log::Run;
use space::SendSpace;
use streams::SendStreams;
use views::Views;
use waiting_datagrams::WaitingDatagrams;

/// Control frames waiting to be sent, at most. The peer causes most of them (challenges to respond
/// to, connection IDs to retire), so a peer that causes more without reading any is refused.
pub(crate) const CONTROL_QUEUE_MAX: usize = 1024;

/// The lower bound of the send buffers' limit, bytes, whatever the congestion window.
const HELD_BYTES_MIN: u64 = 1 << 20;

/// Why the connection is closed.
#[derive(Debug, Clone)]
pub(crate) struct CloseValue {
    pub(crate) error: TransportError,
    /// Closed by the application: code and reason are the application's.
    pub(crate) application: bool,
}

/// The send half of a connection.
pub(crate) struct SendHalf {
    side: Side,
    config: Arc<TransportConfig>,
    /// Drawn from only for packets that certainly leave, so that polling for plans without data
    /// does not change the sequence.
    rng: Rng,
    /// Seed of decisions that must not depend on when they are taken: those of paths and greased
    /// bits.
    seed: u64,
    pub(crate) streams: SendStreams,
    grants: Grants,
    ack_frequency: AckFrequency,
    control: Queue<ControlFrame>,
    /// CRYPTO bytes, by space.
    crypto: Spaces<SendBuffer>,
    spaces: Spaces<SendSpace>,
    paths: Vec<SendPath>,
    /// Addresses beside those of the paths, rarely any.
    off_paths: Vec<OffPath>,
    keys: Spaces<Option<DirectionKeys>>,
    /// Key updates made so far.
    key_phase: u64,
    /// Packets sealed with the current 1-RTT key.
    sealed_in_phase: u64,
    phase_acked: bool,
    /// The version of long headers.
    version: Version,
    /// Our connection ID in long headers, and the token of Initial packets.
    local_id: ConnectionId,
    token: Vec<u8>,
    datagrams: WaitingDatagrams,
    peer: PeerLimits,
    handshake_complete: bool,
    handshake_confirmed: bool,
    /// The client sends streams in 0-RTT packets: it has keys for these and none for 1-RTT packets.
    is_early: bool,
    /// The server has shown that it validated our address, or we are the server (RFC 9002, section
    /// 6.2.2.1).
    peer_validated_us: bool,
    /// Interval between repetitions of the BLOCKED frames.
    blocked_repeat_interval: Duration,
    /// Sent instead of everything else, each time it is due.
    close: Option<Box<CloseValue>>,
    /// The paths on which a CONNECTION_CLOSE is due: one bit per path index.
    close_due: u64,
    /// Whether an ack-eliciting packet was sent since the last packet was received.
    elicited: bool,
    /// Multipath was negotiated: acknowledgements name their path.
    is_multipath: bool,
    /// Created with the second path: with one path there is nothing to choose.
    scheduler: Option<Box<dyn Scheduler>>,
    /// With central acknowledgements: the index of the path that carries them, if any path can
    /// send.
    ack_path: Option<usize>,
    /// When the scheduler must be asked again.
    scheduler_deadline: Option<Instant>,
    /// Datagrams that are pinned to a path are next, before the data for which the scheduler chooses one.
    is_turn_of_pinned: bool,
    /// The index of the path whose pinned datagrams are looked at first.
    next_pinned: usize,
    views: Views,
    stats: SendStats,
    /// See [`Self::found_nothing_due`].
    found_nothing_due: bool,
    acked_runs: Vec<Run>,
    frame_scratch: Vec<SentFrame>,
    /// Losses, in a replay that is observed. A branch for each loss otherwise.
    pub(crate) observed_losses: Option<Box<ObservedLosses>>,
}

/// The limits on our frames from the peer's transport parameters.
#[derive(Debug, Clone, Copy)]
struct PeerLimits {
    max_datagram_frame_size: u64,
    grease_quic_bit: bool,
    udp_payload_size_max: usize,
}

impl SendHalf {
    pub(crate) fn new(
        side: Side,
        config: Arc<TransportConfig>,
        version: Version,
        local_id: ConnectionId,
        path: SendPath,
        rng: Rng,
    ) -> Self {
        Self {
            side,
            streams: SendStreams::new(side, HELD_BYTES_MIN.min(config.send_buffer_max)),
            config,
            seed: rng.split("paths and grease").next_u64(),
            rng,
            grants: Grants::default(),
            ack_frequency: AckFrequency::new(),
            control: Queue::new(),
            crypto: Spaces::default(),
            spaces: Spaces::default(),
            paths: vec![path],
            off_paths: Vec::new(),
            keys: Spaces::default(),
            key_phase: 0,
            sealed_in_phase: 0,
            phase_acked: false,
            version,
            local_id,
            token: Vec::new(),
            datagrams: WaitingDatagrams::new(),
            peer: PeerLimits { max_datagram_frame_size: 0, grease_quic_bit: false, udp_payload_size_max: usize::MAX },
            handshake_complete: false,
            handshake_confirmed: false,
            is_early: false,
            peer_validated_us: side == Side::Server,
            blocked_repeat_interval: Duration::ZERO,
            close: None,
            close_due: 0,
            elicited: false,
            is_multipath: false,
            scheduler: None,
            ack_path: None,
            scheduler_deadline: None,
            is_turn_of_pinned: false,
            next_pinned: 0,
            views: Views::default(),
            stats: SendStats::default(),
            found_nothing_due: false,
            acked_runs: Vec::new(),
            frame_scratch: Vec::new(),
            observed_losses: None,
        }
    }

    /// Processes one value of the exchange.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        value: ToSend,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        match value {
            ToSend::Acknowledged { space, path, via, delay, ranges, ecn } => {
                let ack = Acknowledgement { space, path, via, delay, ranges, ecn };
                return self.on_acknowledged(now, &ack, exchange, events);
            }
            ToSend::MaxData(max) => self.streams.raise_max_data(max),
            ToSend::MaxStreamData { id, max } => {
                self.check_opened(id)?;
                self.streams.raise_max_stream_data(id, max);
            }
            ToSend::MaxStreams { dir, max } => self.streams.raise_max_streams(dir, max, events),
            ToSend::StopSending { id, code } => {
                self.check_opened(id)?;
                self.streams.on_stop_sending(id, code, events);
            }
            ToSend::PeerOpened(id) => self.streams.peer_opened(id),
            ToSend::GrantData(max) => self.grants.grant_data(max),
            ToSend::GrantStreamData { id, max } => self.grants.grant_stream_data(id, max),
            ToSend::GrantStreams { dir, max } => self.grants.grant_streams(dir, max),
            ToSend::ForgetGrant(id) => self.grants.forget_stream(id),
            ToSend::AuthenticReceived => self.on_heard(),
            ToSend::Received { path, bytes } => self.on_received(now, path, bytes),
            ToSend::Control(frame) => return self.queue_control(frame),
            ToSend::Crypto { space, bytes } => {
                self.crypto[space.index()].write(bytes);
                self.paths[0].recovery.probe_anchor = now;
            }
            ToSend::InstallKeys { space, keys } => self.install_keys(space, keys),
            ToSend::UpdateKeys { packet, phase } => self.update_keys(packet, phase),
            ToSend::DiscardSpace(space) => self.discard_space(now, space),
            ToSend::PeerParameters(parameters) => self.set_peer_parameters(&parameters, events),
            ToSend::Validated => self.paths[0].link.set_validated(),
            ToSend::Multipath => self.is_multipath = true,
            ToSend::Path(value) => self.handle_path(now, value, exchange),
            ToSend::Handshake(step) => self.handle_handshake(now, step, exchange, events),
        }
        Ok(())
    }

    /// Processes a change of a path.
    fn handle_path(&mut self, now: Instant, value: ToPath, exchange: &mut Exchange) {
        match value {
            ToPath::Moved { path, addresses, bytes } => self.on_moved(now, path, addresses, bytes, exchange),
            ToPath::Challenge { path, data, from: None } => self.on_challenge(now, path, data),
            ToPath::Challenge { path, data, from: Some(from) } => {
                self.on_challenge_elsewhere(path, data, &from, exchange)
            }
            ToPath::Response(data) => self.on_response(now, data, exchange),
            ToPath::RemoteId { path, id } => self.on_id_replaced(path, id, exchange),
            ToPath::Migrate { addresses, remote_id } => self.begin_migration(now, addresses, remote_id, exchange),
            ToPath::MoveToPreferred { addresses, remote_id } => {
                self.move_to_preferred(now, &addresses, remote_id, exchange);
            }
            ToPath::Open { path, addresses, remote_id, is_backup, is_peers_backup } => {
                let path = self.open_path(now, path, addresses, remote_id);
                (path.phase.is_backup, path.phase.is_peers_backup) = (is_backup, is_peers_backup);
                exchange.to_control.push_back(ToControl::RemoteIdsChanged);
            }
            ToPath::PeersStatus { path, available } => {
                if let Some(at) = self.path_index(path) {
                    self.paths[at].phase.is_peers_backup = !available;
                }
            }
            ToPath::Abandon(path) => self.abandon_path(path, exchange),
            ToPath::Forget(path) => self.forget_path(path, exchange),
        }
    }

    /// Processes a step of the handshake.
    fn handle_handshake(&mut self, now: Instant, step: HandshakeStep, exchange: &mut Exchange, events: &mut Events) {
        match step {
            HandshakeStep::Retry(retry) => self.on_retry(now, *retry),
            HandshakeStep::Version(negotiated) => {
                // 0-RTT packets have the original version (RFC 9369, section 4.1).
                self.end_early();
                self.version = negotiated.version;
                self.install_keys(Space::Initial, negotiated.keys);
            }
            HandshakeStep::Early(early) => self.begin_early(*early),
            HandshakeStep::EarlyOver => self.end_early(),
            HandshakeStep::EarlyRejected => self.reject_early(),
            HandshakeStep::EarlyAccepted(parameters) => self.streams.raise_initial_credit(&parameters, events),
            HandshakeStep::Complete => self.handshake_complete = true,
            HandshakeStep::Confirmed => {
                self.handshake_confirmed = true;
                self.peer_validated_us = true;
                self.report_validated(0, exchange);
                if self.paths[0].recovery.ecn.waits_for_handshake() {
                    self.restart_ecn(0);
                }
            }
        }
    }

    /// Initial packets carry this token, until a Retry packet gives another.
    pub(crate) fn set_token(&mut self, token: Vec<u8>) {
        self.token = token;
    }

    /// The address of the path at `at` is validated, which control of a server may confirm by a token.
    fn report_validated(&self, at: usize, exchange: &mut Exchange) {
        let path = &self.paths[at];
        if self.side == Side::Server && path.link.amplification_budget() == u64::MAX {
            exchange.to_control.push_back(ToControl::AddressValidated(path.link.addresses.remote.ip()));
        }
    }

    /// An authenticated packet arrived: the peer is alive.
    pub(crate) fn on_heard(&mut self) {
        self.elicited = false;
    }

    /// Whether an arrival can make something due, or due earlier: it raises the anti-amplification
    /// limit of an unvalidated address, and with several paths it reveals the silent ones.
    #[inline]
    pub(crate) fn waits_for_arrivals(&self) -> bool {
        self.paths.len() > 1 || self.paths[0].link.amplification_budget() != u64::MAX
    }

    /// The last plan found nothing due except acknowledgements, and nothing will be due until
    /// something changes.
    pub(crate) fn found_nothing_due(&self) -> bool {
        self.found_nothing_due
    }

    /// `bytes` arrived from the address of `path`.
    pub(crate) fn on_received(&mut self, now: Instant, path: PathId, bytes: u64) {
        if let Some(at) = self.path_index(path) {
            self.paths[at].link.on_received(now, bytes);
        }
    }

    /// A frame about a stream of ours that was never opened is an error (RFC 9000, sections 19.5
    /// and 19.10).
    fn check_opened(&self, id: StreamId) -> Result<(), TransportError> {
        if self.streams.was_opened(id) {
            return Ok(());
        }
        Err(TransportError::new(ErrorCode::STREAM_STATE_ERROR, "a frame for a stream that was never opened"))
    }

    fn queue_control(&mut self, frame: ControlFrame) -> Result<(), TransportError> {
        if self.control.len() >= CONTROL_QUEUE_MAX {
            return Err(TransportError::violation("the peer asks for answers and reads none"));
        }
        self.control.push_back(frame);
        Ok(())
    }

    /// The server has answered the client's first flight with a Retry packet: the flight leaves
    /// again, with the token. Congestion and loss recovery begin anew (RFC 9002, section 6.3);
    /// packet numbers do not (RFC 9000, section 17.2.5.3).
    fn on_retry(&mut self, now: Instant, retry: Retry) {
        let mut runs = Vec::new();
        let index = Space::Initial.index();
        self.spaces[index].log.forget_oldest(0, |run| runs.push(run));
        for run in runs {
            self.paths[0].recovery.in_flight -= run.in_flight_bytes();
            self.requeue(Space::Initial, index, run);
        }
        let space = &mut self.spaces[index];
        (space.loss_time, space.probes_due) = (None, 0);
        let path = &mut self.paths[0];
        path.link.remote_id = retry.remote_id;
        path.recovery.congestion = path.recovery.congestion.fresh();
        path.recovery.backoff.reset();
        path.recovery.probe_anchor = now;
        self.token = retry.token;
        self.install_keys(Space::Initial, retry.keys);
        self.repeat_early();
    }

    fn set_peer_parameters(&mut self, parameters: &TransportParameters, events: &mut Events) {
        let udp_payload_size_max = usize::try_from(parameters.max_udp_payload_size).unwrap_or(usize::MAX);
        self.peer = PeerLimits {
            max_datagram_frame_size: parameters.max_datagram_frame_size,
            grease_quic_bit: parameters.grease_quic_bit,
            udp_payload_size_max,
        };
        let max_ack_delay = Duration::from_millis(parameters.max_ack_delay_ms);
        self.ack_frequency.set_peer(max_ack_delay, parameters.min_ack_delay_us.map(Duration::from_micros));
        self.set_idle_timeouts(self.config.idle_timeout, Duration::from_millis(parameters.max_idle_timeout_ms));
        for path in &mut self.paths {
            path.limit_datagram_size(udp_payload_size_max);
        }
        self.streams.set_peer_limits(parameters, events);
    }

    /// Closes the connection: from now on plans carry a CONNECTION_CLOSE and nothing else, one on
    /// each open path.
    pub(crate) fn set_close(&mut self, close: CloseValue) {
        self.close = Some(Box::new(close));
        // On all paths, since some may no longer reach the peer. Paths whose index exceeds the bit
        // mask are skipped: there are never that many open at a time.
        let active = (0..self.paths.len().min(64)).filter(|at| self.paths[*at].is_active());
        self.close_due = active.fold(1 << self.best_path_index().min(63), |due, at| due | 1 << at);
    }

    /// True if anything is due that every path can carry. Streams are checked first because that
    /// may queue BLOCKED frames.
    fn has_anything_due(&mut self) -> bool {
        self.streams.has_ready() || self.has_control_due()
    }

    /// As [`has_anything_due`](Self::has_anything_due), for data that may take exactly these paths.
    fn has_due_on(&mut self, paths: &PathSet) -> bool {
        self.streams.has_ready_on(paths) || (paths.is_all() && self.has_control_due())
    }

    /// True if frames are due that are neither acknowledgements nor stream data.
    fn has_control_due(&self) -> bool {
        !self.datagrams.is_empty() || self.has_frames_due()
    }

    /// True if frames are due that are neither acknowledgements nor the application's data.
    fn has_frames_due(&self) -> bool {
        !self.control.is_empty()
            || self.grants.is_due()
            || self.ack_frequency.is_due()
            || self.streams.has_control_due()
            || self.crypto[Space::Data.index()].peek(u64::MAX).is_some()
    }

    /// Forgets which packets were declared lost, because nothing is sent for a while: those that
    /// arrive late all the same do not count as reordered any more.
    pub(crate) fn forget_losses(&mut self) {
        self.paths.iter_mut().for_each(|path| path.recovery.reordering.shrink());
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.control.shrink();
        self.datagrams.shrink();
        self.acked_runs = Vec::new();
        self.frame_scratch = Vec::new();
        self.streams.shrink();
        self.grants.shrink();
        self.crypto.iter_mut().for_each(SendBuffer::shrink);
        self.spaces.iter_mut().for_each(SendSpace::shrink);
        for path in &mut self.paths {
            path.validation.shrink();
            path.queues.shrink();
        }
        self.views = Views::default();
    }

    /// The sum of the congestion windows of all open paths, bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        let open = self.paths.iter().filter(|path| path.is_open());
        open.fold(0, |sum: u64, path| sum.saturating_add(path.recovery.congestion.window()))
    }

    /// The path with the lowest rank, for connection-wide values such as the round trip.
    pub(crate) fn path(&self) -> &SendPath {
        &self.paths[self.best_path_index()]
    }

    /// Path `id`, if it exists.
    pub(crate) fn path_of(&self, id: PathId) -> Option<&SendPath> {
        self.path_index(id).map(|at| &self.paths[at])
    }

    /// The addresses of all paths.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (PathId, Addresses)> + '_ {
        self.paths.iter().map(|path| (path.id, path.link.addresses))
    }

    /// Statistics.
    pub(crate) fn stats(&self) -> SendStats {
        SendStats {
            datagram_bytes_waiting: self.datagram_bytes_waiting(),
            held_bytes: self.streams.held_bytes(),
            streams_open: self.streams.open_count(),
            ..self.stats.clone()
        }
    }

    /// Lets the send buffers grow with the congestion window, so that a path with a large
    /// bandwidth-delay product stays full and a short one does not hold memory. Bytes are held in
    /// order, so with several paths they are held for the round trip of the slowest. One stream may
    /// use half of the buffer, so that half must cover the slowest round trip with a margin, or the
    /// slowest path is never worth its delay.
    fn tune_buffer(&mut self, events: &mut Events) {
        let wanted = if let [path] = &self.paths[..] {
            path.recovery.congestion.window().saturating_mul(2)
        } else {
            let active = || self.paths.iter().filter(|path| path.is_active() && path.recovery.rtt.has_sample());
            let longest = active().map(|path| path.recovery.rtt.smoothed()).max().unwrap_or(Duration::ZERO);
            active().map(|path| path.recovery.capacity().bytes_in(longest)).sum::<u64>().saturating_mul(4)
        };
        let bytes = wanted.max(HELD_BYTES_MIN).min(self.config.send_buffer_max);
        self.streams.set_held_bytes_max(bytes, events);
    }

    fn report_ack_floor(exchange: &mut Exchange, space: Space, path: PathId, largest: u64) {
        exchange.to_receive.push_back(ToReceive::AckFloor { space, path, largest });
    }
}
