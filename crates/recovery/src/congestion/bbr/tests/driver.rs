//! A controller and the acknowledgements that a test feeds it.

use units::{Duration, Instant, Rate, Rng};

use crate::congestion::bbr::Bbr;
use crate::congestion::{AckEvent, CongestionController, LossEvent};
use crate::delivery_rate::{LossSample, RateSample};
use crate::rtt::RttEstimator;

pub(super) const SEGMENT: u64 = 1200;
/// 100 Mb/s times 40 ms.
pub(super) const BDP: u64 = 500_000;

/// One acknowledgement. The default is a path at its rate without a queue, with less than its
/// bandwidth-delay product in flight.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) mbps: u64,
    pub(super) rtt_ms: u64,
    pub(super) in_flight: u64,
    pub(super) in_flight_when_sent: u64,
    pub(super) lost: u64,
    pub(super) app_limited: bool,
    pub(super) bytes: u64,
    /// Whether it belongs to the current round instead of beginning a new one.
    pub(super) within_round: bool,
}

pub(super) const STEADY: Step = Step {
    mbps: 100,
    rtt_ms: 40,
    in_flight: BDP * 9 / 10,
    in_flight_when_sent: BDP,
    lost: 0,
    app_limited: false,
    bytes: 100_000,
    within_round: false,
};

pub(super) struct Driver {
    pub(super) bbr: Bbr,
    pub(super) now: Instant,
    /// Whether all round-trip samples are equal. Otherwise each is a nanosecond shorter than the
    /// last, so that no round-trip probe becomes due.
    pub(super) steady_rtt: bool,
    delivered: u64,
    acks: u64,
}

impl Driver {
    pub(super) fn new(seed: u64) -> Self {
        let mut bbr = Bbr::new(SEGMENT, Rng::from_seed(seed));
        let now = Instant::ZERO + Duration::from_secs(100);
        bbr.on_sent(now, 10 * SEGMENT, 10 * SEGMENT);
        Self { bbr, now, steady_rtt: false, delivered: 0, acks: 0 }
    }

    pub(super) fn phase(&self) -> &'static str {
        self.bbr.snapshot().phase
    }

    /// Returns the pacing rate in Mb/s, rounded to the nearest.
    pub(super) fn pacing_mbps(&self) -> u64 {
        (self.bbr.pacing_rate(&RttEstimator::default()).as_bps() + 500_000) / 1_000_000
    }

    /// Passes one acknowledgement, 40 ms later, or 1 ms later if it belongs to the same round.
    pub(super) fn ack(&mut self, step: Step) {
        self.now += Duration::from_millis(if step.within_round { 1 } else { 40 });
        self.acks += 1;
        let prior_delivered = if step.within_round { 0 } else { self.delivered };
        self.delivered += step.bytes;
        let mut rtt = Duration::from_millis(step.rtt_ms);
        if !self.steady_rtt {
            rtt = rtt.saturating_sub(Duration::from_nanos(self.acks));
        }
        let sample = RateSample {
            rate: Some(Rate::from_mbps(step.mbps)),
            delivered: Rate::from_mbps(step.mbps).bytes_in(rtt),
            prior_delivered,
            delivered_total: self.delivered,
            in_flight_when_sent: step.in_flight_when_sent,
            lost: step.lost,
            app_limited: step.app_limited,
            rtt,
        };
        self.report(Some(sample), rtt, step.bytes, step.in_flight, step.app_limited);
    }

    pub(super) fn ack_without_sample(&mut self, bytes: u64) {
        self.now += Duration::from_millis(40);
        self.report(None, Duration::from_millis(40), bytes, bytes, false);
    }

    fn report(&mut self, rate: Option<RateSample>, rtt: Duration, bytes: u64, in_flight: u64, app_limited: bool) {
        let mut estimator = RttEstimator::default();
        estimator.update(rtt, Duration::ZERO);
        let event = AckEvent {
            now: self.now,
            bytes,
            newest_sent_at: self.now.saturating_sub(rtt),
            in_flight,
            app_limited,
            round_ended: true,
            latest_rtt: rtt,
            rate,
        };
        self.bbr.on_ack(&event, &estimator);
    }

    pub(super) fn acks(&mut self, count: u64, step: Step) {
        (0..count).for_each(|_| self.ack(step));
    }

    /// Marks the window as fully used.
    pub(super) fn fill_window(&mut self) {
        let window = self.bbr.window();
        self.bbr.on_sent(self.now, SEGMENT, window);
    }

    pub(super) fn loss_event(&self, bytes: u64) -> LossEvent {
        LossEvent {
            now: self.now,
            newest_lost_sent_at: self.now.saturating_sub(Duration::from_millis(1)),
            bytes,
            in_flight: BDP,
            persistent: false,
            ecn: false,
        }
    }

    /// Loses `gaps` packets, each alone. `in_flight` bytes were in flight when they were sent, and
    /// `lost` bytes have been lost since, including them.
    pub(super) fn lose(&mut self, gaps: u64, in_flight: u64, lost: u64) {
        self.bbr.on_loss(&self.loss_event(gaps * SEGMENT));
        for _ in 0..gaps {
            let loss = LossSample {
                bytes: SEGMENT,
                in_flight_when_sent: in_flight,
                lost,
                delivered_total: self.delivered,
                app_limited: false,
                new_gap: true,
            };
            self.bbr.on_run_lost(self.now, &loss);
        }
    }

    /// Advances from the start to a full path: six rounds that about double the rate, then three
    /// without growth.
    pub(super) fn until_drain(&mut self) {
        for mbps in [4, 10, 20, 40, 80, 100, 100, 100] {
            self.ack(Step { mbps, ..STEADY });
            assert_eq!(self.phase(), "startup", "at {mbps} Mb/s");
        }
        self.ack(Step { in_flight: 2 * BDP, ..STEADY });
        assert_eq!(self.phase(), "drain");
    }

    pub(super) fn until_cruise(&mut self) {
        self.until_drain();
        self.ack(STEADY);
        assert_eq!(self.phase(), "probe_bw_cruise");
    }

    /// Advances to another phase by rounds without a queue.
    pub(super) fn until(&mut self, phase: &str) {
        for _ in 0..200 {
            if self.phase() == phase {
                return;
            }
            self.ack(STEADY);
        }
        panic!("never in {phase}: {:?}", self.bbr);
    }

    pub(super) fn until_up(&mut self) {
        self.until_cruise();
        self.until("probe_bw_refill");
        self.ack(STEADY);
        assert_eq!(self.phase(), "probe_bw_up");
    }

    pub(super) fn time_in_cruise(&mut self) -> Duration {
        self.until_cruise();
        let from = self.now;
        self.until("probe_bw_refill");
        self.now - from
    }
}
