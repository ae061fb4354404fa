//! [`HostCounters`]: what a host counts beside its connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a host, shared by its drivers and its application.
#[derive(Debug, Default)]
pub struct HostCounters {
    counts: [AtomicU64; Count::ALL.len()],
}

/// Something that a host counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Count {
    /// SYNs that were answered with a cookie.
    CookiesSent,
    /// Connections that a cookie has begun.
    CookiesAccepted,
    /// SYNs and cookies that were dropped because the backlog of their port was full.
    BacklogDrops,
    /// IP packets that were put together from fragments.
    Reassembled,
    /// Segments that were dropped because their MD5 digest was missing or wrong.
    WrongDigests,
    /// Segments of no connection that were dropped because their digest between TCP and IP was missing or
    /// wrong, or because the stack has none: the peer has another stack or secret.
    UnauthenticSegments,
    /// Packets that were dropped because no single host has the address that they come from (a group,
    /// or the directed broadcast address of a network of the stack), or this one has it.
    InvalidSources,
}

impl Count {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::CookiesSent,
        Self::CookiesAccepted,
        Self::BacklogDrops,
        Self::Reassembled,
        Self::WrongDigests,
        Self::UnauthenticSegments,
        Self::InvalidSources,
    ];
}

impl HostCounters {
    /// How often it has happened.
    pub fn of(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: Count) {
        self.counts[count as usize].fetch_add(1, Ordering::Relaxed);
    }
}
