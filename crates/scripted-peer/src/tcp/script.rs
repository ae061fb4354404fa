//! [`TcpScript`]: the scripted end of a TCP connection. It reads headers and touches no data.

use std::collections::VecDeque;

use bytes::Bytes;
use driver::SendError;
use tcp::{SuperPacket, Tuple};
use tcp_driver::Layers;
use units::Seq32;
use wire::ip::{self, Protocol};
use wire::tcp::{self as tcp_wire, Flags, Header, Options};

use super::check::StreamCheck;
use super::feed::{Fed, Feeder, Outgoing};

/// Packets per acknowledgement: a 256 KiB piece of packets of 4 KiB. Acknowledgements are not part
/// of the measurement; with fewer of them, the window would empty.
pub const ACK_EVERY: u64 = 64;

/// Number of packets by which one direction may lead the other if they [keep
/// step](TcpScript::feed_in_step).
const LEAD: u64 = 4 * ACK_EVERY;

/// Shift of the announced window.
const WINDOW_SCALE: u8 = 14;

/// The script's initial sequence number.
const INITIAL: Seq32 = Seq32::new(1_000_000);

/// The scripted end.
#[derive(Debug)]
pub struct TcpScript {
    layers: Layers,
    /// Addresses, known from the SYN on; the local side is the script's.
    tuple: Option<Tuple>,
    /// Whether the answer to the SYN has not left.
    is_syn_due: bool,
    /// Initial sequence number of the measured end.
    peer_initial: Seq32,
    /// Next sequence number of the measured end.
    next: Seq32,
    /// Number of data packets received; the next field counts those acknowledged.
    packets: u64,
    acked: u64,
    /// Sequence numbers after the packets not acknowledged.
    unacked: VecDeque<Seq32>,
    /// Acknowledged sequence number.
    ack: Seq32,
    bytes: u64,
    /// Number of packets resent.
    repeated: u64,
    /// Packets made in advance.
    feed: VecDeque<Fed>,
    /// Sequence number after the data sent.
    sent: Seq32,
    /// Progress of both directions; `None` unless they keep step.
    step: Option<Step>,
    /// Sequence number after the last one that the measured end permits, and the unit of its
    /// windows.
    edge: Seq32,
    peer_scale: u8,
    /// Whether a packet has arrived since the measured end last received.
    has_arrived: bool,
    check: Option<StreamCheck>,
    failure: Option<String>,
}

/// Progress of both directions since they began to keep step.
#[derive(Debug)]
struct Step {
    /// Number of packets sent.
    fed: u64,
    /// Numbers of packets received, and acknowledged, before.
    arrived_before: u64,
    acked_before: u64,
}

impl TcpScript {
    /// Creates a script that waits for a SYN. `check` sees every packet.
    pub fn new(layers: Layers, check: Option<StreamCheck>) -> Self {
        Self {
            layers,
            tuple: None,
            is_syn_due: false,
            peer_initial: Seq32::new(0),
            next: Seq32::new(0),
            packets: 0,
            acked: 0,
            unacked: VecDeque::new(),
            ack: Seq32::new(0),
            bytes: 0,
            repeated: 0,
            feed: VecDeque::new(),
            sent: INITIAL + 1,
            step: None,
            edge: INITIAL + 1,
            peer_scale: 0,
            has_arrived: false,
            check,
            failure: None,
        }
    }

    /// Returns the number of packets with data that arrived in order.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of bytes of their TCP data.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of packets that were resent, although none is lost.
    pub const fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Returns the acknowledged sequence number.
    pub const fn ack(&self) -> Seq32 {
        self.ack
    }

    /// Returns the first failure.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns the check, for reading its results.
    pub const fn check(&self) -> Option<&StreamCheck> {
        self.check.as_ref()
    }

    // ── The measured end sends ───────────────────────────────────────────────────────────────────

    /// Takes packets from the measured end. Returns true if the script has something to send.
    ///
    /// # Errors
    /// Fails if the device would have to segment packets or complete checksums.
    pub fn take(&mut self, packets: &SuperPacket) -> Result<bool, SendError> {
        if packets.is_checksum_partial {
            return Err(SendError::Refused("the scripted device has no offloads".to_owned()));
        }
        packets.packets(|packet| {
            if let Err(error) = self.take_packet(packet) {
                self.failure.get_or_insert(error);
            }
        });
        self.has_arrived = true;
        Ok(self.is_syn_due || self.acknowledgeable() > 0 || self.may_feed())
    }

