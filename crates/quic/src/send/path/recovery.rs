//! What a path's acknowledgements say of it: round trips, congestion control, pacing, what is in flight,
//! and whether responses are overdue.

use std::ops::Range;

use recovery::{AckEvent, CongestionController, DeliveryRate, Pacer, PtoBackoff, RttEstimator, SpuriousLossEvent};
use units::{Duration, Instant, Rate, Rng};
use wire::quic::{PathId, StreamId};

use crate::config::TransportConfig;
use crate::plan::PLAN_BYTES_MAX;
use crate::send::ecn::PathEcn;
use crate::send::reordering::Reordering;
use crate::send::scavenger::ScavengerWindow;
use crate::send::sent_log::SentLog;

/// A round trip that was measured so long ago may be another one now: the route or the queue of then may be
/// gone.
const ROUND_TRIP_OLD: Duration = Duration::from_secs(1);

/// Each suspicion that proves wrong doubles the margin, at most this many times, which makes it
/// equal to the margin of silence.
const FALSE_SUSPICIONS_MAX: u8 = 3;

/// The recovery state of one path.
#[derive(Debug)]
pub(crate) struct PathRecovery {
    pub(crate) rtt: RttEstimator,
    pub(crate) first_rtt_sample_at: Option<Instant>,
    pub(crate) congestion: Box<dyn CongestionController>,
    pub(crate) delivery: DeliveryRate,
    pub(crate) pacer: Pacer,
    pub(crate) backoff: PtoBackoff,
    pub(crate) reordering: Reordering,
    pub(crate) ecn: PathEcn,
    /// Bytes in flight, all spaces.
    pub(crate) in_flight: u64,
    /// The window of background streams, while there are any.
    pub(crate) scavenger: Option<Box<ScavengerWindow>>,
    /// Limited by the application: sending stopped for lack of data, not of window.
    pub(crate) app_limited: bool,
    /// A new round begins when a packet with this number or a higher one is acknowledged.
    pub(crate) round_end: u64,
    /// Blocked by the pacer until then.
    pub(crate) release_at: Option<Instant>,
    /// When an ack-eliciting packet was last sent or acknowledged. Timers that belong to no packet
    /// in flight start here.
    pub(crate) probe_anchor: Instant,
    /// When something was last newly acknowledged.
    pub(crate) acked_at: Instant,
    /// The path on which the acknowledgement that gave the last RTT sample arrived.
    pub(crate) acked_via: PathId,
    pub(crate) suspicion: Suspicion,
}

/// How an RTT sample is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    /// By how much the peer delayed the acknowledgement.
    pub(crate) delay: Duration,
    /// With central acknowledgements, the path on which it arrived.
    pub(crate) via: Option<PathId>,
    /// The connection has other paths.
    pub(crate) is_one_of_several: bool,
}

/// Whether acknowledgements of a path are overdue.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    /// They are, although other paths receive theirs: the path's in-flight data is reinjected on other
    /// paths, and it gets no new data.
    pub(crate) is_suspect: bool,
    /// How often the path recovered from being suspect since it was last silent.
    pub(crate) false_count: u8,
}

impl Suspicion {
    /// Ends the suspicion if nothing is outstanding any more. An overdue packet is the only evidence for a
    /// suspicion, and without one no acknowledgement and no deadline would end it. A packet that was
    /// declared lost is no evidence: a later one of the path was acknowledged.
    pub(crate) fn end_without_evidence(&mut self, log: &SentLog) {
        self.is_suspect &= log.has_eliciting();
    }

    /// The path responds. Returns whether it was suspect.
    pub(super) fn end(&mut self) -> bool {
        let was_suspect = std::mem::take(&mut self.is_suspect);
        if was_suspect {
            self.false_count = (self.false_count + 1).min(FALSE_SUSPICIONS_MAX);
        }
        was_suspect
    }
}

