//! Which packets are urgent. They pass all others and leave on two paths at once, so that neither a queue
//! nor the failure of a path delays them; the receiver drops the copies. A bound keeps their share small.

use std::fmt;
use std::str::FromStr;

use units::{Duration, Instant};

use crate::packer::Packet;

/// Copies of an urgent packet. More cost as much again, and two paths rarely fail at once.
pub const COPIES: u8 = 2;

/// Urgent packets are at most this part of all bytes that enter the tunnel,
const SHARE: u64 = 8;
/// or so many bytes a second if that is more: 1 Mb/s, ten calls.
const BYTES_PER_SECOND: u64 = 125_000;
/// Bytes of urgent packets in a row, at most: a batch of a path.
const BURST_BYTES: u64 = 16 << 10;

/// A small packet has at most this many bytes: 20 ms of voice have about 200.
const SMALL_BYTES_MAX: usize = 300;

/// The DSCP of expedited forwarding (RFC 3246) and of admitted voice (RFC 5865).
const EXPEDITED: [u8; 2] = [46, 44];

/// The port of DNS (RFC 1035, section 4.2).
const DNS_PORT: u16 = 53;

/// The protocol number of TCP.
const TCP: u8 = 6;

/// Kinds of packets that are urgent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UrgentKinds {
    /// The DSCP asks for expedited forwarding.
    expedited: bool,
    /// From or to a name server.
    dns: bool,
    /// Small, and not of TCP, whose acknowledgements repeat each other.
    small: bool,
}

impl Default for UrgentKinds {
    fn default() -> Self {
        Self { expedited: true, dns: true, small: false }
    }
}

impl UrgentKinds {
    /// None.
    pub const NONE: Self = Self { expedited: false, dns: false, small: false };

    fn has(self, packet: &Packet<'_>) -> bool {
        let inner = &packet.inner;
        packet.segment.is_none()
            && (self.has_flow(inner.traffic_class >> 2, inner.ports)
                || self.small && inner.protocol != TCP && packet.ip.len() <= SMALL_BYTES_MAX)
    }

    /// Whether packets with this DSCP and these ports are urgent, whatever their size.
    #[must_use]
    pub fn has_flow(self, dscp: u8, ports: [u16; 2]) -> bool {
        self.expedited && EXPEDITED.contains(&dscp) || self.dns && ports.contains(&DNS_PORT)
    }
}

/// The text is no list of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotKinds;

impl fmt::Display for NotKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a list of ef, dns and small, such as ef,dns, or none")
    }
}

impl std::error::Error for NotKinds {}

impl FromStr for UrgentKinds {
    type Err = NotKinds;

    fn from_str(text: &str) -> Result<Self, NotKinds> {
        let mut kinds = Self::NONE;
        if text == "none" {
            return Ok(kinds);
        }
        for name in text.split(',') {
            *match name.trim() {
                "ef" => &mut kinds.expedited,
                "dns" => &mut kinds.dns,
                "small" => &mut kinds.small,
                _ => return Err(NotKinds),
            } = true;
        }
        Ok(kinds)
    }
}

impl fmt::Display for UrgentKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [(self.expedited, "ef"), (self.dns, "dns"), (self.small, "small")];
        let names: Vec<&str> = named.iter().filter(|(is_one, _)| *is_one).map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(",") }.as_str())
    }
}

/// The share of urgent bytes in all bytes.
#[derive(Debug)]
pub struct UrgentShare {
    /// Bytes that may be urgent now, in parts of [`SHARE`].
    credit: u64,
    credited_at: Instant,
}

impl Default for UrgentShare {
    fn default() -> Self {
        Self::new()
    }
}

impl UrgentShare {
    const CREDIT_MAX: u64 = BURST_BYTES * SHARE;

    /// A burst may be urgent.
    #[must_use]
    pub const fn new() -> Self {
        Self { credit: Self::CREDIT_MAX, credited_at: Instant::ZERO }
    }

    /// Counts bytes, urgent ones or others.
    pub fn count(&mut self, len: usize) {
        self.credit = (self.credit + len as u64).min(Self::CREDIT_MAX);
    }

    /// Whether this many bytes are within the share. They count as urgent then.
    pub fn admits(&mut self, now: Instant, len: usize) -> bool {
        let passed: Duration = now.saturating_since(self.credited_at);
        let earned = u128::from(passed.as_nanos()) * u128::from(BYTES_PER_SECOND * SHARE) / 1_000_000_000;
        let earned = u64::try_from(earned).unwrap_or(u64::MAX).min(Self::CREDIT_MAX);
        self.credit = (self.credit + earned).min(Self::CREDIT_MAX);
        self.credited_at = now;
        let cost = len as u64 * SHARE;
        let is_within = self.credit >= cost;
        if is_within {
            self.credit -= cost;
        }
        is_within
    }
}

