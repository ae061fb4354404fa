//! [`HostCounters`]: what a host counts beside its connections, and what became of each packet that its
//! devices have delivered.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a host, shared by its drivers, its devices and its application.
///
/// Nothing that was read vanishes: once all that was read is processed, [`Count::Read`] and
/// [`Count::Reassembled`] together are the sum of all [fates](Count::FATES).
#[derive(Debug, Default)]
pub struct HostCounters {
    counts: [AtomicU64; Count::ALL.len()],
}

/// Something that a host counts. A super-packet counts as one packet: it was read by one call.
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
    /// Segments that were dropped because their MD5 digest was missing, wrong or unexpected.
    WrongDigests,
    /// Segments that were dropped because their digest between TCP and IP was missing or wrong, or because
    /// the stack has none: the peer has another stack or secret.
    UnauthenticSegments,
    /// Packets that were dropped because no single host has the address that they come from (a group,
    /// or the directed broadcast address of a network of the stack), or this one has it.
    InvalidSources,
    /// Packets that were read from the devices.
    Read,
    /// Packets that a connection has taken, or a port that listens.
    Taken,
    /// Packets whose datagrams a UDP port has taken, all or some.
    Datagrams,
    /// Fragments that were kept until the rest of their packet arrives, or have completed it.
    Fragments,
    /// Frames of ARP and neighbour discovery.
    LinkFrames,
    /// Packets for no connection, port or protocol of the stack that are answered: by a reset, an
    /// echo, or a report. The answer itself is lost if the device is busy.
    Answered,
    /// Packets that were dropped because nothing of the stack wants them, and no answer is due: resets
    /// and reports of no connection, other ICMP messages, and answers beyond the limit of a second.
    Unwanted,
    /// Packets and frames that were dropped because they are for an address that the stack has not.
    NotOurs,
    /// Packets that were dropped because their headers are cut short, contradict themselves or ask for
    /// what the stack does not do (RFC 8200, section 4.2).
    Malformed,
    /// Packets that were dropped because a checksum is wrong.
    WrongChecksums,
    /// Packets that were dropped because what the device says of their offloads is impossible.
    WrongOffloads,
    /// Packets that were dropped because too many others waited: for the stack, for the receive half of
    /// their connection, or for the application of their UDP port.
    QueueDrops,
    /// Segments that were dropped because the stack has its limit of connections, or of handshakes.
    LimitDrops,
    /// Segments whose connection has ended before they were processed.
    LateDrops,
    /// IP packets that were given up because fragments contradicted each other or did not arrive in
    /// time, or too many packets were incomplete. Their fragments are [`Fragments`](Self::Fragments).
    ReassemblyFailures,
    /// Packets that a device has not taken, and which were not sent.
    SendErrors,
    /// Packets that were not sent because there is no route, or their neighbour did not answer in time.
    NoRoute,
}

impl Count {
    /// All of them.
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

    /// What may become of a packet that was read: each has one of these.
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

    /// Its name in statistics.
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
    /// Returns how often it has happened.
    pub fn of(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// Counts one more.
    pub fn add(&self, count: Count) {
        self.add_many(count, 1);
    }

    /// Counts `many` more.
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
        // Whatever is dropped on the way in is a fate; what is left is dropped on the way out, or later.
        let others = Count::ALL.iter().filter(|count| count.is_drop() && !Count::FATES.contains(count));
        assert!(others.eq(&[Count::ReassemblyFailures, Count::SendErrors, Count::NoRoute]));
    }
}
