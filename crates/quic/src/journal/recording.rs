//! A journal that is being written.

use std::fmt;

use ::journal::writer::Writer;
use units::Instant;

use super::begin;
use super::format::FORMAT;
use crate::addresses::Addresses;
use crate::seed::ConnectionSeed;

/// The journal of a connection that is being written, or of its detached receive half.
pub(crate) struct Journal {
    pub(crate) writer: Writer,
    /// Addresses that have a number.
    pub(super) addresses: Vec<Addresses>,
    /// The number of datagrams that each socket accepts during one call.
    pub(super) socket_budgets: Vec<(u16, usize)>,
}

impl Journal {
    /// Begins the journal of a connection, if one is wanted.
    pub(crate) fn begin(now: Instant, seed: &ConnectionSeed) -> Option<Box<Self>> {
        let sink = seed.config.journal.as_ref()?.0(seed.control.side)?;
        let writer = Writer::begin(now, FORMAT, sink, |out| begin::put_begin(out, now, seed));
        Some(Box::new(Self { writer, addresses: Vec::new(), socket_budgets: Vec::new() }))
    }

    /// The journal of the receive half, which is detached now. It continues in the same log.
    pub(crate) fn detach(&mut self) -> Box<Self> {
        Box::new(Self { writer: self.writer.detach(), addresses: Vec::new(), socket_budgets: Vec::new() })
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
