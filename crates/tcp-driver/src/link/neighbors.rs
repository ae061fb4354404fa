//! [`NeighborCache`]: the Ethernet addresses of neighbours, for both IPv4 (RFC 826; RFC 1122,
//! section 2.3.2) and IPv6 (RFC 4861, section 7.3).
//!
//! ```text
//!             answer               30 s             5 s, then packets          3 requests
//!  incomplete ─────▶ reachable ─────────▶ stale ──────────────────▶ probed ─────────────▶ forgotten
//!                        ▲                                            │ answer
//!                        └────────────────────────────────────────────┘
//! ```
//!
//! The cache acts only on packets: states are updated when a packet is sent to the neighbour, and
//! requests are repeated then, at most once a second. So it has no timer.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use units::{Duration, Instant};
use wire::ethernet::MacAddress;

/// Limit on neighbours. Beyond it one is evicted: preferably one that has not answered, so that
/// packets to many absent neighbours do not displace existing ones.
pub const NEIGHBORS_MAX: usize = 512;

/// Limit on packets that wait for a neighbour's answer; beyond it the oldest is dropped (RFC 4861,
/// section 7.2.2).
pub const WAITING_MAX: usize = 3;

/// Limit on bytes of all waiting packets; beyond it a new one is dropped.
pub const WAITING_BYTES_MAX: usize = 1 << 20;

/// Time between requests (RFC 4861, section 10, RETRANS_TIMER; RFC 1122, section 2.3.2.1).
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// Lifetime of an answer (RFC 4861, section 10, REACHABLE_TIME).
const REACHABLE_TIME: Duration = Duration::from_secs(30);

/// Time for which a stale neighbour is used before a probe (RFC 4861, section 10,
/// DELAY_FIRST_PROBE_TIME).
const DELAY: Duration = Duration::from_secs(5);

/// Number of unanswered requests to a stale neighbour before it is evicted (RFC 4861, section 10,
/// MAX_UNICAST_SOLICIT).
const PROBES_MAX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Requested, without an answer so far.
    Incomplete {
        next_request_at: Instant,
    },
    Reachable {
        mac: MacAddress,
        until: Instant,
    },
    Stale {
        mac: MacAddress,
    },
    Probed {
        mac: MacAddress,
        next_request_at: Instant,
        requests: u32,
    },
}

impl State {
    const fn mac(&self) -> Option<MacAddress> {
        match *self {
            Self::Incomplete { .. } => None,
            Self::Reachable { mac, .. } | Self::Stale { mac } | Self::Probed { mac, .. } => Some(mac),
        }
    }
}

#[derive(Debug)]
struct Neighbor<P> {
    state: State,
    waiting: VecDeque<P>,
    /// Number of its last use.
    used: u64,
}

/// A waiting packet.
pub trait Waiting {
    /// Returns its share of the byte limit.
    fn len_bytes(&self) -> usize;
}

/// A request to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Address to resolve.
    pub ip: IpAddr,
    /// Destination of the request; `None` for all on the link.
    pub mac: Option<MacAddress>,
}

/// Flags of a neighbour's message about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Whether it answers a request.
    pub is_solicited: bool,
    /// Whether it may change a known address (RFC 4861, section 4.4).
    pub is_override: bool,
}

/// The neighbours on a link, with packets `P` that wait for them.
#[derive(Debug)]
pub struct NeighborCache<P> {
    neighbors: BTreeMap<IpAddr, Neighbor<P>>,
    uses: u64,
    waiting_bytes: usize,
    /// Packets dropped after waiting in vain.
    dropped: u64,
}

impl<P> Default for NeighborCache<P> {
    fn default() -> Self {
        Self { neighbors: BTreeMap::new(), uses: 0, waiting_bytes: 0, dropped: 0 }
    }
}

impl<P: Waiting> NeighborCache<P> {
    /// Returns the Ethernet address for a packet to the neighbour `ip`, and a request if one is
    /// due. Without an address the caller may let the packet [wait](Self::wait).
    pub fn resolve(&mut self, now: Instant, ip: IpAddr) -> (Option<MacAddress>, Option<Request>) {
        self.uses += 1;
        let Some(neighbor) = self.neighbors.get_mut(&ip) else {
            self.insert(ip, State::Incomplete { next_request_at: now + REQUEST_INTERVAL });
            return (None, Some(Request { ip, mac: None }));
        };
        neighbor.used = self.uses;
        if let State::Reachable { mac, until } = neighbor.state
            && until <= now
        {
            neighbor.state = State::Stale { mac };
        }
        match &mut neighbor.state {
            State::Reachable { mac, .. } => (Some(*mac), None),
            &mut State::Stale { mac } => {
                neighbor.state = State::Probed { mac, next_request_at: now + DELAY, requests: 0 };
                (Some(mac), None)
            }
            State::Probed { mac, next_request_at, .. } if now < *next_request_at => (Some(*mac), None),
            State::Probed { mac, next_request_at, requests } if *requests < PROBES_MAX => {
                *requests += 1;
                *next_request_at = now + REQUEST_INTERVAL;
                (Some(*mac), Some(Request { ip, mac: Some(*mac) }))
            }
            // Another station may have this address by now.
            State::Probed { .. } => {
                neighbor.state = State::Incomplete { next_request_at: now + REQUEST_INTERVAL };
                (None, Some(Request { ip, mac: None }))
            }
            State::Incomplete { next_request_at } if now < *next_request_at => (None, None),
            State::Incomplete { next_request_at } => {
                *next_request_at = now + REQUEST_INTERVAL;
                (None, Some(Request { ip, mac: None }))
            }
        }
    }

