//! CUBIC (RFC 9438) with HyStart++ in the first slow start. The window grows with the time since
//! the last congestion event instead of with round trips, so that long paths are not at a
//! disadvantage.
//!
//! The RFC counts in segments and seconds. Here windows are in bytes and time is in ticks of 1024
//! ns, and the cubic function is evaluated in fixed point: see `Curve`.

use units::{Duration, Instant};

use super::algorithm::Algorithm;
use super::controller::{CongestionController, CongestionSnapshot};
use super::event::{AckEvent, LossEvent, SpuriousLossEvent};
use super::hystart::{Growth, HyStart};
use super::window::{WINDOW_MAX, Window};
use crate::cube_root::cube_root;
use crate::rtt::RttEstimator;

/// `beta_cubic` is 0.7: the factor applied to the window at a congestion event (section 4.6).
const BETA: (u64, u64) = (7, 10);
/// `(1 + beta_cubic) / 2`: the factor applied to `W_max` under fast convergence (section 4.7).
const FAST_CONVERGENCE: (u64, u64) = (17, 20);
/// `alpha_cubic` is `3 * (1 - beta) / (1 + beta)` = 9/17 (section 4.3): the growth, in segments per
/// round trip, with which a Reno flow that reduces by beta gets the same share as one that halves
/// its window.
const ALPHA: (u64, u64) = (9, 17);

/// Limit of times on the curve: 2^31 ticks, 36 minutes. The cubic function exceeds [`WINDOW_MAX`]
/// long before, for any segment above 64 bytes.
const TICKS_MAX: u64 = 1 << 31;

/// `W_cubic` without its offset, `C * t^3` with C = 0.4 segments/s^3 (section 5.1), and its
/// inverse.
///
/// A tick is 2^10 ns, so that the conversion is a shift; its cube is 2^30 * 10^-27 s^3. In ticks
/// and bytes, C becomes `2/5 * segment * 2^30 / 10^27`, about 6e-16. A fraction with 96 bits after
/// the point holds it to ten digits for a segment of one byte. The evaluation drops the lowest 32
/// of the 93 bits of `t^3` (one byte of window needs far more) and takes the upper half of the
/// 128-bit product, which accounts for the 96 bits.
#[derive(Debug, Clone, Copy)]
struct Curve {
    coefficient: u64,
}

impl Curve {
    /// `2/5 * 2^30 / 10^27 * 2^96` = `2^127 / (5 * 10^27)`: 35 bits.
    const PER_BYTE: u64 = ((1_u128 << 127) / (5 * 10_u128.pow(27))) as u64;

    const fn new(segment: u64) -> Self {
        Self { coefficient: Self::PER_BYTE * segment }
    }

    /// Returns the bytes by which the curve rises in `ticks` from its plateau.
    const fn rise(self, ticks: u64) -> u64 {
        let ticks = if ticks > TICKS_MAX { TICKS_MAX } else { ticks } as u128;
        let cube = (ticks * ticks * ticks) >> 32;
        ((cube * self.coefficient as u128) >> 64) as u64
    }

    /// Returns the ticks in which the curve rises by `bytes`: K of section 4.2, rounded down.
    fn ticks_to_rise(self, bytes: u64) -> u64 {
        // `bytes` is at most WINDOW_MAX, 2^38, and the coefficient at least 2^34: the quotient has
        // 68 bits.
        let cube = ((u128::from(bytes) << 64) / u128::from(self.coefficient)) << 32;
        cube_root(cube).min(TICKS_MAX)
    }
}

const fn ticks(span: Duration) -> u64 {
    span.as_nanos() >> 10
}

/// One congestion avoidance stage: from the first growth after a congestion event to the next
/// event.
#[derive(Debug, Clone)]
struct Epoch {
    /// Start of the stage, moved forward by the time in which the window was not fully used.
    started: Instant,
    /// `W_max`: the window at the plateau, in bytes.
    plateau: u64,
    /// `K`: the time of the plateau.
    plateau_ticks: u64,
    /// `W_est`: the window of a Reno flow (section 4.3), in bytes.
    reno: u64,
    /// Division remainder of `reno`, in units of 1/(17 * window) byte; less than 17 windows.
    reno_parts: u64,
    /// Division remainder of the window growth, in units of 1/window byte; less than one window.
    growth_parts: u64,
}

impl Epoch {
    /// Returns `W_cubic(t)` (section 4.2).
    fn height(&self, curve: Curve, elapsed: Duration) -> u64 {
        let now = ticks(elapsed);
        match now.checked_sub(self.plateau_ticks) {
            Some(after) => self.plateau.saturating_add(curve.rise(after)),
            None => self.plateau.saturating_sub(curve.rise(self.plateau_ticks - now)),
        }
    }
}