impl PathRecovery {
    pub(super) fn new(id: PathId, config: &TransportConfig, rng: &Rng) -> Self {
        let segment_size = config.datagram_size as u64;
        let mut pacer = Pacer::new(config.rate_cap);
        pacer.set_segment_size(segment_size);
        let congestion = config.congestion.build_seeded(segment_size, rng);
        let ecn = PathEcn::new(config.ecn, congestion.is_scalable());
        pacer.set_fine(congestion.is_scalable());
        Self {
            rtt: RttEstimator::new(config.initial_rtt),
            first_rtt_sample_at: None,
            congestion,
            delivery: DeliveryRate::new(),
            pacer,
            backoff: PtoBackoff::new(),
            reordering: Reordering::default(),
            ecn,
            in_flight: 0,
            scavenger: None,
            app_limited: true,
            round_end: 0,
            release_at: None,
            probe_anchor: Instant::ZERO,
            acked_at: Instant::ZERO,
            acked_via: id,
            suspicion: Suspicion::default(),
        }
    }

    /// The path has another route: nothing measured on the old one counts (RFC 9000, section 9.4).
    pub(crate) fn restart(&mut self, initial_rtt: Duration) {
        self.congestion = self.congestion.fresh();
        self.rtt = RttEstimator::new(initial_rtt);
        (self.first_rtt_sample_at, self.scavenger) = (None, None);
    }

    pub(super) fn set_segment_size(&mut self, bytes: u64) {
        self.congestion.set_segment_size(bytes);
        self.pacer.set_segment_size(bytes);
    }

    /// Records whether sending stopped for lack of data. If so and the window has space for a datagram of
    /// `size` bytes, the delivery rate says nothing about the path.
    pub(crate) fn set_app_limited(&mut self, limited: bool, size: usize) {
        self.app_limited = limited;
        if limited && self.available_window() >= size as u64 {
            self.delivery.on_app_limited(self.in_flight);
        }
    }

    /// A plan with datagrams of `planned` bytes ended, for lack of data if `is_app_limited`: tells the
    /// controller whether the path was application-limited. `size` is the path's datagram size.
    pub(crate) fn note_app_limited(&mut self, is_app_limited: bool, planned: usize, size: usize) {
        // A configured rate limit leaves the window unused just as an application without data
        // does, and must not let the window grow (RFC 9002, section 7.8). The controller's own
        // pacing does not count.
        let rate = self.congestion.pacing_rate(&self.rtt);
        let capped = self.pacer.cap().is_some_and(|cap| cap.rate < rate) && self.available_window() >= planned as u64;
        self.set_app_limited(is_app_limited || capped, size);
    }

    /// Bytes that the window and the pacer allow now, in packets of `size` bytes. If the pacer blocks
    /// data, records until when.
    pub(crate) fn data_budget(&mut self, now: Instant, size: usize, has_data: bool) -> u64 {
        self.release_at = None;
        let window = self.available_window();
        let rate = self.congestion.pacing_rate(&self.rtt);
        let paced = self.pacer.budget(now, rate);
        if has_data && window >= size as u64 && paced < size as u64 {
            self.release_at = Some(self.pacer.next_release(now, rate, size as u64));
        }
        window.min(paced)
    }

    /// Takes an RTT sample from a packet that left at `sent_at`.
    pub(crate) fn take_round_trip(&mut self, now: Instant, sent_at: Instant, sampling: &Sampling) {
        // min_rtt belongs to the return path on which it was measured (multipath draft-21, section
        // 5.3). A peer that does not acknowledge centrally changes the return path only if it must.
        if let Some(via) = sampling.via.filter(|via| self.acked_via != *via) {
            self.acked_via = via;
            self.rtt.forget_min();
        }
        if sampling.is_one_of_several && self.is_round_trip_old(sent_at) {
            self.rtt.forget_mean();
        }
        self.rtt.update(now.saturating_since(sent_at), sampling.delay);
        self.first_rtt_sample_at.get_or_insert(now);
    }