    /// Queues a packet for a neighbour whose address [`resolve`](Self::resolve) does not know yet.
    pub fn wait(&mut self, ip: IpAddr, packet: P) {
        let Some(neighbor) = self.neighbors.get_mut(&ip) else { return };
        if neighbor.waiting.len() >= WAITING_MAX
            && let Some(oldest) = neighbor.waiting.pop_front()
        {
            self.waiting_bytes -= oldest.len_bytes();
            self.dropped += 1;
        }
        if self.waiting_bytes + packet.len_bytes() <= WAITING_BYTES_MAX {
            self.waiting_bytes += packet.len_bytes();
            neighbor.waiting.push_back(packet);
        } else {
            self.dropped += 1;
        }
    }

    /// Processes a neighbour's report of its address. A report about an unknown neighbour is
    /// ignored, because nothing was requested (RFC 4861, section 7.2.5). Returns the packets that
    /// waited for it.
    pub fn on_answer(&mut self, now: Instant, ip: IpAddr, mac: MacAddress, answer: Answer) -> VecDeque<P> {
        let Some(neighbor) = self.neighbors.get_mut(&ip) else { return VecDeque::new() };
        let known = neighbor.state.mac();
        if known.is_some_and(|known| known != mac) && !answer.is_override {
            // The message changes no address, but the known one must be confirmed again.
            if let (State::Reachable { .. }, Some(mac)) = (neighbor.state, known) {
                neighbor.state = State::Stale { mac };
            }
            return VecDeque::new();
        }
        if answer.is_solicited {
            neighbor.state = State::Reachable { mac, until: now + REACHABLE_TIME };
        } else if known != Some(mac) {
            neighbor.state = State::Stale { mac };
        }
        self.take_waiting(ip)
    }

    /// Processes a neighbour's request for an address of this host, which contains its own: a
    /// packet for it follows soon (RFC 826; RFC 4861, section 7.2.3). Returns the packets that
    /// waited for it.
    pub fn on_request(&mut self, ip: IpAddr, mac: MacAddress) -> VecDeque<P> {
        match self.neighbors.get_mut(&ip) {
            Some(neighbor) if neighbor.state.mac() == Some(mac) => {}
            Some(neighbor) => neighbor.state = State::Stale { mac },
            None => {
                self.uses += 1;
                self.insert(ip, State::Stale { mac });
            }
        }
        self.take_waiting(ip)
    }

    /// Returns the number of neighbours known or requested, and the bytes that wait for them.
    pub fn held(&self) -> (usize, usize) {
        (self.neighbors.len(), self.waiting_bytes)
    }

    /// Returns the number of packets dropped since the last call because too many waited or their
    /// neighbour was evicted.
    pub const fn take_dropped(&mut self) -> u64 {
        std::mem::replace(&mut self.dropped, 0)
    }

    fn take_waiting(&mut self, ip: IpAddr) -> VecDeque<P> {
        let waiting = self.neighbors.get_mut(&ip).map(|neighbor| std::mem::take(&mut neighbor.waiting));
        let waiting = waiting.unwrap_or_default();
        self.waiting_bytes -= waiting.iter().map(P::len_bytes).sum::<usize>();
        waiting
    }