/// The state before a reduction, kept until the reduction can no longer turn out to be spurious
/// (section 4.9).
#[derive(Debug, Clone)]
struct Undo {
    /// Bytes lost in this congestion event and not acknowledged since.
    lost_bytes: u64,
    /// Time before the event: packets sent at or before it belong to an earlier event.
    after: Option<Instant>,
    window: u64,
    threshold: Option<u64>,
    plateau: u64,
    prior: u64,
    epoch: Option<Epoch>,
    hystart: HyStart,
}

/// CUBIC with HyStart++.
#[derive(Debug, Clone)]
pub struct Cubic {
    window: Window,
    hystart: HyStart,
    curve: Curve,
    /// `W_max`; zero before the first congestion event and after a collapse. The curve then starts
    /// at its plateau (sections 4.8 and 4.10).
    plateau: u64,
    /// `cwnd_prior`: the window before the last reduction (section 4.3).
    prior: u64,
    epoch: Option<Epoch>,
    /// Time since which the window was not fully used, according to acknowledgements.
    limited_since: Option<Instant>,
    /// Time since which nothing is in flight, unless `limited_since` covers it. The next packet
    /// sent ends it.
    idle_since: Option<Instant>,
    undo: Option<Undo>,
}

impl Cubic {
    /// Creates a controller with the initial window for packets of at most `segment_size` bytes.
    pub fn new(segment_size: u64) -> Self {
        let window = Window::new(segment_size);
        Self {
            hystart: HyStart::new(),
            curve: Curve::new(window.segment()),
            plateau: 0,
            prior: 0,
            epoch: None,
            limited_since: None,
            idle_since: None,
            undo: None,
            window,
        }
    }

    /// Excludes `span` from the time of the curve (sections 4.2 and 5.8).
    fn exclude_time(&mut self, span: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.started += span;
        }
    }

    fn note_limits(&mut self, event: &AckEvent) {
        if event.app_limited {
            self.limited_since.get_or_insert(event.now);
        } else if let Some(since) = self.limited_since.take() {
            self.exclude_time(event.now.saturating_since(since));
        }
        if event.in_flight == 0 && self.limited_since.is_none() {
            self.idle_since = Some(event.now);
        }
    }

    fn first_slow_start(&mut self, event: &AckEvent, bytes: u64) {
        match self.hystart.on_ack(event.latest_rtt, event.round_ended) {
            Growth::DividedBy(divisor) => self.window.slow_start(bytes / divisor),
            Growth::Exit => {
                // Section 4.10: no loss has set W_max, so the curve starts at its plateau.
                self.prior = self.window.bytes();
                self.window.set_threshold(Some(self.window.bytes()));
            }
        }
    }

    fn begin_epoch(&self, now: Instant) -> Epoch {
        let window = self.window.bytes();
        let (plateau, plateau_ticks) = match self.plateau.checked_sub(window) {
            Some(rise) if rise > 0 => (self.plateau, self.curve.ticks_to_rise(rise)),
            _ => (window, 0),
        };
        Epoch { started: now, plateau, plateau_ticks, reno: window, reno_parts: 0, growth_parts: 0 }
    }

    fn congestion_avoidance(&mut self, now: Instant, bytes: u64, smoothed: Duration) {
        let mut epoch = self.epoch.take().unwrap_or_else(|| self.begin_epoch(now));
        let (window, segment, curve) = (self.window.bytes(), self.window.segment(), self.curve);
        let elapsed = now.saturating_since(epoch.started);

        // Section 4.3: W_est grows by alpha segments per acknowledged window, and by whole segments
        // once it has reached the window before the reduction. At most 2^38 * 2^16 * 17 + 17 *
        // 2^38, which is 59 bits.
        let alpha = if epoch.reno >= self.prior { ALPHA.1 } else { ALPHA.0 };
        let parts = bytes * segment * alpha + epoch.reno_parts;
        let whole = ALPHA.1 * window;
        epoch.reno = (epoch.reno + parts / whole).min(WINDOW_MAX);
        epoch.reno_parts = parts % whole;

        if epoch.height(curve, elapsed) < epoch.reno {
            self.window.set(window.max(epoch.reno));
            epoch.growth_parts = 0;
        } else {
            // Sections 4.4 and 4.5: towards the curve's value one round trip ahead, but at most by
            // half a window.
            let target = epoch.height(curve, elapsed + smoothed).clamp(window, window + window / 2);
            let (grown, left) = mul_add_div(bytes, target - window, epoch.growth_parts, window);
            epoch.growth_parts = left;
            self.window.grow_by(grown);
        }
        self.epoch = Some(epoch);
    }

    fn multiply(&mut self) {
        let window = self.window.bytes();
        self.prior = window;
        // Section 4.7: fast convergence. A flow that did not regain its old plateau yields
        // bandwidth to other flows.
        self.plateau = if window < self.plateau { window * FAST_CONVERGENCE.0 / FAST_CONVERGENCE.1 } else { window };
        // Section 4.6, with the window in place of the flight size. This is safe only because the
        // window never grows while it is not in use (RFC 9002, section 7.8); `Window::creditable`
        // enforces it.
        let reduced = window * BETA.0 / BETA.1;
        self.window.set_threshold(Some(reduced));
        self.window.set(reduced);
        self.epoch = None;
        self.hystart.on_congestion();
    }
}