/// Finds urgent packets, within their share.
#[derive(Debug)]
pub struct Urgency {
    kinds: UrgentKinds,
    share: UrgentShare,
}

impl Urgency {
    /// These kinds of packets are urgent.
    #[must_use]
    pub const fn new(kinds: UrgentKinds) -> Self {
        Self { kinds, share: UrgentShare::new() }
    }

    /// Counts a packet of the tunnel. Whether it is urgent, and within the share; `now` is called only if
    /// its kind is. The largest datagram has `len_max` bytes for it: a packet that must be cut is not.
    pub fn takes(&mut self, now: impl FnOnce() -> Instant, packet: &Packet<'_>, len_max: usize) -> bool {
        let len = packet.ip.len();
        self.share.count(len);
        self.kinds.has(packet) && len <= len_max && self.share.admits(now(), len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{Sample, transport_packet};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn with_dscp(dscp: u8) -> Sample {
        let mut sample = transport_packet(false, false, 9, &[0; 1000], None);
        sample.ip[1] = dscp << 2 | 1;
        sample
    }

    #[test]
    fn the_kinds_are_as_their_names_say() {
        let small = transport_packet(true, false, 9, &[0; 172], None);
        let (dns, large) = (transport_packet(false, false, 53, &[0; 500], None), with_dscp(0));
        let (acknowledgement, bulk) =
            (transport_packet(false, true, 9, &[], None), transport_packet(false, false, 53, &[0; 30_000], Some(1200)));
        for (kinds, expected) in [
            ("none", [false; 7]),
            ("ef", [true, true, false, false, false, false, false]),
            ("dns", [false, false, true, false, false, false, false]),
            ("small", [false, false, false, true, false, false, false]),
            ("ef, dns,small", [true, true, true, true, false, false, false]),
        ] {
            let kinds: UrgentKinds = kinds.parse().unwrap();
            let samples = [&with_dscp(46), &with_dscp(44), &dns, &small, &large, &acknowledgement, &bulk];
            assert_eq!(samples.map(|sample| kinds.has(&sample.packet())), expected, "{kinds}");
            assert_eq!(kinds.to_string().parse(), Ok(kinds));
        }
        for text in ["", "ef,", "ef,none", "EF"] {
            assert_eq!(text.parse::<UrgentKinds>(), Err(NotKinds), "{text}");
        }
    }

    /// Bytes of `count` urgent packets of about 1 KB that are taken at `now`.
    fn taken(urgency: &mut Urgency, now: Instant, count: usize) -> u64 {
        let sample = with_dscp(46);
        let taken = (0..count).filter(|_| urgency.takes(|| now, &sample.packet(), 1400)).count();
        (taken * sample.ip.len()) as u64
    }

    #[test]
    fn urgent_packets_are_a_bounded_share_of_the_bytes() {
        let mut urgency = Urgency::new(UrgentKinds::default());
        // At first a burst; then what time earns.
        let all = taken(&mut urgency, at(1), 10_000);
        assert!(all <= BURST_BYTES + 10_000 * 1028 / SHARE && all > BURST_BYTES, "{all}");
        let idle = taken(&mut urgency, at(101), 1);
        assert_eq!(idle, 1028);
        let later = (1..=100).map(|tenth| taken(&mut urgency, at(101 + tenth * 100), 40)).sum::<u64>();
        let most = 10 * BYTES_PER_SECOND + 100 * 40 * 1028 / SHARE + BURST_BYTES;
        assert!(later <= most && later > most * 9 / 10, "{later} of {most}");
    }

    #[test]
    fn bulk_earns_credit_and_a_packet_that_must_be_cut_is_not_urgent() {
        let mut urgency = Urgency::new(UrgentKinds::default());
        while taken(&mut urgency, at(1), 1) > 0 {}
        let bulk = transport_packet(false, true, 9, &[0; 60_000], Some(1400));
        assert!(!urgency.takes(|| panic!("bulk needs no clock"), &bulk.packet(), 1400));
        assert_eq!(taken(&mut urgency, at(1), 20), 9 * 1028, "an eighth of 60,000 and of 20,000");
        assert!(!urgency.takes(|| at(9999), &with_dscp(46).packet(), 1000));
    }
}
