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
//! | `waiting_frames` | control frames, handshake data, credit and ACK frequency that wait |
//! | `keys`, `emission` | keys to seal with; plans that leave or are refused |
//! | `progress`, `closing` | what the handshake has settled; a CONNECTION_CLOSE |
//! | `path_choice`, `randomness` | what the choice of a path depends on; random decisions |
//! | `datagrams`, `waiting_datagrams` | DATAGRAM frames that wait |
//! | `datagram_window` | how many of them should wait |
//! | `resends` | lost data bound to the path that lost them |
//! | `paths`, `validation` | opening, failure and closing of paths; path validation |
//! | `migration`, `off_path`, `off_paths` | paths whose addresses change, and addresses that are only probed |
//! | `path`, `space`, `sent_log` | a path, a packet number space, the packets outstanding in it |

pub(crate) mod ack_frequency;
mod ack_only;
pub(crate) mod acknowledge;
pub(crate) mod buffer;
pub(crate) mod closing;
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
mod off_paths;
pub(crate) mod path;
mod path_choice;
mod paths;
pub(crate) mod planner;
mod progress;
mod randomness;
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
mod waiting_frames;

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
use crate::session::DirectionKeys;
use crate::spaces::{DATA, Spaces};
use crate::stats::SendStats;
use acknowledge::Acknowledgement;
use closing::Closing;
use frames::SentFrame;
use keys::SealKeys;
use off_paths::OffPaths;
use path::SendPath;
use path_choice::PathChoice;
use progress::{LongHeaders, Progress};
use randomness::Randomness;
use sent_log::Run;
use space::SendSpace;
use streams::SendStreams;
use views::Views;
use waiting_datagrams::WaitingDatagrams;
use waiting_frames::WaitingFrames;

pub(crate) use closing::CloseValue;

/// The lower bound of the send buffers' limit, bytes, whatever the congestion window.
const HELD_BYTES_MIN: u64 = 1 << 20;

/// The send half of a connection.
pub(crate) struct SendHalf {
    side: Side,
    config: Arc<TransportConfig>,
    randomness: Randomness,
    pub(crate) streams: SendStreams,
    frames: WaitingFrames,
    datagrams: WaitingDatagrams,
    spaces: Spaces<SendSpace>,
    paths: Vec<SendPath>,
    /// Addresses beside those of the paths, rarely any.
    off_paths: OffPaths,
    choice: PathChoice,
    seal: SealKeys,
    long: LongHeaders,
    peer: PeerLimits,
    progress: Progress,
    closing: Closing,
    /// Whether an ack-eliciting packet was sent since the last packet was received.
    elicited: bool,
    /// See [`Self::found_nothing_due`].
    found_nothing_due: bool,
    stats: SendStats,
    scratch: Scratch,
    /// Losses, in a replay that is observed. A branch for each loss otherwise.
    pub(crate) observed_losses: Option<Box<ObservedLosses>>,
}

/// Memory that is reused from call to call.
#[derive(Default)]
struct Scratch {
    runs: Vec<Run>,
    frames: Vec<SentFrame>,
}

