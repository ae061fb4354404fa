//! SYN cookies (RFC 4987, section 3.6): a SYN is answered without keeping state. The initial
//! sequence number of the answer encodes the contents of the SYN, with a code that only this host
//! can compute. The peer's acknowledgement returns the number and begins the connection.
//!
//! ```text
//!            31       30..28        27..0
//!  number    period   segment size  code of addresses, ports, the peer's number, period and size
//!
//!            31..6                5      4      3..0
//!  timestamp the clock's higher   ECN    SACK   window scale, 15: none
//! ```
//!
//! A guess succeeds once in 2^28 attempts. Options other than the segment size travel in the
//! timestamp that the peer echoes. Peers without timestamps get none of them. The price: the answer
//! is not retransmitted. If this side speaks first and the last segment of the handshake is lost,
//! the connection waits until the peer gives up.

use std::sync::Arc;

use units::{Duration, Instant, Seq32};
use wire::tcp::{Flags, Header, Options, Timestamps};

use super::Connection;
use crate::arrival::Arrival;
use crate::config::TcpConfig;
use crate::plan::Plan;
use crate::secret::HostSecret;
use crate::timestamps::TimestampClock;

/// A cookie is valid in the period of its creation and in the next one. A longer period gives more
/// time to guess; 64 seconds exceed the time for which a peer repeats its acknowledgement.
const PERIOD: Duration = Duration::from_secs(64);

/// Time after the last cookie was sent in which one may come back.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(2 * 64);

/// Segment sizes that a cookie can encode: the defaults of IPv4 and IPv6, those of tunnels,
/// Ethernet with IPv6 and IPv4, FDDI, and Ethernet with jumbo frames.
const SEGMENT_SIZES: [u16; 8] = [536, 1220, 1360, 1432, 1440, 1460, 4312, 8940];

/// Timestamp bits that encode options.
const OPTIONS: u32 = 0x3f;
const ECN: u32 = 1 << 5;
const SACK: u32 = 1 << 4;
const NO_SCALE: u32 = 15;

/// Contents of a SYN that a cookie encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    /// Index of the segment size.
    size: usize,
    /// Options encoded in the timestamp, if the SYN has one.
    options: Option<u32>,
}

impl Kept {
    fn of(config: &TcpConfig, syn: &Header) -> Self {
        let options = &syn.options;
        let size = options.mss.map_or(0, |mss| SEGMENT_SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0));
        let has_ecn = syn.flags.contains(Flags::ECE | Flags::CWR);
        let bits = options.window_scale.map_or(NO_SCALE, u32::from)
            | if options.sack_permitted { SACK } else { 0 }
            | if has_ecn { ECN } else { 0 };
        Self { size, options: options.timestamps.filter(|_| config.timestamps).map(|_| bits) }
    }

    /// Builds the answer to a SYN, equal to that of a connection that knows only the encoded
    /// contents. Creating a connection would cost most of the time of a flood.
    fn answer(&self, now: Instant, config: &TcpConfig, secret: &HostSecret, syn: &Arrival) -> Header {
        let Arrival { tuple, header, .. } = syn;
        let offered = &header.options;
        let has_ecn = config.ecn && header.flags.contains(Flags::ECE | Flags::CWR);
        let timestamps = offered.timestamps.filter(|_| config.timestamps).map(|theirs| {
            let mut clock = TimestampClock::new(secret.timestamp_offset(tuple));
            clock.update(now, theirs.value);
            let ours = clock.stamp(now);
            Timestamps { value: self.stamp(ours.value), ..ours }
        });
        let options = Options {
            mss: Some(config.announced_mss(tuple.local.is_ipv6())),
            // Without timestamps, the options would be unknown later.
            window_scale: (self.window_scale().is_some() && config.window_scaling).then(|| config.window_shift()),
            sack_permitted: self.bits() & SACK != 0 && config.sack,
            timestamps,
            ..Options::default()
        };
        Header {
            source_port: tuple.local.port(),
            destination_port: tuple.remote.port(),
            seq: cookie(secret, syn, header.seq, period(now), self.size),
            ack: header.seq + 1,
            flags: Flags::SYN
                | Flags::ACK
                | if has_ecn && self.bits() & ECN != 0 { Flags::ECE } else { Flags::default() },
            window: config.initial_window(),
            urgent: 0,
            options,
        }
    }

    /// Returns the option bits.
    fn bits(&self) -> u32 {
        self.options.unwrap_or(NO_SCALE)
    }

    /// Returns the shift of the peer's windows, if it scales them.
    fn window_scale(&self) -> Option<u8> {
        let scale = self.bits() & NO_SCALE;
        (scale != NO_SCALE).then_some(scale as u8)
    }

    /// Rebuilds a SYN with the encoded contents only.
    fn syn(&self, header: &Header, seq: Seq32, timestamps: Option<Timestamps>) -> Header {
        let bits = self.bits();
        let ecn = if bits & ECN != 0 { Flags::ECE | Flags::CWR } else { Flags::default() };
        let options = Options {
            mss: Some(SEGMENT_SIZES[self.size]),
            window_scale: self.window_scale(),
            sack_permitted: bits & SACK != 0,
            timestamps: timestamps.filter(|_| self.options.is_some()),
            ..Options::default()
        };
        Header { seq, ack: Seq32::new(0), flags: Flags::SYN | ecn, options, ..*header }
    }

    /// Returns the latest timestamp up to `value` that encodes the options.
    fn stamp(&self, value: u32) -> u32 {
        let stamp = value & !OPTIONS | self.options.unwrap_or(0);
        // A timestamp ahead of the clock would make the next segment look old (RFC 7323, section
        // 5.3).
        if stamp.wrapping_sub(value) as i32 > 0 { stamp.wrapping_sub(OPTIONS + 1) } else { stamp }
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / PERIOD.as_nanos()
}