/// Returns `(a * b + c) / divisor` and the remainder. The product rarely exceeds 64 bits, and a
/// 128-bit division takes several times as long, hence the two branches. The quotient must fit 64
/// bits: here `a <= divisor`.
fn mul_add_div(a: u64, b: u64, c: u64, divisor: u64) -> (u64, u64) {
    if let Some(sum) = a.checked_mul(b).and_then(|product| product.checked_add(c)) {
        return (sum / divisor, sum % divisor);
    }
    let (sum, divisor) = (u128::from(a) * u128::from(b) + u128::from(c), u128::from(divisor));
    ((sum / divisor) as u64, (sum % divisor) as u64)
}

impl CongestionController for Cubic {
    fn on_sent(&mut self, now: Instant, _bytes: u64, _in_flight: u64) {
        if let Some(since) = self.idle_since.take() {
            self.exclude_time(now.saturating_since(since));
        }
    }

    fn on_ack(&mut self, event: &AckEvent, rtt: &RttEstimator) {
        self.note_limits(event);
        let bytes = self.window.creditable(event);
        if self.window.threshold().is_none() {
            // Rounds continue while the window is not in use, so HyStart++ processes every
            // acknowledgement.
            self.first_slow_start(event, bytes);
        } else if bytes == 0 {
            // The flow is in recovery, or the window was not in use.
        } else if self.window.in_slow_start() {
            self.window.slow_start(bytes);
        } else {
            self.congestion_avoidance(event.now, bytes, rtt.smoothed());
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        let (before, after) = (self.window.bytes(), self.window.reduced_at());
        let reduction = self.window.on_loss(event);
        if reduction.multiply {
            self.undo = Some(Undo {
                lost_bytes: event.bytes,
                after,
                window: before,
                threshold: self.window.threshold(),
                plateau: self.plateau,
                prior: self.prior,
                epoch: self.epoch.clone(),
                hystart: self.hystart.clone(),
            });
            self.multiply();
        } else if let Some(undo) = &mut self.undo {
            undo.lost_bytes = undo.lost_bytes.saturating_add(event.bytes);
        }
        if event.ecn || event.persistent {
            // An ECN mark is never spurious, and an outage is not undone.
            self.undo = None;
        }
        if reduction.collapse {
            // Section 4.8: the first stage after a timeout starts at the plateau of its curve.
            self.window.set(0);
            self.plateau = 0;
            self.epoch = None;
        }
    }

    /// Undoes the last reduction once everything lost in it was acknowledged (section 4.9.2). Only
    /// the sum of lost bytes is kept, so losses that the caller no longer tracks keep the reduction
    /// in force.
    fn on_spurious_loss(&mut self, event: &SpuriousLossEvent) {
        if !self.window.predates_reduction(event.newest_sent_at) {
            return;
        }
        let Some(undo) = &mut self.undo else { return };
        if undo.after.is_some_and(|after| event.newest_sent_at <= after) {
            return;
        }
        undo.lost_bytes = undo.lost_bytes.saturating_sub(event.bytes);
        if undo.lost_bytes > 0 {
            return;
        }
        let Some(undo) = self.undo.take() else { return };
        // Section 4.9.2: a window that has grown past the old one stays, with its state.
        if self.window.bytes() >= undo.window {
            return;
        }
        self.window.cancel_recovery();
        self.window.set_threshold(undo.threshold);
        self.window.set(undo.window);
        self.plateau = undo.plateau;
        self.prior = undo.prior;
        self.epoch = undo.epoch;
        self.hystart = undo.hystart;
    }

    fn window(&self) -> u64 {
        self.window.bytes()
    }

    fn in_slow_start(&self) -> bool {
        self.window.in_slow_start()
    }

    fn set_segment_size(&mut self, bytes: u64) {
        self.window.set_segment(bytes);
        // The curve is steeper with larger segments; a new stage avoids a jump of the window.
        self.curve = Curve::new(self.window.segment());
        self.epoch = None;
    }

    fn snapshot(&self) -> CongestionSnapshot {
        let conservative = self.window.threshold().is_none() && self.hystart.is_conservative();
        CongestionSnapshot {
            window: self.window.bytes(),
            slow_start_threshold: self.window.threshold(),
            phase: if conservative { "conservative_slow_start" } else { self.window.phase() },
            name: Algorithm::Cubic.name(),
        }
    }

    fn fresh(&self) -> Box<dyn CongestionController> {
        Box::new(Self::new(self.window.segment()))
    }
}

#[cfg(test)]
mod tests;
