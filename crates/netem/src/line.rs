//! The line: transmits one packet at a time, at a [rate](by_rate) or by a [trace](by_trace). It can
//! be stopped and resumed.

mod by_rate;
mod by_trace;

use units::{Instant, Rate};

use crate::trace::Trace;
use by_rate::ByRate;
use by_trace::ByTrace;

#[derive(Clone, Debug)]
pub(crate) struct Line<P> {
    capacity: Capacity,
    /// The packet in transmission.
    packet: Option<P>,
    /// Time since which the line is stopped.
    stopped_at: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Capacity {
    ByRate(ByRate),
    ByTrace(ByTrace),
}

impl<P> Line<P> {
    /// Creates an idle line. Without a trace and a rate, transmission takes no time.
    pub(crate) fn new(rate: Option<Rate>, trace: Option<&Trace>) -> Self {
        Self { capacity: Capacity::new(rate, trace, Instant::ZERO), packet: None, stopped_at: None }
    }

    /// Sets the capacity for packets that start from `now` on; the packet in transmission departs
    /// at its old time.
    pub(crate) fn set_capacity(&mut self, now: Instant, rate: Option<Rate>, trace: Option<&Trace>) {
        let free_at = self.capacity.free_at();
        // An idle line must not start a packet in the past, even if the new capacity would have
        // permitted it.
        let free_at = if self.packet.is_some() { free_at } else { free_at.max(now) };
        self.capacity = Capacity::new(rate, trace, free_at);
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.packet.is_none()
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.stopped_at.is_some()
    }

    /// Returns the departure time of the packet in transmission; `None` if the line is idle or
    /// stopped.
    pub(crate) fn departure(&self) -> Option<Instant> {
        (self.packet.is_some() && self.stopped_at.is_none()).then(|| self.capacity.free_at())
    }

    /// Returns the time at which the idle line starts a packet that was offered at `since`; `None`
    /// if it is busy or stopped.
    pub(crate) fn ready_at(&self, since: Instant) -> Option<Instant> {
        if self.packet.is_some() || self.stopped_at.is_some() {
            return None;
        }
        Some(match &self.capacity {
            Capacity::ByRate(capacity) => capacity.ready_at(since),
            Capacity::ByTrace(capacity) => capacity.ready_at(since),
        })
    }

    /// Starts the transmission of a packet that was offered at `since`. `at` must be the time
    /// returned by `ready_at`.
    pub(crate) fn start(&mut self, since: Instant, at: Instant, line_bytes: u64, packet: P) {
        debug_assert!(self.packet.is_none() && self.stopped_at.is_none(), "the line is busy or stopped");
        self.packet = Some(packet);
        match &mut self.capacity {
            Capacity::ByRate(capacity) => capacity.start(since, line_bytes),
            Capacity::ByTrace(capacity) => capacity.start(at, line_bytes),
        }
    }

    /// Removes the packet in transmission.
    pub(crate) const fn finish(&mut self) -> Option<P> {
        self.packet.take()
    }

    /// Stops the line at `at`. A packet in transmission stays on the line.
    pub(crate) fn stop(&mut self, at: Instant) {
        debug_assert!(self.stopped_at.is_none(), "stopped twice");
        self.stopped_at = Some(at);
        if let Capacity::ByTrace(capacity) = &mut self.capacity {
            capacity.stop(at, self.packet.is_some());
        }
    }

    /// Resumes at `at`; a packet in transmission takes the remaining time.
    pub(crate) fn resume(&mut self, at: Instant) {
        let Some(stopped_at) = self.stopped_at.take() else { return };
        let still = at.saturating_since(stopped_at);
        let is_busy = self.packet.is_some();
        match &mut self.capacity {
            Capacity::ByRate(capacity) if is_busy => capacity.shift(still),
            Capacity::ByRate(capacity) => capacity.wait_until(at),
            Capacity::ByTrace(capacity) => capacity.resume(at, still, is_busy),
        }
    }
}

impl Capacity {
    fn new(rate: Option<Rate>, trace: Option<&Trace>, free_at: Instant) -> Self {
        match trace {
            Some(trace) => Self::ByTrace(ByTrace::new(trace.clone(), free_at)),
            None => Self::ByRate(ByRate::new(rate, free_at)),
        }
    }

    fn free_at(&self) -> Instant {
        match self {
            Self::ByRate(capacity) => capacity.free_at(),
            Self::ByTrace(capacity) => capacity.free_at(),
        }
    }
}

#[cfg(test)]
mod tests;