    fn insert(&mut self, ip: IpAddr, state: State) {
        if self.neighbors.len() >= NEIGHBORS_MAX {
            // Picks the least recently used neighbour, preferably one without an answer.
            let age = |neighbor: &Neighbor<P>| (neighbor.state.mac().is_some(), neighbor.used);
            let oldest = self.neighbors.iter().min_by_key(|(_, neighbor)| age(neighbor)).map(|(ip, _)| *ip);
            if let Some(oldest) = oldest {
                self.dropped += self.take_waiting(oldest).len() as u64;
                self.neighbors.remove(&oldest);
            }
        }
        self.neighbors.insert(ip, Neighbor { state, waiting: VecDeque::new(), used: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    impl Waiting for Vec<u8> {
        fn len_bytes(&self) -> usize {
            self.len()
        }
    }

    const ONE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const SOLICITED: Answer = Answer { is_solicited: true, is_override: true };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn ip(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn to_all(number: u32) -> Option<Request> {
        Some(Request { ip: ip(number), mac: None })
    }

    #[test]
    fn packets_wait_for_an_answer_and_requests_are_repeated_once_a_second() {
        let mut cache = NeighborCache::default();
        assert_eq!(cache.resolve(at(0), ip(1)), (None, to_all(1)));
        for number in 0..5_u8 {
            cache.wait(ip(1), vec![number; 10]);
        }
        assert_eq!(cache.held(), (1, 30), "the oldest were dropped");
        assert_eq!(cache.resolve(at(999), ip(1)), (None, None));
        assert_eq!(cache.resolve(at(1000), ip(1)), (None, to_all(1)));
        assert_eq!(cache.resolve(at(1500), ip(1)), (None, None));
        let waiting = cache.on_answer(at(1600), ip(1), ONE, SOLICITED);
        assert_eq!(waiting, [vec![2; 10], vec![3; 10], vec![4; 10]]);
        assert_eq!(cache.held(), (1, 0));
        assert_eq!(cache.resolve(at(1700), ip(1)), (Some(ONE), None));
    }

    #[test]
    fn an_old_answer_is_verified_while_it_is_used_and_forgotten_without_a_new_one() {
        let mut cache = NeighborCache::<Vec<u8>>::default();
        cache.resolve(at(0), ip(1));
        cache.on_answer(at(0), ip(1), ONE, SOLICITED);
        assert_eq!(cache.resolve(at(29_999), ip(1)), (Some(ONE), None));
        // Stale: used for five seconds without a probe.
        assert_eq!(cache.resolve(at(30_000), ip(1)), (Some(ONE), None));
        assert_eq!(cache.resolve(at(34_999), ip(1)), (Some(ONE), None));
        let probe = Some(Request { ip: ip(1), mac: Some(ONE) });
        assert_eq!(cache.resolve(at(35_000), ip(1)), (Some(ONE), probe));
        cache.on_answer(at(35_001), ip(1), ONE, SOLICITED);
        assert_eq!(cache.resolve(at(65_000), ip(1)), (Some(ONE), None));
        // Stale again, without an answer.
        cache.resolve(at(66_000), ip(1));
        for second in 71..74 {
            assert_eq!(cache.resolve(at(second * 1000), ip(1)), (Some(ONE), probe));
            assert_eq!(cache.resolve(at(second * 1000 + 500), ip(1)), (Some(ONE), None));
        }
        assert_eq!(cache.resolve(at(74_000), ip(1)), (None, to_all(1)));
    }

    #[test]
    fn answers_without_a_request_are_not_learned() {
        let mut cache = NeighborCache::<Vec<u8>>::default();
        cache.on_answer(at(0), ip(1), ONE, SOLICITED);
        assert_eq!(cache.held().0, 0);
        assert_eq!(cache.resolve(at(0), ip(1)), (None, to_all(1)));
        cache.on_answer(at(1), ip(1), ONE, SOLICITED);
        // Without the override flag, another address only raises doubt.
        cache.on_answer(at(2), ip(1), OTHER, Answer { is_solicited: true, is_override: false });
        assert_eq!(cache.resolve(at(3), ip(1)), (Some(ONE), None));
        let probe = Some(Request { ip: ip(1), mac: Some(ONE) });
        assert_eq!(cache.resolve(at(5003), ip(1)), (Some(ONE), probe));
        // An unsolicited change is used, and verified.
        cache.on_answer(at(5004), ip(1), OTHER, Answer { is_solicited: false, is_override: true });
        assert_eq!(cache.resolve(at(5005), ip(1)), (Some(OTHER), None));
        assert_eq!(cache.resolve(at(10_005), ip(1)).1, Some(Request { ip: ip(1), mac: Some(OTHER) }));
    }

    #[test]
    fn absent_neighbors_take_bounded_memory_and_displace_none_that_exists() {
        let mut cache = NeighborCache::default();
        for number in 0..100 {
            cache.on_request(ip(number), ONE);
        }
        for number in 1000..50_000 {
            cache.resolve(at(0), ip(number));
            cache.wait(ip(number), vec![7; 60_000]);
            let (neighbors, bytes) = cache.held();
            assert!(neighbors <= NEIGHBORS_MAX && bytes <= WAITING_BYTES_MAX, "{neighbors} {bytes}");
        }
        assert_eq!(cache.held().0, NEIGHBORS_MAX);
        for number in 0..100 {
            assert_eq!(cache.resolve(at(0), ip(number)), (Some(ONE), None), "{number}");
        }
        // If all have answered, the least recently used one is evicted.
        let mut cache = NeighborCache::<Vec<u8>>::default();
        (0..=NEIGHBORS_MAX as u32).for_each(|number| drop(cache.on_request(ip(number), ONE)));
        assert_eq!(cache.resolve(at(0), ip(1)).0, Some(ONE));
        assert_eq!(cache.resolve(at(0), ip(0)).0, None);
    }
}
