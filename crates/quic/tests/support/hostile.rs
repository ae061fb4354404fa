//! A peer that a test drives frame by frame: it completes the handshake and seals packets
//! correctly, and follows no other rule.
//!
//! It consists of the wire formats and a deterministic session, so it can send what no
//! [`quic::Connection`] would. It acknowledges nothing unless the test says so.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use quic::session::deterministic::DeterministicFactory;
use quic::session::{HandshakeVersions, LevelKeys, NewKeys, PhaseKeys, Session, SessionFactory, TAG_LEN};
use quic::{Addresses, ConnectionId, ErrorCode, PathId, Side, TransportConfig};
use units::{Duration, Instant, Rng};
use wire::quic::{
    Close, CloseOrigin, Frame, LongHeader, MIN_INITIAL_SIZE, PacketType, Parsed, Reader, SAMPLE_LEN, Space,
    TransportParameters, Version, decode_number, emit_long, emit_short, parse_packet, read_unprotected, sample_offset,
};

use super::Node;

mod early;
mod encoding;
mod pair;

use encoding::ack_of;
#[allow(unused_imports, reason = "each test binary uses its own part of the harness")]
pub use encoding::{client_parameters, encode, multipath, number, parameter, payload};
pub use pair::HostilePair;

/// The address of the hostile peer.
pub const HOSTILE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66)), 6666);

/// Its address as seen on the victim's socket `socket`.
pub const fn hostile_on(socket: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, socket as u8, 66)), HOSTILE.port())
}

/// Length of the connection IDs it chooses, bytes.
const ID_LEN: usize = 8;

/// The spin bit of a short header (RFC 9000, section 17.3.1).
const SPIN_BIT: u8 = 0x20;

/// A packet that it received and opened.
pub struct OpenedPacket {
    pub space: Space,
    /// The sequence number of the connection ID it was sent to.
    pub path: PathId,
    pub dcid: ConnectionId,
    /// The address it was sent to, unless it was the first flight of a handshake.
    pub to: Option<SocketAddr>,
    /// Size of the whole datagram that contained it, bytes.
    pub datagram_len: usize,
    pub number: u64,
    pub phase: bool,
    /// The spin bit, if it has a short header.
    pub spin: bool,
    payload: Vec<u8>,
}

impl OpenedPacket {
    /// Its frames.
    pub fn frames(&self) -> Vec<Frame<'_>> {
        let mut reader = Reader::new(&self.payload);
        let mut frames = Vec::new();
        while !reader.is_empty() {
            frames.push(Frame::parse(&mut reader).expect("only valid frames are sent"));
        }
        frames
    }

    /// The data of its PATH_CHALLENGE frames.
    pub fn challenges(&self) -> Vec<[u8; 8]> {
        let data = |frame| if let Frame::PathChallenge(data) = frame { Some(data) } else { None };
        self.frames().into_iter().filter_map(data).collect()
    }
}

/// Deviations from an ordinary packet.
#[derive(Clone, Copy, Default)]
pub struct SealOverrides {
    /// Set the reserved bits of the first byte.
    pub reserved_bits: bool,
    /// Clear the fixed bit.
    pub clear_fixed_bit: bool,
    /// Use this packet number and leave the counter unchanged.
    pub number: Option<u64>,
    /// Use the key phase this many updates after the current one.
    pub phases_ahead: usize,
    /// The token of an Initial packet.
    pub token: &'static [u8],
    /// Send 1-RTT data in a packet of type 0-RTT.
    pub zero_rtt: bool,
    /// Set the spin bit of a short header.
    pub spin: bool,
    /// The version of a long header, instead of the one in use.
    pub version: Option<Version>,
}

