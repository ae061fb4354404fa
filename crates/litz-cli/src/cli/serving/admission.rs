//! Which visitors a receiver keeps: its own policy, without sockets or clocks.
//!
//! A visitor is a connection whose handshake is complete. A handshake proves possession of a key
//! and nothing else. The places of a receiver are therefore in three groups, and no group can take
//! the places of another:
//!
//! ```text
//!   key that may send ──▶ Known ────┐ proof in time
//!                                   ├───────────────▶ Sender
//!   any other key ──────▶ Stranger ─┘
//!      displaced by newcomers, or no Hello in time ──▶ Closed
//! ```
//!
//! Newcomers are never refused for lack of a place in the first two groups: the oldest visitor of
//! the group is closed instead. A flood therefore shortens the time that a visitor has for its
//! proof, and does not keep others out. A key or a source at its own limit displaces only its own
//! visitors.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use litz::identity::PublicKey;
use units::{Duration, Instant};

/// Places of visitors whose key gives no right to send. A visitor keeps its place for this many
/// arrivals from other sources, which should take longer than the round trip that its Hello needs.
pub(crate) const STRANGERS_MAX: usize = 32;

/// Places of strangers from one source address. It is larger than the number of addresses that one
/// sender usually tries at a time, and hosts behind one NAT share it.
pub(crate) const STRANGERS_PER_SOURCE_MAX: usize = 8;

/// Places of visitors that have a key with the right to send, and did not say Hello yet.
pub(crate) const KNOWN_MAX: usize = 32;

/// Of these, for one key. A sender tries several addresses at a time.
pub(crate) const KNOWN_PER_KEY_MAX: usize = 8;

/// The places of visitors that have proven their right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    pub(crate) count: usize,
    /// Of these, for one listed key. A ticket has only one key, which may use all places.
    pub(crate) per_key: usize,
    /// Of these, the places that are kept for listed keys that have none.
    pub(crate) kept_for_new_keys: usize,
}

impl Places {
    /// Of a receiver: each transfer uses about thirty threads and up to 512 open files.
    pub(crate) const RECEIVER: Self = Self { count: 16, per_key: 4, kept_for_new_keys: 4 };
}

/// Closed visitors whose thread has not ended yet. The threads end within milliseconds; at this
/// number the receiver waits for one before it accepts another visitor.
pub(crate) const CLOSED_MAX: usize = 32;

/// The time from the end of the handshake to a complete Hello. A sender sends both in one flight.
/// On a path with a round trip of 600 ms, two successive losses of this flight take 4.2 s (probe
/// timeouts, RFC 9002, section 6.2). A longer time helps only visitors that occupy places.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A visitor's number, in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct VisitorId(u64);

/// The holder of an address: an IPv4 address, or the /64 of an IPv6 address, since one host can use
/// all addresses of its /64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    V4(Ipv4Addr),
    V6([u16; 4]),
}

/// The right of a sender to another place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    /// One key may use all places. A ticket has only one key.
    One,
    /// Several keys share the places.
    Several,
}

/// Why a sender that gave its proof gets no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPlace {
    /// The visitor was closed meanwhile.
    Closed,
    /// All places of senders, or all that this key may have, are taken.
    Busy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Stranger { until: Instant },
    Known { until: Instant },
    Sender,
    Closed,
}

struct Visitor {
    source: Source,
    key: PublicKey,
    stage: Stage,
}

/// The visitors of a receiver.
pub(crate) struct Visitors {
    /// In the order of arrival. At most [`Self::count_max`].
    visitors: BTreeMap<VisitorId, Visitor>,
    arrivals: u64,
    sharing: Sharing,
    places: Places,
}

impl Visitors {
    /// For a receiver with a ticket.
    pub(crate) fn of_ticket(places: Places) -> Self {
        Self { visitors: BTreeMap::new(), arrivals: 0, sharing: Sharing::One, places }
    }

    /// For a receiver with a list of keys.
    pub(crate) fn of_keys(places: Places) -> Self {
        Self { sharing: Sharing::Several, ..Self::of_ticket(places) }
    }

    /// Bound of all visitors, and so of the threads that serve them.
    pub(crate) const fn count_max(&self) -> usize {
        STRANGERS_MAX + KNOWN_MAX + self.places.count + CLOSED_MAX
    }

    /// Whether another visitor may be accepted now. If not, some thread is about to end.
    #[must_use]
    pub(crate) fn has_space(&self) -> bool {
        self.visitors.len() < self.count_max()
    }