fn cookie(secret: &HostSecret, syn: &Arrival, peer_initial: Seq32, period: u64, size: usize) -> Seq32 {
    let code = secret.cookie_code(&syn.tuple, peer_initial, period, size as u8);
    Seq32::new((period as u32 & 1) << 31 | (size as u32) << 28 | code & 0x0fff_ffff)
}

impl Connection {
    /// Fills `plan` with an answer to a SYN without keeping state: see
    /// [`accept_cookie`](Self::accept_cookie).
    pub fn answer_with_cookie(
        now: Instant,
        config: &Arc<TcpConfig>,
        secret: &HostSecret,
        syn: &Arrival,
        plan: &mut Plan,
    ) {
        let kept = Kept::of(config, &syn.header);
        plan.release();
        plan.tuple = syn.tuple;
        (plan.dscp, plan.ecn) = (0, None);
        plan.sign(config.md5.as_ref());
        plan.header = kept.answer(now, config, secret, syn);
    }

    /// Returns the connection that this segment completes, if it acknowledges a
    /// [cookie](Self::answer_with_cookie) of this host. It gives no round-trip sample, because the
    /// option bits make the timestamp inexact.
    pub fn accept_cookie(
        now: Instant,
        config: &Arc<TcpConfig>,
        secret: &HostSecret,
        mut arrival: Arrival,
    ) -> Option<Self> {
        let (initial, peer_initial) = (arrival.header.ack - 1, arrival.header.seq - 1);
        let size = (initial.get() >> 28 & 7) as usize;
        let this = period(now);
        let is_ours = |period| initial == cookie(secret, &arrival, peer_initial, period, size);
        if !(is_ours(this) || this.checked_sub(1).is_some_and(is_ours)) {
            return None;
        }
        let echoed = arrival.header.options.timestamps.filter(|_| config.timestamps);
        let kept = Kept { size, options: echoed.map(|timestamps| timestamps.echo & OPTIONS) };
        let header = kept.syn(&arrival.header, peer_initial, echoed);
        let syn = Arrival { header, data: bytes::Bytes::new(), ..arrival.clone() };
        let mut connection =
            Self::accept(now, Arc::clone(config), &syn, initial, secret.timestamp_offset(&arrival.tuple));
        connection.pass_over_syn(now);
        if let Some(timestamps) = &mut arrival.header.options.timestamps {
            timestamps.echo = 0;
        }
        connection.handle_segment(now, arrival);
        if !connection.state.is_synchronized() {
            connection.forget_journal();
            return None;
        }
        Some(connection)
    }

