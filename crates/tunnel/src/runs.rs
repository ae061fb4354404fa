//! The [runs](Run) of several flows whose packets come by turns.

use bytes::Bytes;

use crate::inner::{Inner, Transport};
use crate::run::Run;

/// Flows of which packets are joined at a time. Of those that arrive together, more flows have few packets each.
const RUNS_MAX: usize = 8;

/// The runs that more packets may join, in the order of their beginning, one of a flow.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    joins_udp: bool,
    open: Vec<Run>,
    /// Memory of runs that were delivered.
    spare: Vec<Vec<Bytes>>,
}

impl Runs {
    /// Without runs. Packets of UDP are joined if the device takes super-packets of UDP.
    pub(crate) fn new(joins_udp: bool) -> Self {
        Self { joins_udp, ..Self::default() }
    }

    /// The run of a flow.
    pub(crate) fn of(&mut self, flow: u16) -> Option<&mut Run> {
        self.open.iter_mut().find(|run| run.flow == flow)
    }

    /// Takes the run of a flow, to be delivered.
    pub(crate) fn take(&mut self, flow: u16) -> Option<Run> {
        let index = self.open.iter().position(|run| run.flow == flow)?;
        Some(self.open.remove(index))
    }

    /// Takes the first run, to be delivered.
    pub(crate) fn take_first(&mut self) -> Option<Run> {
        (!self.open.is_empty()).then(|| self.open.remove(0))
    }

    /// Whether a packet may begin a run, to which others may be added.
    pub(crate) fn may_begin(&self, inner: &Inner, is_partial: bool, packet: &[u8]) -> bool {
        let is_udp = matches!(inner.transport, Some((Transport::Udp, _)));
        (self.joins_udp || !is_udp) && Run::may_begin(inner, is_partial, packet)
    }

    /// Begins a run of a flow that has none, with a packet that [may begin](Self::may_begin) one. The first run, if
    /// there are too many, to be delivered.
    pub(crate) fn begin(&mut self, flow: u16, is_partial: bool, inner: Inner, packet: Bytes) -> Option<Run> {
        let first = if self.open.len() == RUNS_MAX { self.take_first() } else { None };
        let parts = self.spare.pop().unwrap_or_default();
        self.open.push(Run::begin(flow, is_partial, inner, packet, parts));
        first
    }

    /// Takes back the memory of a run that was delivered.
    pub(crate) fn recycle(&mut self, parts: Vec<Bytes>) {
        debug_assert!(parts.is_empty() && self.spare.len() <= RUNS_MAX, "as many as there were runs at a time");
        self.spare.push(parts);
    }
}