    /// A connection from `address` was accepted, and `key` is authenticated. `is_known` says that
    /// the key has the right to send. Returns the visitor's number, and the visitor to close, which
    /// lost its place.
    ///
    /// # Panics
    /// Without [`has_space`](Self::has_space).
    #[must_use]
    pub(crate) fn on_accepted(
        &mut self,
        now: Instant,
        address: IpAddr,
        key: PublicKey,
        is_known: bool,
    ) -> (VisitorId, Option<VisitorId>) {
        assert!(self.has_space(), "{} visitors", self.visitors.len());
        let (source, until) = (Source::of(address), now + HELLO_TIMEOUT);
        let displaced = if is_known {
            let is_known = |visitor: &Visitor| matches!(visitor.stage, Stage::Known { .. });
            let is_same = |visitor: &Visitor| is_known(visitor) && visitor.key == key;
            self.surplus(KNOWN_PER_KEY_MAX, is_same).or_else(|| self.surplus(KNOWN_MAX, is_known))
        } else {
            let is_stranger = |visitor: &Visitor| matches!(visitor.stage, Stage::Stranger { .. });
            let is_same = |visitor: &Visitor| is_stranger(visitor) && visitor.source == source;
            self.surplus(STRANGERS_PER_SOURCE_MAX, is_same).or_else(|| self.surplus(STRANGERS_MAX, is_stranger))
        };
        if let Some(displaced) = displaced {
            self.close(displaced);
        }
        let id = VisitorId(self.arrivals);
        self.arrivals += 1;
        let stage = if is_known { Stage::Known { until } } else { Stage::Stranger { until } };
        self.visitors.insert(id, Visitor { source, key, stage });
        (id, displaced)
    }

    /// The visitor has proven its right to send. Repeated calls do nothing.
    ///
    /// # Errors
    /// [`NoPlace`]: the visitor must be closed.
    pub(crate) fn on_proven(&mut self, id: VisitorId) -> Result<(), NoPlace> {
        let visitor = self.visitors.get(&id).ok_or(NoPlace::Closed)?;
        match visitor.stage {
            Stage::Sender => return Ok(()),
            Stage::Closed => return Err(NoPlace::Closed),
            Stage::Stranger { .. } | Stage::Known { .. } => {}
        }
        let of_key = self.count(|other| other.stage == Stage::Sender && other.key == visitor.key);
        let limit = match (self.sharing, of_key) {
            (Sharing::One, _) | (Sharing::Several, 0) => self.places.count,
            (Sharing::Several, of_key) if of_key >= self.places.per_key => 0,
            (Sharing::Several, _) => self.places.count - self.places.kept_for_new_keys,
        };
        let has_place = self.senders() < limit;
        let stage = if has_place { Stage::Sender } else { Stage::Closed };
        self.visitors.entry(id).and_modify(|visitor| visitor.stage = stage);
        if has_place { Ok(()) } else { Err(NoPlace::Busy) }
    }

    /// The visitor's connection and thread have ended.
    pub(crate) fn on_ended(&mut self, id: VisitorId) {
        self.visitors.remove(&id);
    }

    /// The visitors to close because their Hello is late.
    #[must_use]
    pub(crate) fn poll_overdue(&mut self, now: Instant) -> Vec<VisitorId> {
        self.close_where(|visitor| match visitor.stage {
            Stage::Stranger { until } | Stage::Known { until } => now >= until,
            Stage::Sender | Stage::Closed => false,
        })
    }

    /// The visitors to close because their key lost the right to send: all but strangers, which
    /// never had it.
    #[must_use]
    pub(crate) fn on_keys_changed(&mut self, is_allowed: impl Fn(&PublicKey) -> bool) -> Vec<VisitorId> {
        self.close_where(|visitor| {
            matches!(visitor.stage, Stage::Known { .. } | Stage::Sender) && !is_allowed(&visitor.key)
        })
    }

    /// The visitors to close because the receiver ends: all but senders.
    #[must_use]
    pub(crate) fn on_end(&mut self) -> Vec<VisitorId> {
        self.close_where(|visitor| matches!(visitor.stage, Stage::Stranger { .. } | Stage::Known { .. }))
    }

    /// The number of senders with a place.
    #[must_use]
    pub(crate) fn senders(&self) -> usize {
        self.count(|visitor| visitor.stage == Stage::Sender)
    }

    /// Whether no thread serves a visitor.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.visitors.is_empty()
    }

    /// The oldest visitor of a group that has `limit` visitors already.
    fn surplus(&self, limit: usize, is_member: impl Fn(&Visitor) -> bool) -> Option<VisitorId> {
        let mut members = self.visitors.iter().filter(|(_, visitor)| is_member(visitor)).map(|(id, _)| *id);
        let oldest = members.next()?;
        (1 + members.count() >= limit).then_some(oldest)
    }

    fn close_where(&mut self, is_chosen: impl Fn(&Visitor) -> bool) -> Vec<VisitorId> {
        let chosen: Vec<_> =
            self.visitors.iter().filter(|(_, visitor)| is_chosen(visitor)).map(|(id, _)| *id).collect();
        chosen.iter().for_each(|id| self.close(*id));
        chosen
    }

    fn close(&mut self, id: VisitorId) {
        self.visitors.entry(id).and_modify(|visitor| visitor.stage = Stage::Closed);
    }

    fn count(&self, is_member: impl Fn(&Visitor) -> bool) -> usize {
        self.visitors.values().filter(|visitor| is_member(visitor)).count()
    }
}

impl Source {
    fn of(address: IpAddr) -> Self {
        // A socket for both families shows IPv4 addresses as mapped ones, which share one /64.
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

#[cfg(test)]
mod tests;
