//! The line itself: one packet at a time, for as long as its bits take, by a [rate](by_rate) or by a [recording](by_trace).
//! It can be stopped, and then goes on where it was.

mod by_rate;
mod by_trace;

use units::{Instant, Rate};

use crate::Trace;
use by_rate::ByRate;
use by_trace::ByTrace;

#[derive(Clone, Debug)]
pub(crate) struct Line<P> {
    pace: Pace,
    /// The packet on the line.
    packet: Option<P>,
    /// Since when nothing moves.
    stopped_at: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Pace {
    ByRate(ByRate),
    ByTrace(ByTrace),
}

impl<P> Line<P> {
    /// Without a trace and a rate, packets take no time.
    pub(crate) fn new(rate: Option<Rate>, trace: Option<&Trace>) -> Self {
        Self { pace: Pace::new(rate, trace, Instant::ZERO), packet: None, stopped_at: None }
    }

    /// Packets that start from `now` on take this pace; the one on the line leaves when it would have.
    pub(crate) fn set_pace(&mut self, now: Instant, rate: Option<Rate>, trace: Option<&Trace>) {
        let free_at = self.pace.free_at();
        // An idle line must not start anything in the past, whatever its new pace would have allowed.
        let free_at = if self.packet.is_some() { free_at } else { free_at.max(now) };
        self.pace = Pace::new(rate, trace, free_at);
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.packet.is_none()
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.stopped_at.is_some()
    }

    /// When the packet on the line has left it; `None` if the line is idle or stopped.
    pub(crate) fn departure(&self) -> Option<Instant> {
        (self.packet.is_some() && self.stopped_at.is_none()).then(|| self.pace.free_at())
    }

    /// When the idle line would start a packet that was offered at `since`; `None` if it is busy or stopped.
    pub(crate) fn ready_at(&self, since: Instant) -> Option<Instant> {
        if self.packet.is_some() || self.stopped_at.is_some() {
            return None;
        }
        Some(match &self.pace {
            Pace::ByRate(pace) => pace.ready_at(since),
            Pace::ByTrace(pace) => pace.ready_at(since),
        })
    }

    /// Puts a packet that was offered at `since` on the line at `at`, which is when the line said it was ready.
    pub(crate) fn start(&mut self, since: Instant, at: Instant, line_bytes: u64, packet: P) {
        debug_assert!(self.packet.is_none() && self.stopped_at.is_none(), "two packets on one line, or a stopped line");
        self.packet = Some(packet);
        match &mut self.pace {
            Pace::ByRate(pace) => pace.start(since, line_bytes),
            Pace::ByTrace(pace) => pace.start(at, line_bytes),
        }
    }

    /// Takes the packet off the line.
    pub(crate) const fn finish(&mut self) -> Option<P> {
        self.packet.take()
    }

    /// Nothing moves from `at` on. A packet on the line stays there: it has not left by `at`.
    pub(crate) fn stop(&mut self, at: Instant) {
        debug_assert!(self.stopped_at.is_none(), "stopped twice");
        self.stopped_at = Some(at);
        if let Pace::ByTrace(pace) = &mut self.pace {
            pace.stop(at, self.packet.is_some());
        }
    }

    /// Goes on at `at`; a packet on the line needs what it still needed.
    pub(crate) fn resume(&mut self, at: Instant) {
        let Some(stopped_at) = self.stopped_at.take() else { return };
        let still = at.saturating_since(stopped_at);
        let is_busy = self.packet.is_some();
        match &mut self.pace {
            Pace::ByRate(pace) if is_busy => pace.shift(still),
            Pace::ByRate(pace) => pace.wait_until(at),
            Pace::ByTrace(pace) => pace.resume(at, still, is_busy),
        }
    }
}

impl Pace {
    fn new(rate: Option<Rate>, trace: Option<&Trace>, free_at: Instant) -> Self {
        match trace {
            Some(trace) => Self::ByTrace(ByTrace::new(trace.clone(), free_at)),
            None => Self::ByRate(ByRate::new(rate, free_at)),
        }
    }

    fn free_at(&self) -> Instant {
        match self {
            Self::ByRate(pace) => pace.free_at(),
            Self::ByTrace(pace) => pace.free_at(),
        }
    }
}

#[cfg(test)]
mod tests;
