//! [`DetachedHalf`]: the receive half of a connection on another processor, with its delivery to
//! the application, and the values that it exchanges with its connection.

use std::sync::Arc;

use driver::EndReason;
use driver::protocol::{Batch, HalfReport, HalfUpdate, ReceiveHalf};
use tcp::{DetachedReceiveHalf, ReceiveCommands, ReceiveReport, Tuple};
use units::{Duration, Instant};

use crate::application::{Closed, TcpCell};
use crate::counters::{Count, HostCounters};
use crate::delivery::Delivery;
use crate::layers::Layers;
use crate::packets::{Opened, Received};
use crate::protocol::Tcp;
use crate::signature::Signature;

/// Number of unreported values that are reported even if none is urgent.
const UNREPORTED_MAX: usize = 256;

/// Limit on batches that wait for the return of the receive half. Further ones are dropped, which
/// the peer treats as loss.
const DEFERRED_MAX: usize = 64;

/// Time for which a receive half stays attached after its return. A forged segment can make it
/// return, so an attacker could otherwise make a connection detach and attach with each such
/// segment.
pub(crate) const ATTACHED_FOR: Duration = Duration::from_millis(20);

/// A receive half detached from its connection.
pub struct DetachedHalf {
    tuple: Tuple,
    layers: Option<Arc<Layers>>,
    signature: Option<Arc<Signature>>,
    counters: Arc<HostCounters>,
    /// The half and its delivery; `None` once it was attached again.
    parts: Option<(DetachedReceiveHalf, Delivery)>,
    /// A report for reuse.
    spare: Option<Box<ReceiveReport>>,
}

impl DetachedHalf {
    pub(crate) fn new(
        tuple: Tuple,
        (layers, signature): (Option<Arc<Layers>>, Option<Arc<Signature>>),
        counters: Arc<HostCounters>,
        half: DetachedReceiveHalf,
        delivery: Delivery,
    ) -> Self {
        Self { tuple, layers, signature, counters, parts: Some((half, delivery)), spare: None }
    }

    /// Takes both parts, to attach them again.
    pub(crate) fn into_parts(mut self) -> Option<(DetachedReceiveHalf, Delivery)> {
        self.parts.take()
    }

    fn deliver(&mut self) {
        if let Some((half, delivery)) = &mut self.parts {
            delivery.pass(false, |len_max| half.read(len_max));
        }
    }
}

/// Ends the reader if the half is dropped without being attached again.
impl Drop for DetachedHalf {
    fn drop(&mut self) {
        if let Some((_, delivery)) = &self.parts {
            delivery.cell.close(Closed::Driver(EndReason::ProcessorGone));
        }
    }
}

impl ReceiveHalf<Tcp> for Box<DetachedHalf> {
    fn cell(&self) -> Option<Arc<TcpCell>> {
        self.parts.as_ref().map(|(_, delivery)| Arc::clone(&delivery.cell))
    }

    fn for_each_route(&self, each: &mut dyn FnMut(Tuple)) {
        each(self.tuple);
    }

    fn absorb(&mut self, now: Instant, _socket: usize, batch: Received) -> Result<(), Received> {
        let Some((half, _)) = &mut self.parts else { return Err(batch) };
        match batch.open(self.layers.as_deref(), self.signature.as_deref()) {
            Opened::Segment(mut arrival) => {
                if half.handle_segment(now, &mut arrival) {
                    return Err(batch);
                }
                drop(batch);
                self.counters.add(Count::Taken);
                self.deliver();
                Ok(())
            }
            // An ICMP report about data that were sent.
            Opened::Error(_) => Err(batch),
            Opened::Unauthentic => {
                self.counters.add(Count::UnauthenticSegments);
                Ok(())
            }
            Opened::Dropped(reason) => {
                self.counters.add(reason);
                Ok(())
            }
            Opened::Other => Err(batch),
        }
    }

    fn handle_update(&mut self, _now: Instant, update: Update) -> bool {
        if let (Some((half, _)), Some(commands)) = (&mut self.parts, &update.commands) {
            half.handle_commands(commands);
        }
        if update.wants_delivery {
            self.deliver();
        }
        self.spare = update.spare.or_else(|| self.spare.take());
        false
    }

    fn wake_readers(&mut self) {
        if let Some((_, delivery)) = &self.parts {
            delivery.cell.wake();
        }
    }

    fn has_report(&self) -> bool {
        self.parts.as_ref().is_some_and(|(half, _)| half.has_report())
    }

    fn is_urgent(&self, now: Instant) -> bool {
        self.parts.as_ref().is_some_and(|(half, _)| half.is_urgent(now) || half.unreported() >= UNREPORTED_MAX)
    }

    fn unreported(&self) -> usize {
        self.parts.as_ref().map_or(0, |(half, _)| half.unreported())
    }

    fn report(&mut self) -> Option<Report> {
        let (half, _) = self.parts.as_mut()?;
        let mut report = self.spare.take().unwrap_or_default();
        if half.poll_report(&mut report) {
            return Some(Report(report));
        }
        self.spare = Some(report);
        None
    }
}

/// Update from a connection to its detached receive half.
#[derive(Debug, Default)]
pub struct Update {
    pub(crate) commands: Option<ReceiveCommands>,
    /// Whether the application has read, so that more can be delivered.
    pub(crate) wants_delivery: bool,
    /// A report for reuse.
    spare: Option<Box<ReceiveReport>>,
}

impl HalfUpdate for Update {
    type Report = Report;

    fn set_spare(&mut self, report: Report) {
        self.spare = Some(report.0);
    }
}

/// Report from a detached receive half to its connection.
#[derive(Debug)]
pub struct Report(pub(crate) Box<ReceiveReport>);

impl HalfReport for Report {
    type Update = Update;
}

/// State that a connection keeps while its receive half is on another processor.
#[derive(Debug, Default)]
pub(crate) struct DetachedState {
    /// Whether the application has read, for the next update.
    pub(crate) wants_delivery: bool,
    /// Batches that wait for the return of the receive half, with their devices.
    pub(crate) deferred: Vec<(usize, Received)>,
    /// Whether the receive half has received nothing for a while.
    pub(crate) is_quiet: bool,
    /// Whether the connection needs it: the application is gone, or the connection has ended.
    pub(crate) is_needed: bool,
    /// Whether the receive half was recalled.
    pub(crate) is_recalled: bool,
}

impl DetachedState {
    /// Keeps a batch until the half has returned. Returns false if too many are kept.
    pub(crate) fn defer(&mut self, device: usize, batch: Received) -> bool {
        let has_space = self.deferred.len() < DEFERRED_MAX;
        if has_space {
            self.deferred.push((device, batch));
        }
        has_space
    }

    /// Returns whether the half must return; returns true only once.
    pub(crate) fn takes_recall(&mut self) -> bool {
        let must_return = self.is_quiet || self.is_needed || !self.deferred.is_empty();
        must_return && !std::mem::replace(&mut self.is_recalled, true)
    }

    /// Returns the number of deferred packets, which are dropped.
    pub(crate) fn deferred_packets(&self) -> usize {
        self.deferred.iter().map(|(_, batch)| batch.packet_count()).sum()
    }
}
