//! One pass over what is due: the plan that it fills, and what all its steps need.

use units::Instant;

use crate::exchange::Exchange;
use crate::plan::{PLAN_DATAGRAMS_MAX, Plan};
use crate::receive::acks::snapshot::Snapshot;
use crate::send::path::SendPath;

/// A plan that is being made.
pub(in crate::send) struct Pass<'a> {
    pub(in crate::send) now: Instant,
    /// The index of the path for which the plan is made.
    pub(in crate::send) at: usize,
    /// What is to be acknowledged.
    pub(in crate::send) snapshot: &'a Snapshot,
    /// How many datagrams a socket takes now.
    pub(super) socket_budget: &'a dyn Fn(u16) -> usize,
    pub(in crate::send) plan: &'a mut Plan,
    pub(in crate::send) exchange: &'a mut Exchange,
}

impl Pass<'_> {
    /// How many datagrams a plan for this socket may have.
    pub(in crate::send) fn socket_budget(&self, socket: u16) -> usize {
        (self.socket_budget)(socket).min(PLAN_DATAGRAMS_MAX)
    }

    /// How many datagrams a plan for this path may have: none if its socket is full.
    pub(in crate::send) fn budget_of(&self, path: &SendPath) -> usize {
        self.socket_budget(path.link.addresses.socket)
    }

    /// Nothing is planned yet.
    pub(super) fn is_empty(&self) -> bool {
        self.plan.items.is_empty()
    }
}

/// The part of the header that all packets of a plan share.
#[derive(Debug, Clone, Copy)]
pub(in crate::send) struct HeaderForm {
    /// Length of the packet numbers, bytes.
    pub(in crate::send) number_len: usize,
    /// False greases the QUIC bit (RFC 9287).
    pub(in crate::send) fixed_bit: bool,
}

/// A planned packet, as far as the log of sent packets needs it.
#[derive(Debug, Clone, Copy)]
pub(in crate::send) struct LoggedPacket {
    pub(in crate::send) space: wire::quic::Space,
    pub(in crate::send) number: u64,
    pub(in crate::send) size: usize,
    pub(in crate::send) eliciting: bool,
    /// It counts for congestion control.
    pub(in crate::send) in_flight: bool,
}