    /// Packets that were declared lost may have been acknowledged: the controller may undo its reaction, and
    /// their stream data, which go to `arrived`, need no retransmission. Returns how many they are.
    pub(crate) fn on_acked_late(
        &mut self,
        now: Instant,
        ranges: &[(u64, u64)],
        arrived: &mut Vec<(StreamId, Range<u64>)>,
    ) -> u64 {
        let Some(late) = self.reordering.on_acked(now, ranges, |run| arrived.extend(run.stream_range())) else {
            return 0;
        };
        let (newest_sent_at, bytes) = (late.newest_sent_at, late.bytes);
        self.congestion.on_spurious_loss(&SpuriousLossEvent { now, newest_sent_at, bytes });
        late.packets
    }

    /// Packets of `bytes` were acknowledged, the newest of which left at `newest_sent_at`.
    pub(crate) fn on_newly_acked(
        &mut self,
        now: Instant,
        bytes: u64,
        newest_sent_at: Instant,
        round_ended: bool,
        has_background: bool,
    ) {
        let event = AckEvent {
            now,
            bytes,
            newest_sent_at,
            in_flight: self.in_flight,
            app_limited: self.app_limited,
            round_ended,
            latest_rtt: self.rtt.latest(),
            rate: self.delivery.take_sample(&self.rtt),
        };
        self.congestion.on_ack(&event, &self.rtt);
        if let Some(queue) = &mut self.scavenger {
            if has_background {
                queue.on_ack(now, self.rtt.latest(), round_ended);
            } else {
                self.scavenger = None;
            }
        }
        self.probe_anchor = now;
    }

    /// When the pacer releases a batch of the `ready_bytes` that wait, in datagrams of this size.
    pub(crate) fn batch_release(&mut self, now: Instant, datagram_bytes: usize, ready_bytes: u64) -> Instant {
        let rate = self.congestion.pacing_rate(&self.rtt);
        // Every event on one path leads to a look at all of them. A path that sent one packet each
        // time would cost a system call each, so bulk data wait until the pacer releases a batch.
        let wanted = (datagram_bytes as u64).max(self.pacer.batch(rate).min(ready_bytes).min(PLAN_BYTES_MAX as u64));
        if self.pacer.budget(now, rate) >= wanted { now } else { self.pacer.next_release(now, rate, wanted) }
    }

    /// About when the peer sent the last response on the path, an acknowledgement or a
    /// PATH_RESPONSE: half a round trip before it arrived. Other datagrams do not count.
    pub(crate) fn last_sent_at(&self) -> Instant {
        Instant::from_nanos(self.acked_at.as_nanos().saturating_sub(self.rtt.smoothed().as_nanos() / 2))
    }

    /// Whether nothing was acknowledged for so long before `at` that the round trip may be another one. A
    /// busy path with a longer round trip does not count.
    pub(crate) fn is_round_trip_old(&self, at: Instant) -> bool {
        at.saturating_since(self.acked_at) >= ROUND_TRIP_OLD.max(self.rtt.smoothed())
    }

    /// The capacity of the path as far as it is known: the controller's estimate, or one window per
    /// round trip.
    pub(crate) fn capacity(&self) -> Rate {
        if let Some(rate) = self.congestion.bandwidth() {
            return rate;
        }
        let round_trip = self.rtt.smoothed().max(Duration::from_micros(1));
        Rate::from_transfer(self.congestion.window(), round_trip).unwrap_or_default()
    }

    /// Bytes of background streams that the scavenger window allows now, in datagrams of this size.
    pub(crate) fn background_budget(&mut self, datagram_bytes: usize) -> u64 {
        let in_flight = self.in_flight;
        let new = || Box::new(ScavengerWindow::new(in_flight, datagram_bytes as u64));
        self.scavenger.get_or_insert_with(new).available(in_flight)
    }

    /// The window in use, bytes. Several acknowledgements are needed in each.
    pub(crate) fn window_in_use(&self) -> u64 {
        let window = self.congestion.window();
        // Foreground data may have more in flight.
        self.scavenger.as_ref().map_or(window, |scavenger| scavenger.window().max(self.in_flight).min(window))
    }

    /// Bytes that the congestion window still allows.
    pub(crate) fn available_window(&self) -> u64 {
        self.congestion.window().saturating_sub(self.in_flight)
    }
}
