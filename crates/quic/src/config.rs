//! The configuration of connections, with the cost of each choice.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use journal::JournalSource;
use recovery::{Algorithm, RateCap};
use scheduler::{Scheduler, Strategy, Traced};
use units::Duration;
use wire::quic::MIN_INITIAL_SIZE;

use crate::plan::PLAN_BYTES_MAX;
use crate::policy::Policy;
use crate::session::Versions;

/// The most paths of one connection, so that a search through them stays cheap.
pub const PATHS_MAX: u32 = 32;

const _: () = assert!(PATHS_MAX as usize <= scheduler::PATHS_MAX, "every path can be chosen");

/// How a connection behaves. Both sides choose on their own.
///
/// More fields may be added: begin with [`default`](Self::default), and set others with the `with_`
/// methods or by assignment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransportConfig {
    /// The connection ends after this long without a packet from the peer; the smaller of both
    /// sides' values counts. Zero means never. Default 30 s.
    pub idle_timeout: Duration,
    /// The connection ends if our side of the handshake is not complete this long after it began,
    /// whatever arrives meanwhile: everyone can seal Initial packets (RFC 9001, section 5.2), and so
    /// keep the idle timer from firing. Nothing tells the peer, which may not receive at its
    /// address. Zero means never. Default 10 s.
    pub handshake_timeout: Duration,
    /// A PING is sent after this long without packets in either direction, so that an idle
    /// connection stays open. With several paths, also on each that has carried nothing to be
    /// acknowledged for so long, so that routers on the way do not forget it. Default none.
    pub keep_alive: Option<Duration>,
    /// Flow-control credit of each stream at the start, in bytes. Default 1 MiB.
    pub stream_window: u64,
    /// The most credit of one stream, in bytes, and so the most memory that one stream can take.
    /// The credit grows while it limits the peer. At most half of `connection_window_max` counts.
    /// Default 32 MiB, enough for 2.5 Gb/s over 100 ms.
    pub stream_window_max: u64,
    /// Credit of all streams together at the start, in bytes: it must be enough for others while
    /// several streams are not read. Default 8 MiB.
    pub connection_window: u64,
    /// Credit of all streams together at most, in bytes. Default 64 MiB.
    pub connection_window_max: u64,
    /// Bytes written and not yet acknowledged, over all streams. The bound in force follows the
    /// congestion window up to this value, and one stream may hold half of it. Beyond it, each
    /// stream may hold 64 KiB (or half of this value, if that is less), so that no stream has to
    /// wait for others whose peers do not read. The chunk that fills the buffer may exceed it by up
    /// to 1 MiB. Default 64 MiB.
    pub send_buffer_max: u64,
    /// Bidirectional streams the peer may have open at a time. Default 128.
    pub max_concurrent_bidi_streams: u64,
    /// Unidirectional streams the peer may have open at a time. Default 1024: a message is a
    /// stream. An application that reads a few of many streams and lets the others wait must limit
    /// their number, so that the windows of the waiting streams leave some of `connection_window`
    /// for those it reads. Otherwise both sides may wait forever.
    pub max_concurrent_uni_streams: u64,
    /// Bytes of datagrams waiting to be sent, at most. Zero does not switch receiving off. Default
    /// 1 MiB.
    pub datagram_send_buffer: u64,
    /// Bytes of datagrams received and not taken, at most; older ones are dropped for newer ones.
    /// Zero forbids the peer to send any. Default 1 MiB.
    pub datagram_receive_buffer: u64,
    /// Size of the datagrams that we send at first, in bytes of UDP payload: it must fit the path.
    /// Default 1200, which every path of QUIC must carry (RFC 9000, section 14).
    pub datagram_size: usize,
    /// Path MTU discovery (RFC 8899): while data flow, each path is probed for the largest size
    /// that it carries, up to this one. Default 1200, and so none.
    pub datagram_size_max: usize,
    /// Round-trip time assumed before the first measurement. Default 333 ms (RFC 9002, section
    /// 6.2.2).
    pub initial_rtt: Duration,
    /// The congestion controller. Default CUBIC.
    pub congestion: Algorithm,
    /// The most paths at a time. The peer is notified of it. One negotiates the multipath extension
    /// (draft-21) and allows a single path; zero does not negotiate it. The smaller of both sides'
    /// values counts. Default 1, at most [`PATHS_MAX`].
    pub max_paths: u32,
    /// The scheduler, which chooses the path of the next packets. Default: the path of the earliest
    /// delivery.
    pub scheduler: Strategy,
    /// Whether retransmissions and acknowledgements are decided for each path or for all paths
    /// together. Central acknowledgements are fewer and mix the round trips of paths.
    /// Retransmissions on the path that lost them wait for its congestion window, and the reader
    /// waits with them. Default [`Policy::CRDA`].
    pub policy: Policy,
    /// Takes a trace of the scheduler: a line for each decision, for replay. Default none.
    pub scheduler_trace: Option<TraceSink>,
    /// Takes the journal of each connection: all its inputs, for
    /// [`Replay`](crate::journal::Replay). It contains no payload and no packet protection keys,
    /// but addresses, connection IDs and reset tokens. It takes about 70 bytes for each batch that
    /// is sent or received. Default none.
    pub journal: Option<JournalSource>,
    /// A limit of rate and burst in addition to congestion control. Default none.
    pub rate_cap: Option<RateCap>,
    /// Packets sealed with one key before it is updated. Default 2^21, a quarter of what AES-GCM
    /// allows (RFC 9001, section 6.6): the next update may have to wait for three probe timeouts.
    pub key_update_interval: u64,
    /// After this long without traffic, the TLS session is dropped, which frees about 4 KiB.
    /// Exporting keying material fails from then on. Default none: never.
    pub park_after: Option<Duration>,
    /// Mark packets as ECN-capable (RFC 9000, section 13.4), so that routers can signal congestion
    /// without dropping. Each path is validated, and is not marked where marks do not work. Marks
    /// that arrive are reported in any case. Default true.
    pub ecn: bool,
    /// Grease: send random values in fields that peers must ignore (RFC 9287; RFC 9000, section
    /// 18.1). Default true.
    pub grease: bool,
    /// The versions of QUIC (RFC 9368, RFC 9369). Default both, of which version 1 is preferred.
    pub versions: Versions,
    /// Where a server asks its clients to move once the handshake is confirmed: other addresses of the
    /// same endpoint, of which it has a socket (RFC 9000, section 9.6). Default none. Clients follow, if
    /// they have one path, and stay where they are if the address does not respond.
    pub preferred_addresses: PreferredAddresses,
}

