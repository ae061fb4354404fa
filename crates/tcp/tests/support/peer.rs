//! A peer that the test drives segment by segment.

use bytes::Bytes;
use tcp::{Arrival, Connection, Event, Plan, Read, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Ecn, Instant, Seq32};
use wire::tcp::{Flags, Header, Options, SackBlocks, Timestamps};

use super::journals::Checked;
use super::{CLIENT, SERVER};

/// Initial sequence number of the peer; the next constant is that of the connection.
pub(crate) const PEER_INITIAL: u32 = 5_000;
pub(crate) const INITIAL: u32 = 70_000;

/// Peer's clock at the start of the test.
const PEER_CLOCK: u32 = 9_000;

/// Limit on segments in a plan.
const BATCH: usize = 16;

/// Limit on plans at one moment.
const PLANS_MAX: usize = 10_000;

/// A segment that the connection has sent. Numbers count from the initial ones: zero is the SYN.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) options: Options,
    pub(crate) data: Bytes,
    pub(crate) ecn: Option<Ecn>,
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at, seq, ack, flags, window, .. } = self;
        write!(f, "{at:?} {flags} {seq}+{} ack {ack} window {window}", self.data.len())?;
        if !self.options.sack.is_empty() {
            write!(f, " {:?}", self.options.sack)?;
        }
        Ok(())
    }
}

impl Sent {
    pub(crate) const fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }

    /// Returns the number after the last one that it occupies.
    pub(crate) fn end(&self) -> u32 {
        self.seq + self.data.len() as u32 + u32::from(self.has(Flags::SYN)) + u32::from(self.has(Flags::FIN))
    }
}

/// A segment of the peer. Numbers count from the initial ones.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Options,
    pub(crate) data: Bytes,
    pub(crate) ecn: Option<Ecn>,
    /// Bytes in each of the joined segments.
    pub(crate) joined: Option<usize>,
}

impl Segment {
    pub(crate) fn flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }

    pub(crate) fn seq(self, seq: u32) -> Self {
        Self { seq, ..self }
    }

    pub(crate) fn ack(self, ack: u32) -> Self {
        Self { ack, ..self }
    }

    pub(crate) fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }

    pub(crate) fn data(self, data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), ..self }
    }

    pub(crate) fn len(self, len: usize) -> Self {
        self.data(vec![b'x'; len])
    }

    pub(crate) fn sack(mut self, blocks: &[(u32, u32)]) -> Self {
        self.options.sack = SackBlocks::default();
        for (start, end) in blocks {
            self.options.sack.push(Seq32::new(INITIAL) + *start, Seq32::new(INITIAL) + *end);
        }
        self
    }

    pub(crate) fn stamp(mut self, value: u32, echo: u32) -> Self {
        self.options.timestamps = Some(Timestamps { value, echo });
        self
    }

    /// Adds the urgent flag, and this pointer.
    pub(crate) fn urgent(self, urgent: u16) -> Self {
        Self { urgent, flags: self.flags | Flags::URG, ..self }
    }

    pub(crate) fn ecn(self, ecn: Ecn) -> Self {
        Self { ecn: Some(ecn), ..self }
    }
}

/// Returns the options that the peer offers in its SYN.
pub(crate) fn offer() -> Options {
    Options { mss: Some(1460), sack_permitted: true, window_scale: Some(0), ..Options::default() }
}

/// Returns the same with buffers of their largest sizes from the beginning, unless the test sets
/// others.
fn with_full_buffers(config: &TcpConfig) -> TcpConfig {
    let is_default = config.buffers_initial == TcpConfig::default().buffers_initial;
    TcpConfig { buffers_initial: if is_default { usize::MAX } else { config.buffers_initial }, ..config.clone() }
}

/// One connection, and the peer's view of it.
pub(crate) struct Peer {
    pub(crate) now: Instant,
    pub(crate) connection: Connection,
    pub(crate) tuple: Tuple,
    /// The peer's next sequence number and window.
    pub(crate) nxt: u32,
    pub(crate) window: u16,
    /// Next number that the peer expects: the value of `ack` unless a test sets another.
    pub(crate) expected: u32,
    /// Timestamp that the peer echoes; `None` without timestamps.
    pub(crate) echo: Option<u32>,
    /// The initial numbers.
    initials: (u32, u32),
    pub(crate) events: Vec<Event>,
    /// Dropped after the connection, which completes the journal.
    _checked: Checked,
}