/// The hostile peer.
pub struct Hostile {
    side: Side,
    /// Of long headers.
    version: Version,
    session: Box<dyn Session>,
    pub local_id: ConnectionId,
    pub remote_id: ConnectionId,
    /// The destination of the client's first packet.
    pub first_destination: ConnectionId,
    keys: [Option<LevelKeys>; 3],
    /// Keys of later phases, the next one first.
    later: Vec<PhaseKeys>,
    phase: bool,
    write_space: Space,
    read_space: Space,
    pub next_number: [u64; 3],
    /// Packet numbers received, by space.
    received: [Vec<u64>; 3],
    /// Handshake bytes not yet sent in packets.
    outgoing: Vec<(Space, Vec<u8>)>,
    crypto_sent: [u64; 3],
    crypto_read: [u64; 3],
    crypto_ahead: [BTreeMap<u64, Vec<u8>>; 3],
    /// Everything opened, oldest first.
    pub opened: Vec<OpenedPacket>,
    /// The paths after the first for which either side has issued an ID.
    paths: BTreeMap<u32, HostilePath>,
    /// Packets that failed to open.
    pub unopened: u64,
    /// Bytes received and sent, as UDP payload.
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// One path after the first.
#[derive(Default)]
struct HostilePath {
    /// The victim's connection IDs for the path, and ours.
    remote_ids: Vec<ConnectionId>,
    local_ids: Vec<ConnectionId>,
    next_number: u64,
    received: Vec<u64>,
}

impl Hostile {
    fn new(side: Side, seed: u64, local_id: ConnectionId, first: ConnectionId, parameters: &[u8]) -> Self {
        let factory = DeterministicFactory::new(side, Rng::from_seed(seed).split("hostile session"));
        Self::with_factory(&factory, side, local_id, first, parameters)
    }