/// The addresses that a server prefers, by family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PreferredAddresses {
    /// For clients that came over IPv4.
    pub ipv4: Option<SocketAddrV4>,
    /// For clients that came over IPv6.
    pub ipv6: Option<SocketAddrV6>,
}

impl PreferredAddresses {
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.ipv4.is_none() && self.ipv6.is_none()
    }

    /// The one for a path that leads to `remote`, unless it is that. A peer elsewhere must not send us to
    /// services of our own host (RFC 9000, section 21.5.6).
    pub(crate) fn instead_of(&self, remote: SocketAddr) -> Option<SocketAddr> {
        let preferred = match remote {
            SocketAddr::V4(_) => self.ipv4.map(SocketAddr::V4),
            SocketAddr::V6(_) => self.ipv6.map(SocketAddr::V6),
        };
        let is_usable = |preferred: &SocketAddr| {
            let (ip, known) = (preferred.ip().to_canonical(), remote.ip().to_canonical());
            let is_ours = ip.is_unspecified() || ip.is_loopback() && !known.is_loopback();
            let is_group = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
            !is_ours && !is_group && preferred.port() != 0
        };
        preferred.filter(|preferred| *preferred != remote && is_usable(preferred))
    }
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            keep_alive: None,
            stream_window: 1 << 20,
            stream_window_max: 32 << 20,
            connection_window: 8 << 20,
            connection_window_max: 64 << 20,
            send_buffer_max: 64 << 20,
            max_concurrent_bidi_streams: 128,
            max_concurrent_uni_streams: 1024,
            datagram_send_buffer: 1 << 20,
            datagram_receive_buffer: 1 << 20,
            datagram_size: MIN_INITIAL_SIZE,
            datagram_size_max: MIN_INITIAL_SIZE,
            initial_rtt: recovery::INITIAL_RTT,
            congestion: Algorithm::default(),
            max_paths: 1,
            scheduler: Strategy::default(),
            policy: Policy::default(),
            scheduler_trace: None,
            journal: None,
            rate_cap: None,
            key_update_interval: 1 << 21,
            park_after: None,
            ecn: true,
            grease: true,
            versions: Versions::default(),
            preferred_addresses: PreferredAddresses::default(),
        }
    }
}