/// Limits on our frames, from the peer's transport parameters and both idle timeouts.
#[derive(Debug, Clone, Copy)]
struct PeerLimits {
    max_datagram_frame_size: u64,
    grease_quic_bit: bool,
    udp_payload_size_max: usize,
    /// Interval between repetitions of the BLOCKED frames, from the idle timeouts of both sides.
    blocked_repeat_interval: Duration,
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
            randomness: Randomness::new(rng),
            frames: WaitingFrames::new(),
            datagrams: WaitingDatagrams::new(),
            spaces: Spaces::default(),
            paths: vec![path],
            off_paths: OffPaths::new(side),
            choice: PathChoice::default(),
            seal: SealKeys::default(),
            long: LongHeaders { version, local_id, token: Vec::new() },
            peer: PeerLimits {
                max_datagram_frame_size: 0,
                grease_quic_bit: false,
                udp_payload_size_max: usize::MAX,
                blocked_repeat_interval: Duration::ZERO,
            },
            progress: Progress::new(side),
            closing: Closing::default(),
            elicited: false,
            found_nothing_due: false,
            stats: SendStats::default(),
            scratch: Scratch::default(),
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
            ToSend::GrantData(max) => self.frames.grants.grant_data(max),
            ToSend::GrantStreamData { id, max } => self.frames.grants.grant_stream_data(id, max),
            ToSend::GrantStreams { dir, max } => self.frames.grants.grant_streams(dir, max),
            ToSend::ForgetGrant(id) => self.frames.grants.forget_stream(id),
            ToSend::AuthenticReceived => self.on_heard(),
            ToSend::Received { path, bytes } => self.on_received(now, path, bytes),
            ToSend::Control(frame) => return self.frames.push(frame),
            ToSend::Crypto { space, bytes } => {
                self.frames.crypto[space.index()].write(bytes);
                self.paths[0].recovery.probe_anchor = now;
            }
            ToSend::InstallKeys { space, keys } => self.install_keys(space, keys),
            ToSend::UpdateKeys { packet, phase } => {
                self.seal.update(packet, phase);
                for (at, path) in self.paths.iter_mut().enumerate() {
                    path.numbers.phase_from = self.spaces[DATA + at].next_number;
                }
                self.stats.key_updates += 1;
            }
            ToSend::DiscardSpace(space) => self.discard_space(now, space),
            ToSend::PeerParameters(parameters) => self.set_peer_parameters(&parameters, events),
            ToSend::Validated => self.paths[0].link.set_validated(),
            ToSend::Multipath => self.progress.is_multipath = true,
            ToSend::Path(value) => self.handle_path(now, value, exchange),
            ToSend::Handshake(step) => self.handle_handshake(now, step, exchange, events),
        }
        Ok(())
    }

    /// Processes a change of a path.
    fn handle_path(&mut self, now: Instant, value: ToPath, exchange: &mut Exchange) {
        match value {
            ToPath::Moved { path, addresses, bytes } => self.on_moved(now, path, addresses, bytes, exchange),
            ToPath::Challenge { path, data, from } => {
                let Some(at) = self.path_index(path).filter(|at| self.paths[*at].is_open()) else { return };
                match from {
                    // The response leaves on the same path.
                    None => self.paths[at].validation.on_challenge(now, data),
                    Some(from) => self.off_paths.on_challenge(&self.paths, at, data, &from, exchange),
                }
            }
            ToPath::Response(data) => self.on_response(now, data, exchange),
            ToPath::RemoteId { path, id } => {
                if let Some(at) = self.path_index(path) {
                    self.paths[at].link.remote_id = id;
                    self.off_paths.on_id_replaced(path, id, exchange);
                }
            }
            ToPath::Migrate { addresses, remote_id } => {
                self.off_paths.begin_migration(now, &self.paths, addresses, remote_id, exchange);
            }
            ToPath::MoveToPreferred { addresses, remote_id } => {
                self.off_paths.begin_move_to_preferred(now, &self.paths, &addresses, remote_id, exchange);
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
                self.seal.end_early();
                self.long.version = negotiated.version;
                self.install_keys(Space::Initial, negotiated.keys);
            }
            HandshakeStep::Early(early) => self.begin_early(*early),
            HandshakeStep::EarlyOver => self.seal.end_early(),
            HandshakeStep::EarlyRejected => self.reject_early(),
            HandshakeStep::EarlyAccepted(parameters) => self.streams.raise_initial_credit(&parameters, events),
            HandshakeStep::Complete => self.progress.is_complete = true,
            HandshakeStep::Confirmed => {
                self.progress.is_confirmed = true;
                self.progress.peer_validated_us = true;
                self.report_validated(0, exchange);
                if self.paths[0].recovery.ecn.waits_for_handshake() {
                    self.paths[0].recovery.ecn.restart(self.spaces[DATA].next_number);
                }
            }
        }
    }

    /// Keys to seal packets of `space` with.
    pub(crate) fn install_keys(&mut self, space: Space, keys: DirectionKeys) {
        self.seal.install(space, keys);
    }

    /// The keys of `space` are discarded, and with them everything in flight there (RFC 9002,
    /// section 6.4).
    fn discard_space(&mut self, now: Instant, space: Space) {
        self.seal.by_space.discard(space);
        self.frames.crypto.discard(space);
        let recovery = &mut self.paths[0].recovery;
        let mut gone = 0;
        self.spaces[space.index()].log.drain(|run| gone += run.in_flight_bytes());
        self.spaces.discard(space);
        recovery.in_flight -= gone;
        recovery.backoff.reset();
        recovery.probe_anchor = now;
    }

    /// Initial packets carry this token, until a Retry packet gives another.
    pub(crate) fn set_token(&mut self, token: Vec<u8>) {
        self.long.token = token;
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
        self.long.token = retry.token;
        self.install_keys(Space::Initial, retry.keys);
        // The server has dropped the 0-RTT packets of the first flight, too: what they had leaves again in
        // packets with new numbers (RFC 9000, section 17.2.3).
        self.forget_sent(0, 0);
    }

    fn set_peer_parameters(&mut self, parameters: &TransportParameters, events: &mut Events) {
        let udp_payload_size_max = usize::try_from(parameters.max_udp_payload_size).unwrap_or(usize::MAX);
        self.peer = PeerLimits {
            max_datagram_frame_size: parameters.max_datagram_frame_size,
            grease_quic_bit: parameters.grease_quic_bit,
            udp_payload_size_max,
            blocked_repeat_interval: progress::repeat_interval(
                self.config.idle_timeout,
                Duration::from_millis(parameters.max_idle_timeout_ms),
            ),
        };
        let max_ack_delay = Duration::from_millis(parameters.max_ack_delay_ms);
        self.frames.ack_frequency.set_peer(max_ack_delay, parameters.min_ack_delay_us.map(Duration::from_micros));
        for path in &mut self.paths {
            path.limit_datagram_size(udp_payload_size_max);
        }
        self.streams.set_peer_limits(parameters, events);
    }

    /// Closes the connection: from now on plans carry a CONNECTION_CLOSE and nothing else, one on
    /// each open path.
    pub(crate) fn set_close(&mut self, close: CloseValue) {
        // On all paths, since some may no longer reach the peer.
        let active = (0..self.paths.len()).filter(|at| self.paths[*at].is_active());
        self.closing.begin(close, self.best_path_index(), active);
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
        self.frames.are_due(&self.streams)
    }

    /// Forgets which packets were declared lost, because nothing is sent for a while: those that
    /// arrive late all the same do not count as reordered any more.
    pub(crate) fn forget_losses(&mut self) {
        self.paths.iter_mut().for_each(|path| path.recovery.reordering.shrink());
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.frames.shrink();
        self.datagrams.shrink();
        self.scratch = Scratch::default();
        self.streams.shrink();
        self.spaces.iter_mut().for_each(SendSpace::shrink);
        for path in &mut self.paths {
            path.validation.shrink();
            path.queues.shrink();
        }
        self.choice.views = Views::default();
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