    /// Marks the answer to the SYN as sent at an unknown time. It counts as retransmitted, so that
    /// its acknowledgement gives no round-trip sample (RFC 6298, section 3).
    pub(crate) fn pass_over_syn(&mut self, now: Instant) {
        self.record(|journal| journal.pass_over_syn(now));
        self.without_journal(|connection| {
            let mut plan = Plan::default();
            for _ in 0..2 {
                connection.send.repeat_syn();
                let is_sent = connection.poll_plan(now, 1, &mut plan);
                debug_assert!(is_sent, "a SYN may be sent, and again");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::Tuple;

    #[test]
    fn a_timestamp_with_options_is_at_most_the_clocks() {
        for bits in 0..=OPTIONS {
            let kept = Kept { size: 0, options: Some(bits) };
            for value in [0, 1, 62, 63, 64, 1000, u32::MAX] {
                let stamp = kept.stamp(value);
                let age = value.wrapping_sub(stamp);
                assert!(age <= OPTIONS && stamp & OPTIONS == bits, "{bits} {value}: {stamp}");
            }
        }
    }

    /// For all peer offers and local configurations, the answer equals that of a connection that
    /// received a SYN with only the cookie's contents.
    #[test]
    fn the_answer_is_that_of_a_connection() {
        let (now, secret) = (Instant::from_nanos(200_000_000_000), HostSecret::new([5; 32]));
        let tuples = [("10.0.0.1:80", "10.0.0.2:999"), ("[fd00::1]:80", "[fd00::2]:999")];
        for bits in 0..1 << 10 {
            let has = |bit: u32| bits >> bit & 1 != 0;
            let (local, remote) = tuples[usize::from(has(9))];
            let tuple = Tuple { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
            let options = Options {
                mss: has(0).then_some(1400),
                window_scale: has(1).then_some(7),
                sack_permitted: has(2),
                timestamps: has(3).then_some(Timestamps { value: 77, echo: 0 }),
                ..Options::default()
            };
            let ecn = if has(4) { Flags::ECE | Flags::CWR } else { Flags::default() };
            let header =
                Header { seq: Seq32::new(9), flags: Flags::SYN | ecn, window: 1000, options, ..Header::default() };
            let syn = Arrival { tuple, header, data: bytes::Bytes::new(), segment: 0, ecn: None };
            let config = Arc::new(TcpConfig {
                window_scaling: has(5),
                sack: has(6),
                timestamps: has(7),
                ecn: has(8),
                accurate_ecn: has(8) && has(6),
                ..TcpConfig::default()
            });
            let mut plan = Plan::default();
            Connection::answer_with_cookie(now, &config, &secret, &syn, &mut plan);
            let kept = Kept::of(&config, &syn.header);
            let seen = Arrival { header: kept.syn(&syn.header, syn.header.seq, syn.header.options.timestamps), ..syn };
            let offset = secret.timestamp_offset(&tuple);
            let mut connection = Connection::accept(now, config, &seen, plan.header.seq, offset);
            let mut expected = Plan::default();
            assert!(connection.poll_plan(now, 1, &mut expected));
            if let Some(timestamps) = &mut expected.header.options.timestamps {
                timestamps.value = kept.stamp(timestamps.value);
            }
            assert_eq!(
                (plan.tuple, plan.header, plan.ecn),
                (expected.tuple, expected.header, expected.ecn),
                "{bits:b}"
            );
        }
    }

    #[test]
    fn the_largest_size_that_is_not_above_the_peers_is_kept() {
        let size = |mss| {
            let header = Header { options: Options { mss, ..Options::default() }, ..Header::default() };
            SEGMENT_SIZES[Kept::of(&TcpConfig::default(), &header).size]
        };
        assert_eq!([None, Some(0), Some(535), Some(536), Some(1219)].map(size), [536; 5]);
        assert_eq!([Some(1439), Some(1460), Some(9000), Some(u16::MAX)].map(size), [1432, 1460, 8940, 8940]);
    }
}