/// Setting the fields one by one.
impl TransportConfig {
    /// Sets [`idle_timeout`](Self::idle_timeout).
    #[must_use]
    pub fn with_idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }

    /// Sets [`handshake_timeout`](Self::handshake_timeout).
    #[must_use]
    pub fn with_handshake_timeout(mut self, handshake_timeout: Duration) -> Self {
        self.handshake_timeout = handshake_timeout;
        self
    }

    /// Sets [`keep_alive`](Self::keep_alive).
    #[must_use]
    pub fn with_keep_alive(mut self, keep_alive: impl Into<Option<Duration>>) -> Self {
        self.keep_alive = keep_alive.into();
        self
    }

    /// Sets [`stream_window`](Self::stream_window).
    #[must_use]
    pub fn with_stream_window(mut self, stream_window: u64) -> Self {
        self.stream_window = stream_window;
        self
    }

    /// Sets [`stream_window_max`](Self::stream_window_max).
    #[must_use]
    pub fn with_stream_window_max(mut self, stream_window_max: u64) -> Self {
        self.stream_window_max = stream_window_max;
        self
    }

    /// Sets [`connection_window`](Self::connection_window).
    #[must_use]
    pub fn with_connection_window(mut self, connection_window: u64) -> Self {
        self.connection_window = connection_window;
        self
    }

    /// Sets [`connection_window_max`](Self::connection_window_max).
    #[must_use]
    pub fn with_connection_window_max(mut self, connection_window_max: u64) -> Self {
        self.connection_window_max = connection_window_max;
        self
    }

    /// Sets [`send_buffer_max`](Self::send_buffer_max).
    #[must_use]
    pub fn with_send_buffer_max(mut self, send_buffer_max: u64) -> Self {
        self.send_buffer_max = send_buffer_max;
        self
    }

    /// Sets [`max_concurrent_bidi_streams`](Self::max_concurrent_bidi_streams).
    #[must_use]
    pub fn with_max_concurrent_bidi_streams(mut self, max_concurrent_bidi_streams: u64) -> Self {
        self.max_concurrent_bidi_streams = max_concurrent_bidi_streams;
        self
    }

    /// Sets [`max_concurrent_uni_streams`](Self::max_concurrent_uni_streams).
    #[must_use]
    pub fn with_max_concurrent_uni_streams(mut self, max_concurrent_uni_streams: u64) -> Self {
        self.max_concurrent_uni_streams = max_concurrent_uni_streams;
        self
    }

    /// Sets [`datagram_send_buffer`](Self::datagram_send_buffer).
    #[must_use]
    pub fn with_datagram_send_buffer(mut self, datagram_send_buffer: u64) -> Self {
        self.datagram_send_buffer = datagram_send_buffer;
        self
    }

    /// Sets [`datagram_receive_buffer`](Self::datagram_receive_buffer).
    #[must_use]
    pub fn with_datagram_receive_buffer(mut self, datagram_receive_buffer: u64) -> Self {
        self.datagram_receive_buffer = datagram_receive_buffer;
        self
    }

    /// Sets [`datagram_size_max`](Self::datagram_size_max).
    #[must_use]
    pub fn with_datagram_size_max(mut self, datagram_size_max: usize) -> Self {
        self.datagram_size_max = datagram_size_max;
        self
    }

    /// Sets [`datagram_size`](Self::datagram_size).
    #[must_use]
    pub fn with_datagram_size(mut self, datagram_size: usize) -> Self {
        self.datagram_size = datagram_size;
        self
    }

    /// Sets [`initial_rtt`](Self::initial_rtt).
    #[must_use]
    pub fn with_initial_rtt(mut self, initial_rtt: Duration) -> Self {
        self.initial_rtt = initial_rtt;
        self
    }

    /// Sets [`congestion`](Self::congestion).
    #[must_use]
    pub fn with_congestion(mut self, congestion: Algorithm) -> Self {
        self.congestion = congestion;
        self
    }

    /// Sets [`max_paths`](Self::max_paths).
    #[must_use]
    pub fn with_max_paths(mut self, max_paths: u32) -> Self {
        self.max_paths = max_paths;
        self
    }

    /// Sets [`scheduler`](Self::scheduler).
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Strategy) -> Self {
        self.scheduler = scheduler;
        self
    }

    /// Sets [`policy`](Self::policy).
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets [`scheduler_trace`](Self::scheduler_trace).
    #[must_use]
    pub fn with_scheduler_trace(mut self, scheduler_trace: impl Into<Option<TraceSink>>) -> Self {
        self.scheduler_trace = scheduler_trace.into();
        self
    }

    /// Sets [`journal`](Self::journal).
    #[must_use]
    pub fn with_journal(mut self, journal: impl Into<Option<JournalSource>>) -> Self {
        self.journal = journal.into();
        self
    }

    /// Sets [`rate_cap`](Self::rate_cap).
    #[must_use]
    pub fn with_rate_cap(mut self, rate_cap: impl Into<Option<RateCap>>) -> Self {
        self.rate_cap = rate_cap.into();
        self
    }

    /// Sets [`key_update_interval`](Self::key_update_interval).
    #[must_use]
    pub fn with_key_update_interval(mut self, key_update_interval: u64) -> Self {
        self.key_update_interval = key_update_interval;
        self
    }

    /// Sets [`park_after`](Self::park_after).
    #[must_use]
    pub fn with_park_after(mut self, park_after: impl Into<Option<Duration>>) -> Self {
        self.park_after = park_after.into();
        self
    }

    /// Sets [`ecn`](Self::ecn).
    #[must_use]
    pub fn with_ecn(mut self, ecn: bool) -> Self {
        self.ecn = ecn;
        self
    }

    /// Sets [`grease`](Self::grease).
    #[must_use]
    pub fn with_grease(mut self, grease: bool) -> Self {
        self.grease = grease;
        self
    }

    /// Sets [`versions`](Self::versions).
    #[must_use]
    pub fn with_versions(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    /// Sets [`preferred_addresses`](Self::preferred_addresses).
    #[must_use]
    pub fn with_preferred_addresses(mut self, preferred_addresses: PreferredAddresses) -> Self {
        self.preferred_addresses = preferred_addresses;
        self
    }
}

