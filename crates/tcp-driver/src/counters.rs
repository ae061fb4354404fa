//! [`HostCounters`]: a host's counters besides those of connections, and the fate of each packet
//! that its devices have delivered.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a host, shared by its drivers, its devices and its application.
///
/// Every packet read is accounted for: once all of them are processed, [`Count::Read`] and
/// [`Count::Reassembled`] together equal the sum of all [fates](Count::FATES).
#[derive(Debug, Default)]
pub struct HostCounters {
    counts: [AtomicU64; Count::ALL.len()],
}

/// An event that a host counts. A super-packet counts as one packet, because one call reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Count {
    /// SYNs answered with a cookie.
    CookiesSent,
    /// Connections begun by a cookie.
    CookiesAccepted,
    /// SYNs and cookies dropped because the backlog of their port was full.
    BacklogDrops,
    /// IP packets reassembled from fragments.
    Reassembled,
    /// Segments dropped because their MD5 digest was missing, wrong or unexpected.
    WrongDigests,
    /// Segments dropped because their digest between TCP and IP was missing or wrong, or because
    /// the stack has none: the peer has another stack or secret.
    UnauthenticSegments,
    /// Packets dropped because their source is not a single host (a group, or the directed
    /// broadcast address of a network of the stack), or is this host.
    InvalidSources,
    /// Packets read from the devices.
    Read,
    /// Packets accepted by a connection, or by a listening port.
    Taken,
    /// Packets whose datagrams, all or some, were accepted by a UDP port.
    Datagrams,
    /// Fragments kept until the rest of their packet arrives, or that have completed it.
    Fragments,
    /// Frames of ARP and neighbour discovery.
    LinkFrames,
    /// Packets for no connection, port or protocol of the stack that are answered: by a reset, an
    /// echo, or a report. The answer itself is lost if the device is busy.
    Answered,
    /// Packets dropped because nothing in the stack accepts them, and no answer is due: resets and
    /// reports of no connection, other ICMP messages, and answers beyond the limit per second.
    Unwanted,
    /// Packets and frames dropped because they are for an address that the stack does not have.
    NotOurs,
    /// Packets dropped because their headers are truncated, contradictory or require something that
    /// the stack does not support (RFC 8200, section 4.2).
    Malformed,
    /// Packets dropped because a checksum is wrong.
    WrongChecksums,
    /// Packets dropped because the device's offload information is impossible.
    WrongOffloads,
    /// Packets dropped because too many others waited: for the stack, for the receive half of their
    /// connection, or for the application of their UDP port.
    QueueDrops,
    /// Segments dropped because the stack is at its limit of connections, or of handshakes.
    LimitDrops,
    /// Segments whose connection ended before they were processed.
    LateDrops,
    /// IP packets given up because fragments contradicted each other or did not arrive in time, or
    /// too many packets were incomplete. Their fragments count as [`Fragments`](Self::Fragments).
    ReassemblyFailures,
    /// Packets that were not sent because a device did not accept them.
    SendErrors,
    /// Packets that were not sent because there is no route, or their neighbour did not answer in
    /// time.
    NoRoute,
}

impl Count {
    /// All counters.
    pub const ALL: [Self; 24] = [
        Self::CookiesSent,
        Self::CookiesAccepted,
        Self::BacklogDrops,
        Self::Reassembled,
        Self::WrongDigests,
        Self::UnauthenticSegments,
        Self::InvalidSources,
        Self::Read,
        Self::Taken,
        Self::Datagrams,
        Self::Fragments,
        Self::LinkFrames,
        Self::Answered,
        Self::Unwanted,
        Self::NotOurs,
        Self::Malformed,
        Self::WrongChecksums,
        Self::WrongOffloads,
        Self::QueueDrops,
        Self::LimitDrops,
        Self::LateDrops,
        Self::ReassemblyFailures,
        Self::SendErrors,
        Self::NoRoute,
    ];

    /// Possible fates of a packet that was read: each has one of these.
    pub const FATES: [Self; 17] = [
        Self::Taken,
        Self::Datagrams,
        Self::Fragments,
        Self::LinkFrames,
        Self::Answered,
        Self::Unwanted,
        Self::NotOurs,
        Self::Malformed,
        Self::WrongChecksums,
        Self::WrongOffloads,
        Self::WrongDigests,
        Self::UnauthenticSegments,
        Self::InvalidSources,
        Self::BacklogDrops,
        Self::QueueDrops,
        Self::LimitDrops,
        Self::LateDrops,
    ];

    /// Returns whether the packet was dropped, in either direction.
    pub const fn is_drop(self) -> bool {
        !matches!(
            self,
            Self::CookiesSent
                | Self::CookiesAccepted
                | Self::Reassembled
                | Self::Read
                | Self::Taken
                | Self::Datagrams
                | Self::Fragments
                | Self::LinkFrames
                | Self::Answered
        )
    }

    /// Returns the name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CookiesSent => "cookies_sent",
            Self::CookiesAccepted => "cookies_accepted",
            Self::BacklogDrops => "backlog_full",
            Self::Reassembled => "reassembled",
            Self::WrongDigests => "wrong_digest",
            Self::UnauthenticSegments => "unauthentic",
            Self::InvalidSources => "invalid_source",
            Self::Read => "read",
            Self::Taken => "taken",
            Self::Datagrams => "datagrams",
            Self::Fragments => "fragments",
            Self::LinkFrames => "link_frames",
            Self::Answered => "answered",
            Self::Unwanted => "unwanted",
            Self::NotOurs => "not_ours",
            Self::Malformed => "malformed",
            Self::WrongChecksums => "wrong_checksum",
            Self::WrongOffloads => "wrong_offload",
            Self::QueueDrops => "queue_full",
            Self::LimitDrops => "limit_reached",
            Self::LateDrops => "connection_ended",
            Self::ReassemblyFailures => "reassembly_failed",
            Self::SendErrors => "send_error",
            Self::NoRoute => "no_route",
        }
    }
}

impl HostCounters {
    /// Returns the value of a counter.
    pub fn of(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// Adds one to a counter.
    pub fn add(&self, count: Count) {
        self.add_many(count, 1);
    }

    /// Adds `many` to a counter.
    pub fn add_many(&self, count: Count, many: u64) {
        self.counts[count as usize].fetch_add(many, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_count_has_a_place_and_a_name_of_its_own() {
        for (index, count) in Count::ALL.iter().enumerate() {
            assert_eq!(*count as usize, index, "{count:?}");
        }
        let names: BTreeSet<_> = Count::ALL.iter().map(|count| count.name()).collect();
        assert_eq!(names.len(), Count::ALL.len());
        // All drops of incoming packets are fates; the others occur on the way out, or later.
        let others = Count::ALL.iter().filter(|count| count.is_drop() && !Count::FATES.contains(count));
        assert!(others.eq(&[Count::ReassemblyFailures, Count::SendErrors, Count::NoRoute]));
    }
}