    fn take_packet(&mut self, packet: &[u8]) -> Result<(), String> {
        let header_len = packet.get(..ip::IPV4_HEADER_LEN).ok_or("a packet without an IPv4 header")?.len();
        let below_len = if Protocol(packet[9]) == Protocol::AH { self.layers.below_len() } else { 0 };
        let tcp = packet.get(header_len + below_len..).ok_or("a packet without a TCP header")?;
        let fixed: &[u8; tcp_wire::HEADER_LEN] = tcp.first_chunk().ok_or("a packet without a TCP header")?;
        let flags = Flags(u16::from(fixed[13]));
        if flags.contains(Flags::SYN) {
            return self.take_syn(packet, tcp);
        }
        if flags.contains(Flags::RST) {
            return Err("the measured end has reset the connection".to_owned());
        }
        let seq = Seq32::new(u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]));
        self.note_window(fixed);
        let data_at = usize::from(fixed[12] >> 4) * 4;
        let data_len = tcp.len().checked_sub(data_at).ok_or("a TCP header that is cut off")?;
        if data_len == 0 {
            return Ok(());
        }
        if seq.is_before(self.next) {
            self.repeated += 1;
            return Ok(());
        }
        if seq != self.next {
            return Err(format!("segment {seq:?} follows {:?}: one between them is missing", self.next));
        }
        if let Some(check) = &mut self.check {
            check.take(packet, header_len + below_len + data_at, seq)?;
        }
        self.next = self.next + data_len as u32;
        self.unacked.push_back(self.next);
        self.packets += 1;
        self.bytes += data_len as u64;
        Ok(())
    }

    /// Records the window of the measured end.
    fn note_window(&mut self, header: &[u8; tcp_wire::HEADER_LEN]) {
        let ack = Seq32::new(u32::from_be_bytes([header[8], header[9], header[10], header[11]]));
        let window = u32::from(u16::from_be_bytes([header[14], header[15]])) << self.peer_scale;
        if (ack + window).is_after(self.edge) {
            self.edge = ack + window;
        }
    }

    fn may_feed(&self) -> bool {
        let is_in_step = self.step.as_ref().is_none_or(|step| step.fed <= self.packets - step.arrived_before + LEAD);
        is_in_step && self.feed.front().is_some_and(|fed| !fed.end.is_after(self.edge))
    }

    fn take_syn(&mut self, packet: &[u8], tcp: &[u8]) -> Result<(), String> {
        let ip = ip::Packet::parse(packet).map_err(|error| error.to_string())?;
        let (header, _) = Header::parse(tcp).map_err(|error| error.to_string())?;
        self.tuple = Some(Tuple {
            local: (ip.destination, header.destination_port).into(),
            remote: (ip.source, header.source_port).into(),
        });
        (self.peer_initial, self.next, self.ack) = (header.seq, header.seq + 1, header.seq + 1);
        self.peer_scale = header.options.window_scale.unwrap_or(0);
        self.is_syn_due = true;
        if let Some(check) = &mut self.check {
            check.begin(header.seq, INITIAL);
        }
        Ok(())
    }

    // ── The measured end receives ────────────────────────────────────────────────────────────────

    /// Returns the number of packets that may be acknowledged now.
    fn acknowledgeable(&self) -> u64 {
        let until = match &self.step {
            // Acknowledgements withheld for long look like loss.
            Some(step) if !self.feed.is_empty() => self.packets.min(step.acked_before + step.fed + LEAD),
            _ => self.packets,
        };
        until.saturating_sub(self.acked)
    }

    /// Returns the next packet for the measured end, and whether the script should be polled again
    /// soon.
    ///
    /// An acknowledgement is due when enough packets wait for it, or when the measured end has sent
    /// nothing since its last poll.
    pub fn next_packet(&mut self) -> (Option<Bytes>, bool) {
        if std::mem::take(&mut self.is_syn_due) {
            let options = Options { mss: Some(u16::MAX), window_scale: Some(WINDOW_SCALE), ..Options::default() };
            return (Some(self.packet(INITIAL, Flags::SYN | Flags::ACK, options)), false);
        }
        let waiting = self.acknowledgeable();
        if waiting < ACK_EVERY
            && self.may_feed()
            && let Some(fed) = self.feed.pop_front()
        {
            self.sent = fed.end;
            self.step.iter_mut().for_each(|step| step.fed += 1);
            return (Some(fed.packet), false);
        }
        let has_arrived = std::mem::take(&mut self.has_arrived);
        if waiting < ACK_EVERY && (waiting == 0 || has_arrived) {
            return (None, waiting > 0);
        }
        self.acked += waiting;
        self.ack = self.unacked.drain(..waiting as usize).next_back().unwrap_or(self.ack);
        (Some(self.packet(self.sent, Flags::ACK, Options::default())), false)
    }

    fn packet(&self, seq: Seq32, flags: Flags, options: Options) -> Bytes {
        let mut out = Vec::new();
        self.outgoing(seq, flags, options).write(&self.layers, &mut out, |_| {});
        out.into()
    }

    fn outgoing(&self, seq: Seq32, flags: Flags, options: Options) -> Outgoing {
        Outgoing { tuple: self.tuple.expect("a SYN was received"), seq, ack: self.ack, flags, options }
    }

    // ── Data made in advance ─────────────────────────────────────────────────────────────────────

    /// Creates the feeder of data for this connection. `None` before the handshake.
    pub fn feeder(&self, payload: usize) -> Option<Feeder> {
        self.tuple?;
        let first = self.outgoing(INITIAL + 1, Flags::ACK, Options::default());
        Some(Feeder::new(self.layers.clone(), first, payload, INITIAL, self.peer_initial))
    }

    /// Sends packets as fast as the measured end receives them and its window permits.
    pub fn feed(&mut self, packets: Vec<Fed>) {
        self.feed.extend(packets);
    }

    /// Does the same as [`feed`](Self::feed), but sends no faster than the measured end sends, and
    /// acknowledges no faster than the measured end receives, until everything was sent: both
    /// directions transfer the same amount, except for some hundred packets and the data in flight.
    pub fn feed_in_step(&mut self, packets: Vec<Fed>) {
        self.step = Some(Step { fed: 0, arrived_before: self.packets, acked_before: self.acked });
        self.feed(packets);
    }
}