/// The largest datagram that can be configured, bytes: the length field of long headers has 14
/// bits.
pub const DATAGRAM_SIZE_MAX: usize = 16_000;

/// The largest datagram that path MTU discovery may find, bytes: what the system takes at a time.
pub const DISCOVERED_SIZE_MAX: usize = PLAN_BYTES_MAX;

/// Makes a sink for the scheduler trace of each connection (`docs/spec/scheduler-trace.md`).
#[derive(Clone)]
pub struct TraceSink(pub Arc<dyn Fn() -> scheduler::trace::Sink + Send + Sync>);

impl fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSink")
    }
}

impl TransportConfig {
    /// The scheduler of one connection.
    pub(crate) fn build_scheduler(&self) -> Box<dyn Scheduler> {
        match &self.scheduler_trace {
            Some(sink) => Box::new(Traced::new(self.scheduler, sink.0())),
            None => self.scheduler.build(),
        }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// A message that names the invalid value.
    pub fn validate(&self) -> Result<(), String> {
        if !(MIN_INITIAL_SIZE..=DATAGRAM_SIZE_MAX).contains(&self.datagram_size) {
            let size = self.datagram_size;
            return Err(format!("datagram_size is {size} bytes; QUIC needs {MIN_INITIAL_SIZE} to {DATAGRAM_SIZE_MAX}"));
        }
        if !(MIN_INITIAL_SIZE..=DISCOVERED_SIZE_MAX).contains(&self.datagram_size_max) {
            let size = self.datagram_size_max;
            return Err(format!(
                "datagram_size_max is {size} bytes; choose {MIN_INITIAL_SIZE} to {DISCOVERED_SIZE_MAX}"
            ));
        }
        let windows = [self.stream_window, self.stream_window_max, self.connection_window, self.connection_window_max];
        if windows.iter().any(|window| *window == 0 || *window > wire::quic::VARINT_MAX) {
            return Err("a flow-control window must be between 1 byte and 2^62 - 1".to_owned());
        }
        if self.send_buffer_max < 2 {
            return Err("send_buffer_max must be at least 2 bytes: a stream may fill half of it".to_owned());
        }
        if self.max_paths > PATHS_MAX {
            return Err(format!("max_paths is {}; at most {PATHS_MAX} are supported", self.max_paths));
        }
        if self.key_update_interval == 0 || self.key_update_interval > 1 << 22 {
            return Err("key_update_interval must be between 1 and 2^22 packets".to_owned());
        }
        if self.max_concurrent_bidi_streams.max(self.max_concurrent_uni_streams) > 1 << 20 {
            return Err("more than 2^20 concurrent streams are not supported".to_owned());
        }
        if self.rate_cap.is_some_and(|cap| cap.rate.is_zero() || cap.burst < self.datagram_size as u64) {
            return Err(format!(
                "a rate cap needs a rate above zero and a burst of at least {} bytes",
                self.datagram_size
            ));
        }
        Ok(())
    }
}