    fn with_factory(
        factory: &DeterministicFactory,
        side: Side,
        local_id: ConnectionId,
        first: ConnectionId,
        parameters: &[u8],
    ) -> Self {
        let initial = factory.initial_keys(&first, side, Version::V1);
        Self {
            side,
            version: Version::V1,
            session: factory.start("", parameters, HandshakeVersions::V1).expect("sessions start"),
            local_id,
            remote_id: first,
            first_destination: first,
            keys: [Some(initial), None, None],
            later: Vec::new(),
            phase: false,
            write_space: Space::Initial,
            read_space: Space::Initial,
            next_number: [0; 3],
            received: Default::default(),
            outgoing: Vec::new(),
            crypto_sent: [0; 3],
            crypto_read: [0; 3],
            crypto_ahead: Default::default(),
            opened: Vec::new(),
            paths: BTreeMap::new(),
            unopened: 0,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// A client whose transport parameters `parameters` makes from its connection ID.
    pub fn client(seed: u64, parameters: impl FnOnce(ConnectionId) -> Vec<u8>) -> Self {
        let mut rng = Rng::from_seed(seed).split("hostile ids");
        let (local, first) = (random_id(&mut rng), random_id(&mut rng));
        Self::new(Side::Client, seed, local, first, &parameters(local))
    }

    /// A client with an empty connection ID.
    pub fn client_without_id(seed: u64, parameters: impl FnOnce(ConnectionId) -> Vec<u8>) -> Self {
        let first = random_id(&mut Rng::from_seed(seed).split("hostile ids"));
        Self::new(Side::Client, seed, ConnectionId::EMPTY, first, &parameters(ConnectionId::EMPTY))
    }

    /// A client with ordinary transport parameters.
    pub fn ordinary_client(seed: u64) -> Self {
        Self::client(seed, |id| encode(&client_parameters(id)))
    }

    /// A client that accepts path IDs up to `max`.
    pub fn multipath_client(seed: u64, max: u32) -> Self {
        Self::client(seed, |id| encode(&multipath(client_parameters(id), max)))
    }

    /// A server for the client whose first datagram this is. `parameters` gets its connection ID
    /// and the client's first destination.
    pub fn server(
        seed: u64,
        first_datagram: &[u8],
        parameters: impl FnOnce(ConnectionId, ConnectionId) -> Vec<u8>,
    ) -> Self {
        let local = random_id(&mut Rng::from_seed(seed).split("hostile ids"));
        Self::server_named(seed, local, first_datagram, parameters)
    }

    /// The same with an empty connection ID.
    pub fn server_without_id(
        seed: u64,
        first_datagram: &[u8],
        parameters: impl FnOnce(ConnectionId, ConnectionId) -> Vec<u8>,
    ) -> Self {
        Self::server_named(seed, ConnectionId::EMPTY, first_datagram, parameters)
    }

    fn server_named(
        seed: u64,
        local: ConnectionId,
        first_datagram: &[u8],
        parameters: impl FnOnce(ConnectionId, ConnectionId) -> Vec<u8>,
    ) -> Self {
        let Ok(Parsed::Protected(header)) = parse_packet(first_datagram, ID_LEN) else {
            panic!("not an Initial packet")
        };
        let mut server = Self::new(Side::Server, seed, local, header.dcid, &parameters(local, header.dcid));
        server.remote_id = header.scid;
        server
    }

    // ── Sending ──────────────────────────────────────────────────────────────────────────────────

    /// Receives a client's first datagram and continues in this version.
    pub fn continue_in(&mut self, version: Version, first_datagram: &[u8]) {
        self.session.set_version(version);
        self.receive(first_datagram);
        self.version = version;
        self.keys[0] = self.session.initial_keys(&self.first_destination, version);
    }

    /// One packet with this payload.
    pub fn packet(&mut self, space: Space, payload: &[u8]) -> Vec<u8> {
        self.packet_with(space, payload, SealOverrides::default())
    }

    /// One packet, sealed with the deviations in `overrides`.
    pub fn packet_with(&mut self, space: Space, payload: &[u8], overrides: SealOverrides) -> Vec<u8> {
        let number = overrides.number.unwrap_or(self.next_number[space.index()]);
        if overrides.number.is_none() {
            self.next_number[space.index()] += 1;
        }
        self.seal(space, PathId::ZERO, self.remote_id, number, payload, overrides)
    }

    /// One 1-RTT packet on `path`, for which the victim has issued a connection ID.
    pub fn packet_on(&mut self, path: u32, payload: &[u8]) -> Vec<u8> {
        if path == 0 {
            return self.packet(Space::Data, payload);
        }
        let remote_id = *self.paths[&path].remote_ids.last().expect("the victim has issued an ID for this path");
        self.packet_to(path, remote_id, payload)
    }

    /// The same, to the first ID that the victim issued for `path`, which is not path 0.
    pub fn packet_on_oldest(&mut self, path: u32, payload: &[u8]) -> Vec<u8> {
        let remote_id = self.paths[&path].remote_ids[0];
        self.packet_to(path, remote_id, payload)
    }

    /// How many IDs the victim has issued for `path`.
    pub fn ids_of(&self, path: u32) -> usize {
        self.paths.get(&path).map_or(0, |path| path.remote_ids.len())
    }

    /// Forgets a path that is closed.
    pub fn forget_path(&mut self, path: u32) {
        self.paths.remove(&path);
    }

    fn packet_to(&mut self, path: u32, remote_id: ConnectionId, payload: &[u8]) -> Vec<u8> {
        let known = self.paths.entry(path).or_default();
        let number = known.next_number;
        known.next_number += 1;
        self.seal(Space::Data, PathId(path), remote_id, number, payload, SealOverrides::default())
    }

    /// A 1-RTT packet to the victim's ID for `path`, sealed with the nonce of path `sealed_for`.
    pub fn packet_sealed_for(&mut self, path: u32, sealed_for: PathId, number: u64, payload: &[u8]) -> Vec<u8> {
        let remote_id = *self.paths[&path].remote_ids.last().expect("the victim has issued an ID for this path");
        self.seal(Space::Data, sealed_for, remote_id, number, payload, SealOverrides::default())
    }

    /// Whether the victim has issued an ID for `path`.
    pub fn can_use(&self, path: u32) -> bool {
        self.paths.get(&path).is_some_and(|path| !path.remote_ids.is_empty())
    }

    /// Issues an ID for `path`: the frame, to be sent.
    pub fn issue(&mut self, path: u32, sequence: u64) -> Frame<'static> {
        let mut id = [0xee; ID_LEN];
        id[..4].copy_from_slice(&path.to_be_bytes());
        id[4..7].copy_from_slice(&sequence.to_be_bytes()[5..]);
        let id = ConnectionId::new(&id).expect("eight bytes");
        self.paths.entry(path).or_default().local_ids.push(id);
        Frame::NewConnectionId { path: Some(PathId(path)), sequence, retire_prior_to: 0, id, reset_token: [7; 16] }
    }

    fn seal(
        &mut self,
        space: Space,
        path: PathId,
        remote_id: ConnectionId,
        number: u64,
        payload: &[u8],
        overrides: SealOverrides,
    ) -> Vec<u8> {
        let number_len = 4;
        let (fixed, phase) = (!overrides.clear_fixed_bit, self.phase ^ (overrides.phases_ahead % 2 == 1));
        let mut out = Vec::new();
        let number_at = match space {
            Space::Data if !overrides.zero_rtt => {
                emit_short(&remote_id, number, number_len, phase, overrides.spin, fixed, &mut out)
            }
            _ => {
                let ty = match space {
                    Space::Initial => PacketType::Initial,
                    Space::Handshake => PacketType::Handshake,
                    Space::Data => PacketType::ZeroRtt,
                };
                let token = overrides.token;
                let version = overrides.version.unwrap_or(self.version);
                let header = LongHeader { ty, version, dcid: remote_id, scid: self.local_id, token };
                emit_long(&header, number, number_len, payload.len() + TAG_LEN, fixed, &mut out)
            }
        };
        if overrides.reserved_bits {
            out[0] |= if space == Space::Data { 0x18 } else { 0x0c };
        }
        let header_len = out.len();
        out.extend_from_slice(payload);
        while self.later.len() < overrides.phases_ahead {
            self.later.push(self.session.next_phase());
            self.session.advance_phase();
        }
        let keys = self.keys[space.index()].as_ref().expect("the keys of this space are installed");
        let packet_key = match overrides.phases_ahead {
            0 => &keys.seal.packet,
            ahead => &self.later[ahead - 1].seal,
        };
        let (header, sealed) = out.split_at_mut(header_len);
        let tag = packet_key.seal(path, number, header, sealed);
        out.extend_from_slice(&tag);
        let (head, sample) = out.split_at_mut(number_at + 4);
        let (first, rest) = head.split_at_mut(1);
        keys.seal.header.protect(&sample[..SAMPLE_LEN], &mut first[0], &mut rest[number_at - 1..]);
        out
    }

    /// Moves to the next key phase, in both directions.
    pub fn update_keys(&mut self) {
        if self.later.is_empty() {
            self.later.push(self.session.next_phase());
            self.session.advance_phase();
        }
        let next = self.later.remove(0);
        let keys = self.keys[2].as_mut().expect("1-RTT keys exist");
        (keys.seal.packet, keys.open.packet) = (next.seal, next.open);
        self.phase = !self.phase;
    }

    /// The session's output as datagrams of one packet each; Initial ones are padded.
    pub fn flight(&mut self) -> Vec<Vec<u8>> {
        self.pump();
        let outgoing = std::mem::take(&mut self.outgoing);
        let mut datagrams = Vec::new();
        for (space, bytes) in outgoing {
            for chunk in bytes.chunks(1000) {
                datagrams.push(self.crypto_datagram(space, chunk));
            }
        }
        datagrams
    }

    /// The session's output, to be sent in packets of the test's own.
    pub fn handshake_bytes(&mut self) -> Vec<(Space, Vec<u8>)> {
        self.pump();
        std::mem::take(&mut self.outgoing)
    }

    /// Takes the session's output and its new keys.
    fn pump(&mut self) {
        loop {
            let mut bytes = Vec::new();
            let keys = self.session.poll_crypto(&mut bytes);
            if !bytes.is_empty() {
                self.outgoing.push((self.write_space, bytes));
            }
            match keys {
                Some(NewKeys::Handshake(keys)) => {
                    self.keys[1] = Some(keys);
                    (self.write_space, self.read_space) = (Space::Handshake, Space::Handshake);
                }
                Some(NewKeys::OneRtt(keys)) => {
                    self.keys[2] = Some(keys);
                    self.write_space = Space::Data;
                }
                None => return,
            }
        }
    }

    fn crypto_datagram(&mut self, space: Space, chunk: &[u8]) -> Vec<u8> {
        let offset = self.crypto_sent[space.index()];
        self.crypto_sent[space.index()] += chunk.len() as u64;
        let mut body = payload(&[Frame::Crypto { offset, data: chunk }]);
        if space == Space::Initial {
            body.resize(body.len().max(MIN_INITIAL_SIZE - 60), 0);
        }
        let mut datagram = self.packet(space, &body);
        if space == Space::Initial && datagram.len() < MIN_INITIAL_SIZE {
            // Bytes after the packet that no packet begins with: the datagram is large enough all
            // the same.
            datagram.resize(MIN_INITIAL_SIZE, 0);
        }
        datagram
    }

    /// An ACK frame for everything received in `space`.
    pub fn ack(&self, space: Space) -> Vec<u8> {
        ack_of(None, self.received[space.index()].clone())
    }

    /// A PATH_ACK frame for everything received on `path`, which must not be empty.
    pub fn path_ack(&self, path: u32) -> Vec<u8> {
        let numbers = match path {
            0 => &self.received[Space::Data.index()],
            path => &self.paths[&path].received,
        };
        ack_of(Some(PathId(path)), numbers.clone())
    }

    // ── Receiving ────────────────────────────────────────────────────────────────────────────────

    /// Opens the packets of a datagram and passes handshake bytes to the session.
    pub fn receive(&mut self, datagram: &[u8]) {
        self.received_bytes += datagram.len() as u64;
        let datagram_len = datagram.len();
        let mut datagram = datagram.to_vec();
        while let Ok(Parsed::Protected(header)) = parse_packet(&datagram, ID_LEN) {
            let mut packet: Vec<u8> = datagram.drain(..header.end).collect();
            let space = header.ty.space();
            let Some(keys) = &self.keys[space.index()] else {
                self.unopened += 1;
                continue;
            };
            let sample_at = sample_offset(header.number_offset);
            let (head, sample) = packet.split_at_mut(sample_at);
            let (first, rest) = head.split_at_mut(1);
            keys.open.header.unprotect(&sample[..SAMPLE_LEN], &mut first[0], &mut rest[header.number_offset - 1..]);
            let plain = read_unprotected(packet[0], &packet[header.number_offset..sample_at]);
            let path = match space {
                Space::Data => self.path_of(&header.dcid),
                _ => PathId::ZERO,
            };
            let received = match self.paths.get_mut(&path.0) {
                Some(known) if path != PathId::ZERO => &mut known.received,
                _ => &mut self.received[space.index()],
            };
            let largest = received.iter().max().copied();
            let number = decode_number(largest, plain.truncated, plain.number_len);
            let (head, body) = packet.split_at_mut(header.number_offset + plain.number_len);
            let Ok(len) = keys.open.packet.open(path, number, head, body) else {
                self.unopened += 1;
                continue;
            };
            if self.side == Side::Client && header.ty != PacketType::OneRtt {
                self.remote_id = header.scid;
            }
            received.push(number);
            let payload = body[..len].to_vec();
            let dcid = header.dcid;
            let phase = plain.key_phase;
            let spin = space == Space::Data && head[0] & SPIN_BIT != 0;
            let packet = OpenedPacket { space, path, dcid, to: None, datagram_len, number, phase, spin, payload };
            for frame in packet.frames() {
                assert!(frame.permitted_in(header.ty), "{frame:?} in a packet of {:?}", header.ty);
            }
            self.take_crypto(&packet);
            self.take_ids(&packet);
            self.pump();
            self.opened.push(packet);
        }
    }

    fn path_of(&self, id: &ConnectionId) -> PathId {
        let known = self.paths.iter().find(|(_, path)| path.local_ids.contains(id));
        known.map_or(PathId::ZERO, |(path, _)| PathId(*path))
    }

    fn take_ids(&mut self, heard: &OpenedPacket) {
        for frame in heard.frames() {
            if let Frame::NewConnectionId { path: Some(path), id, .. } = frame
                && path != PathId::ZERO
            {
                let ids = &mut self.paths.entry(path.0).or_default().remote_ids;
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
    }

    fn take_crypto(&mut self, heard: &OpenedPacket) {
        for frame in heard.frames() {
            if let Frame::Crypto { offset, data } = frame {
                self.crypto_ahead[heard.space.index()].insert(offset, data.to_vec());
            }
        }
        let space = self.read_space.index();
        while let Some((&offset, _)) = self.crypto_ahead[space].first_key_value()
            && offset <= self.crypto_read[space]
        {
            let (offset, data) = self.crypto_ahead[space].pop_first().expect("it was checked");
            let known = (self.crypto_read[space] - offset) as usize;
            if known < data.len() {
                self.crypto_read[space] += (data.len() - known) as u64;
                self.session.handle_crypto(&data[known..]).expect("our handshake is in order");
            }
        }
    }

    /// The CONNECTION_CLOSE received: its code, and whether it was the application's.
    pub fn close(&self) -> Option<(ErrorCode, bool)> {
        self.opened.iter().flat_map(OpenedPacket::frames).find_map(|frame| match frame {
            Frame::Close(Close { code, origin, .. }) => Some((ErrorCode(code), origin == CloseOrigin::Application)),
            _ => None,
        })
    }

    /// The data of the PATH_CHALLENGE frames received, oldest first.
    pub fn challenges(&self) -> Vec<[u8; 8]> {
        self.opened.iter().flat_map(OpenedPacket::challenges).collect()
    }

    /// Those that were sent to this address.
    pub fn challenges_to(&self, address: SocketAddr) -> Vec<[u8; 8]> {
        self.opened.iter().filter(|packet| packet.to == Some(address)).flat_map(OpenedPacket::challenges).collect()
    }

    /// True if a received packet holds a matching frame.
    pub fn has_received(&self, wanted: impl Fn(&Frame<'_>) -> bool) -> bool {
        self.opened.iter().any(|packet| packet.frames().iter().any(&wanted))
    }

    /// Drops the received packets, except for the numbers that decoding needs, so that tests that
    /// count memory count the victim's.
    pub fn forget(&mut self) {
        self.opened.clear();
        let paths = self.paths.values_mut().map(|path| &mut path.received);
        for numbers in self.received.iter_mut().chain(paths) {
            let largest = numbers.iter().max().copied();
            numbers.clear();
            numbers.extend(largest);
        }
    }

    /// True once it can send 1-RTT packets.
    pub fn is_ready(&self) -> bool {
        self.keys[2].is_some() && !self.session.is_handshaking()
    }
}

fn random_id(rng: &mut Rng) -> ConnectionId {
    let mut bytes = [0; ID_LEN];
    rng.fill(&mut bytes);
    ConnectionId::new(&bytes).expect("eight bytes are a connection ID")
}