impl Peer {
    /// Creates a peer that has opened a connection to `config` with these options, and has
    /// completed the handshake.
    pub(crate) fn opens(config: &TcpConfig, options: Options) -> Self {
        Self::opens_with(config, options, Flags::SYN, (INITIAL, PEER_INITIAL))
    }

    pub(crate) fn opens_with(config: &TcpConfig, options: Options, flags: Flags, initials: (u32, u32)) -> Self {
        let mut peer = Self::sends_syn(config, options, flags, initials);
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].has(Flags::SYN | Flags::ACK), "{answer:?}");
        peer.note(&answer);
        peer.send(peer.segment());
        assert_eq!(peer.sent().len(), 0);
        peer
    }

    /// Creates a peer that has sent its SYN, and nothing else.
    pub(crate) fn sends_syn(config: &TcpConfig, mut options: Options, flags: Flags, initials: (u32, u32)) -> Self {
        let tuple = Tuple { local: SERVER, remote: CLIENT };
        let now = Instant::ZERO + Duration::from_secs(100);
        let echo = options.timestamps.map(|_| 0);
        options.timestamps = echo.map(|echo| Timestamps { value: PEER_CLOCK, echo });
        let header = Header {
            source_port: CLIENT.port(),
            destination_port: SERVER.port(),
            seq: Seq32::new(initials.1),
            flags,
            window: u16::MAX,
            options,
            ..Header::default()
        };
        let syn = Arrival { tuple, header, data: Bytes::new(), segment: 0, ecn: None };
        let checked = Checked::by_environment();
        let config = checked.config(&with_full_buffers(config));
        let connection = Connection::accept(now, config, &syn, Seq32::new(initials.0), 77);
        Self::new(now, connection, (tuple, initials), 1, echo, checked)
    }

    /// Creates a peer to which `config` opens a connection; it has not answered.
    pub(crate) fn awaits(config: &TcpConfig) -> Self {
        let tuple = Tuple { local: CLIENT, remote: SERVER };
        let now = Instant::ZERO + Duration::from_secs(100);
        let checked = Checked::by_environment();
        let config = checked.config(&with_full_buffers(config));
        let connection = Connection::connect(now, config, tuple, Seq32::new(INITIAL), 77);
        Self::new(now, connection, (tuple, (INITIAL, PEER_INITIAL)), 0, None, checked)
    }

    fn new(
        now: Instant,
        connection: Connection,
        (tuple, initials): (Tuple, (u32, u32)),
        nxt: u32,
        echo: Option<u32>,
        checked: Checked,
    ) -> Self {
        let (window, expected, events) = (u16::MAX, 0, Vec::new());
        Self { now, connection, tuple, nxt, window, expected, echo, initials, events, _checked: checked }
    }

    /// Creates a peer to which `config` has opened a connection, and which has answered with these
    /// options.
    pub(crate) fn answers(config: &TcpConfig, options: Options, flags: Flags) -> Self {
        let mut peer = Self::awaits(config);
        let syn = peer.sent();
        assert!(syn.len() == 1 && syn[0].has(Flags::SYN) && !syn[0].has(Flags::ACK), "{syn:?}");
        peer.note(&syn);
        peer.echo = options.timestamps.and(syn[0].options.timestamps).map(|timestamps| timestamps.value);
        let stamps = peer.segment().options.timestamps;
        let answer = Segment { options: Options { timestamps: stamps, ..options }, ..peer.segment().flags(flags) };
        peer.send(answer);
        peer.nxt = 1;
        let answer = peer.sent();
        assert!(answer.len() == 1 && answer[0].flags == Flags::ACK, "{answer:?}");
        peer
    }

    /// Returns the next segment of an honest peer: an acknowledgement of everything noted.
    pub(crate) fn segment(&self) -> Segment {
        let timestamps = self.echo.map(|echo| Timestamps { value: self.clock(), echo });
        Segment {
            seq: self.nxt,
            ack: self.expected,
            flags: Flags::ACK,
            window: self.window,
            urgent: 0,
            options: Options { timestamps, ..Options::default() },
            data: Bytes::new(),
            ecn: None,
            joined: None,
        }
    }

    /// Returns the peer's clock.
    pub(crate) fn clock(&self) -> u32 {
        let start = Instant::ZERO + Duration::from_secs(100);
        PEER_CLOCK.wrapping_add(self.now.saturating_since(start).as_millis() as u32)
    }

    /// Returns the arrival of a segment.
    pub(crate) fn arrival(&self, segment: &Segment) -> Arrival {
        let header = Header {
            source_port: self.tuple.remote.port(),
            destination_port: self.tuple.local.port(),
            seq: Seq32::new(self.initials.1) + segment.seq,
            ack: Seq32::new(self.initials.0) + segment.ack,
            flags: segment.flags,
            window: segment.window,
            urgent: segment.urgent,
            options: segment.options,
        };
        let data = segment.data.clone();
        Arrival { tuple: self.tuple, header, segment: segment.joined.unwrap_or(data.len()), data, ecn: segment.ecn }
    }

    /// Sends a segment. The peer's next number does not change.
    pub(crate) fn send(&mut self, segment: Segment) {
        let arrival = self.arrival(&segment);
        self.connection.handle_segment(self.now, arrival);
        self.take_events();
    }

    /// Sends the next `len` bytes.
    pub(crate) fn send_data(&mut self, len: usize) {
        self.send(self.segment().len(len));
        self.nxt += len as u32;
    }

    /// Acknowledges everything noted.
    pub(crate) fn send_ack(&mut self) {
        self.send(self.segment());
    }

    /// Returns the segments that the connection sends now.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let (mut plan, mut packet, mut all) = (Plan::default(), SuperPacket::default(), Vec::new());
        for count in 0.. {
            assert!(count < PLANS_MAX, "the connection sends without end");
            if !self.connection.poll_plan(self.now, BATCH, &mut plan) {
                break;
            }
            plan.seal(&mut packet);
            packet.packets(|packet| all.push(self.open(packet)));
        }
        self.take_events();
        all
    }

    fn open(&self, packet: &[u8]) -> Sent {
        let arrival = Arrival::open(&Bytes::copy_from_slice(packet), None, false).expect("a valid segment");
        let header = arrival.header;
        assert_eq!((arrival.tuple.local, arrival.tuple.remote), (self.tuple.remote, self.tuple.local));
        Sent {
            at: self.now,
            seq: header.seq.get().wrapping_sub(self.initials.0),
            ack: header.ack.get().wrapping_sub(self.initials.1),
            flags: header.flags,
            window: header.window,
            options: header.options,
            data: arrival.data,
            ecn: arrival.ecn,
        }
    }

    /// Notes the reception of these segments: they are acknowledged with the next segment, if they
    /// are in order.
    pub(crate) fn note(&mut self, all: &[Sent]) {
        for sent in all {
            if sent.seq <= self.expected {
                self.expected = self.expected.max(sent.end());
                if let Some((echo, stamps)) = self.echo.as_mut().zip(sent.options.timestamps) {
                    *echo = stamps.value;
                }
            }
        }
    }

    /// Returns the segments that the connection sends, and notes them.
    pub(crate) fn receive(&mut self) -> Vec<Sent> {
        let sent = self.sent();
        self.note(&sent);
        sent
    }

    /// Lets time pass, with all timeouts on the way; returns the segments sent meanwhile.
    pub(crate) fn pass(&mut self, span: Duration) -> Vec<Sent> {
        let (end, mut all) = (self.now + span, self.sent());
        for count in 0.. {
            assert!(count < PLANS_MAX, "timeouts without end");
            let Some(next) = self.connection.poll_timeout().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.connection.handle_timeout(self.now);
            all.extend(self.sent());
        }
        self.now = end;
        all
    }

    /// Lets time pass until the connection sends a segment; returns `None` if it does not within
    /// `span`.
    pub(crate) fn pass_until_sent(&mut self, span: Duration) -> Option<Vec<Sent>> {
        let end = self.now + span;
        for count in 0.. {
            assert!(count < PLANS_MAX, "timeouts without end");
            let sent = self.sent();
            if !sent.is_empty() {
                return Some(sent);
            }
            let Some(next) = self.connection.poll_timeout().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.connection.handle_timeout(self.now);
        }
        self.now = end;
        None
    }

    /// Writes `len` bytes.
    pub(crate) fn write(&mut self, len: usize) {
        let mut bytes = Bytes::from(vec![b'y'; len]);
        while !bytes.is_empty() {
            self.connection.write(&mut bytes).expect("there is space");
        }
    }

    /// Reads everything.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Read::Bytes(bytes) = self.connection.read(usize::MAX) {
            all.extend_from_slice(&bytes);
        }
        all
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.events.push(event);
        }
    }

    /// Asserts that the connection lives and still takes and acknowledges data.
    pub(crate) fn assert_works(&mut self) {
        let before = self.read().len();
        self.send_data(10);
        let all = self.pass(Duration::from_millis(500));
        assert_eq!(self.read().len(), 10, "after {before} bytes");
        assert!(all.iter().any(|sent| sent.ack == self.nxt), "{all:?}");
    }
}
