//! A session for tests and simulation: the shape of a TLS 1.3 handshake without its secrecy.
//!
//! Same seeds, same bytes, which no real handshake can offer: TLS libraries draw their own
//! randomness. Packets are really scrambled and really authenticated (by a hash that catches every
//! accident and stops no attacker), so a changed bit, a wrong key phase or a wrong packet number
//! fails to open just as with a real cipher.
//!
//! **Never offer this to a network.** No public function of the `litz` crate can reach it, and of
//! its commands only `litz scenario`, which runs in memory and has no sockets.

mod tickets;

use std::sync::{Arc, Mutex};

use units::Rng;
use wire::quic::{ConnectionId, ErrorCode, PathId, Side, Version};

use super::{
    DirectionKeys, ExportError, HandshakeVersions, HeaderKey, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys,
    Session, SessionFactory, SessionSummary, TAG_LEN,
};
use crate::error::TransportError;
pub use tickets::Tickets;

const HELLO: u8 = 1;
/// A client's hello that continues a session.
const HELLO_AGAIN: u8 = 2;
const TICKET: u8 = 4;
const PARAMETERS: u8 = 8;
/// The same, of a server that takes 0-RTT.
const PARAMETERS_EARLY: u8 = 9;
const FINISHED: u8 = 20;

/// The longest handshake message that is taken, in bytes.
const MESSAGE_LEN_MAX: usize = 16 * 1024;

/// Packets per key before an update is due: the limit of AES-128-GCM, so that tests use the real
/// number.
const CONFIDENTIALITY_LIMIT: u64 = 1 << 23;

/// Makes deterministic sessions for one role. Each session draws its seed from the factory's
/// generator.
pub struct DeterministicFactory {
    side: Side,
    rng: Mutex<Rng>,
    tickets: Option<Tickets>,
}

impl DeterministicFactory {
    /// A factory for sessions of `side`.
    pub fn new(side: Side, rng: Rng) -> Self {
        Self { side, rng: Mutex::new(rng), tickets: None }
    }

    /// Sessions are continued with these tickets, with 0-RTT. Both sides share them.
    #[must_use]
    pub fn with_tickets(mut self, tickets: &Tickets) -> Self {
        self.tickets = Some(tickets.clone());
        self
    }
}

impl SessionFactory for DeterministicFactory {
    fn start(
        &self,
        _server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        let seed = self.rng.lock().map_err(|_| "a panic left the generator unusable".to_owned())?.next_u64();
        Ok(Box::new(DeterministicSession {
            side: self.side,
            seed,
            parameters: parameters.to_vec(),
            versions,
            version: versions.original,
            peer_parameters: None,
            inbox: Vec::new(),
            step: HandshakeStep::Start,
            master: None,
            phase: 0,
            resumption: self.tickets.clone().map(|tickets| Box::new(Resumption { tickets, ..Resumption::default() })),
        }))
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        initial_keys(id, side, version)
    }
}

fn initial_keys(id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
    level_keys(hash(0x1217, id.as_slice()) ^ salt(version), side)
}

/// Keys of one version do not open packets of the other.
fn salt(version: Version) -> u64 {
    match version {
        Version::V1 => 0,
        Version::V2 => 0x9369,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandshakeStep {
    Start,
    AwaitHello,
    /// Hello exchanged, handshake keys not handed out yet.
    HandshakeKeysDue,
    /// Server only: our parameters and Finished are due.
    FlightDue,
    OneRttKeysDue,
    AwaitFlight,
    AwaitFinished,
    /// Client only: our Finished is due.
    FinishedDue,
    Complete,
}

struct DeterministicSession {
    side: Side,
    seed: u64,
    parameters: Vec<u8>,
    versions: HandshakeVersions,
    version: Version,
    peer_parameters: Option<Vec<u8>>,
    inbox: Vec<u8>,
    step: HandshakeStep,
    master: Option<u64>,
    phase: u64,
    /// If sessions are continued.
    resumption: Option<Box<Resumption>>,
}

#[derive(Default)]
struct Resumption {
    tickets: Tickets,
    /// The server has sent its ticket.
    is_ticket_sent: bool,
    /// The secret of the session that is continued, with 0-RTT.
    early: Option<u64>,
    /// A client's: the server's parameters of that session.
    remembered: Vec<u8>,
    is_early_accepted: bool,
}

fn mix(value: u64) -> u64 {
    Rng::from_seed(value).next_u64()
}

fn hash_word(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
    product ^ (product >> 29)
}

fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let start = seed ^ 0x9ae1_6a3b_2f90_404f;
    // Four independent words at a time, so that a processor can multiply them in parallel.
    let mut lanes = [start, start ^ 1, start ^ 2, start ^ 3];
    let mut rows = bytes.chunks_exact(32);
    for row in &mut rows {
        for (lane, bytes) in lanes.iter_mut().zip(row.chunks_exact(8)) {
            *lane = hash_word(*lane, word(bytes));
        }
    }
    let [first, others @ ..] = lanes;
    let state = others.into_iter().fold(first, hash_word);
    let mut words = rows.remainder().chunks_exact(8);
    let mut state = words.by_ref().map(word).fold(state, hash_word);
    for byte in words.remainder() {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        state ^= state >> 31;
    }
    mix(state ^ bytes.len() as u64)
}

fn level_keys(secret: u64, side: Side) -> LevelKeys {
    let keys = |label: u64| DirectionKeys {
        header: Arc::new(MaskKey(mix(secret ^ label ^ 0x6870))),
        packet: Arc::new(ScrambleKey(mix(secret ^ label))),
    };
    let (client, server) = (keys(0xc11e), keys(0x5e12));
    match side {
        Side::Client => LevelKeys { seal: client, open: server },
        Side::Server => LevelKeys { seal: server, open: client },
    }
}

fn put_message(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(body);
}

impl DeterministicSession {
    fn secret(&self) -> u64 {
        self.master.expect("hellos are exchanged before any key is derived")
    }

    /// The keys with this number: 1 for Handshake packets, further ones for each key phase.
    fn keys(&self, number: u64) -> LevelKeys {
        level_keys(mix(self.secret() ^ number ^ salt(self.version) << 32), self.side)
    }

    /// Takes one whole message out of the inbox.
    fn next_message(&mut self) -> Result<Option<(u8, Vec<u8>)>, TransportError> {
        let Some(header) = self.inbox.first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
        if len > MESSAGE_LEN_MAX {
            return Err(alert("handshake message too long"));
        }
        if self.inbox.len() < 4 + len {
            return Ok(None);
        }
        let kind = header[0];
        let body = self.inbox[4..4 + len].to_vec();
        self.inbox.drain(..4 + len);
        Ok(Some((kind, body)))
    }

    fn handle_message(&mut self, kind: u8, body: &[u8]) -> Result<(), TransportError> {
        let start = if self.side == Side::Client { HandshakeStep::AwaitHello } else { HandshakeStep::Start };
        match (kind, self.side) {
            (HELLO_AGAIN, Side::Server) if self.step == start => {
                let (seed, rest) = body.split_first_chunk::<8>().ok_or_else(|| alert("hello without its seed"))?;
                let (id, parameters) =
                    rest.split_first_chunk::<8>().ok_or_else(|| alert("hello without its ticket"))?;
                if let Some(resumption) = &mut self.resumption {
                    resumption.early = resumption.tickets.redeem(u64::from_le_bytes(*id), &self.parameters);
                }
                return self.handle_message(HELLO, &[&seed[..], parameters].concat());
            }
            (HELLO, side) if self.step == start => {
                let (seed, parameters) =
                    body.split_first_chunk::<8>().ok_or_else(|| alert("hello without its seed"))?;
                let peer = u64::from_le_bytes(*seed);
                let (client, server) = if side == Side::Client { (self.seed, peer) } else { (peer, self.seed) };
                self.master = Some(mix(client ^ server.rotate_left(32)));
                if side == Side::Server {
                    // A test may have set another version before. 0-RTT packets have the original one.
                    let takes_early = self.resumption.as_ref().is_some_and(|resumption| resumption.early.is_some());
                    if self.version == self.versions.original && !takes_early {
                        self.version = self.versions.choose(parameters);
                    }
                    self.peer_parameters = Some(parameters.to_vec());
                    self.step = HandshakeStep::AwaitHello;
                } else {
                    self.step = HandshakeStep::HandshakeKeysDue;
                }
            }
            (TICKET, Side::Client) if self.step == HandshakeStep::Complete => {
                let id = body.try_into().map_err(|_| alert("a ticket of another length"))?;
                let parameters = self.peer_parameters.as_deref().unwrap_or_default();
                if let Some(resumption) = &self.resumption {
                    resumption.tickets.keep(u64::from_le_bytes(id), mix(self.secret() ^ 5), parameters);
                }
            }
            (PARAMETERS | PARAMETERS_EARLY, Side::Client) if self.step == HandshakeStep::AwaitFlight => {
                let is_accepted = kind == PARAMETERS_EARLY;
                match &mut self.resumption {
                    Some(resumption) if resumption.early.is_some() => resumption.is_early_accepted = is_accepted,
                    _ if is_accepted => return Err(alert("0-RTT was accepted that was not offered")),
                    _ => {}
                }
                self.peer_parameters = Some(body.to_vec());
                self.step = HandshakeStep::AwaitFinished;
            }
            (FINISHED, side) if self.step == HandshakeStep::AwaitFinished => {
                if body != self.secret().to_le_bytes() {
                    return Err(alert("finished does not match"));
                }
                self.step = if side == Side::Client { HandshakeStep::FinishedDue } else { HandshakeStep::Complete };
            }
            _ => return Err(alert("handshake message out of order")),
        }
        Ok(())
    }
}

fn alert(reason: &'static str) -> TransportError {
    // handshake_failure(40), as TLS would say it.
    TransportError::new(ErrorCode::crypto(40), reason)
}

impl Session for DeterministicSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.inbox.extend_from_slice(bytes);
        while let Some((kind, body)) = self.next_message()? {
            self.handle_message(kind, &body)?;
        }
        Ok(())
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        match (self.side, self.step) {
            (Side::Client, HandshakeStep::Start) => {
                let mut body = self.seed.to_le_bytes().to_vec();
                let mut kind = HELLO;
                if let Some(resumption) = &mut self.resumption
                    && let Some((id, secret, parameters)) = resumption.tickets.take()
                {
                    kind = HELLO_AGAIN;
                    body.extend_from_slice(&id.to_le_bytes());
                    (resumption.early, resumption.remembered) = (Some(secret), parameters);
                }
                body.extend_from_slice(&self.versions.with_information(self.version, &self.parameters));
                put_message(out, kind, &body);
                self.step = HandshakeStep::AwaitHello;
                None
            }
            (Side::Server, HandshakeStep::AwaitHello) => {
                put_message(out, HELLO, &self.seed.to_le_bytes());
                self.step = HandshakeStep::FlightDue;
                Some(NewKeys::Handshake(self.keys(1)))
            }
            (Side::Client, HandshakeStep::HandshakeKeysDue) => {
                self.step = HandshakeStep::AwaitFlight;
                Some(NewKeys::Handshake(self.keys(1)))
            }
            (Side::Server, HandshakeStep::FlightDue) => {
                let takes_early = self.resumption.as_ref().is_some_and(|resumption| resumption.early.is_some());
                let kind = if takes_early { PARAMETERS_EARLY } else { PARAMETERS };
                put_message(out, kind, &self.versions.with_information(self.version, &self.parameters));
                put_message(out, FINISHED, &self.secret().to_le_bytes());
                self.step = HandshakeStep::AwaitFinished;
                Some(NewKeys::OneRtt(self.keys(2)))
            }
            (Side::Client, HandshakeStep::FinishedDue) => {
                put_message(out, FINISHED, &self.secret().to_le_bytes());
                self.step = HandshakeStep::OneRttKeysDue;
                self.poll_crypto(out)
            }
            (Side::Server, HandshakeStep::Complete) => {
                let (id, secret) = (mix(self.secret() ^ 6), mix(self.secret() ^ 5));
                // Tickets of one version are not for another (RFC 9369, section 5).
                if let Some(resumption) = self.resumption.as_mut().filter(|_| self.version == Version::V1)
                    && !std::mem::replace(&mut resumption.is_ticket_sent, true)
                {
                    resumption.tickets.remember(id, secret, &self.parameters);
                    put_message(out, TICKET, &id.to_le_bytes());
                }
                None
            }
            (Side::Client, HandshakeStep::OneRttKeysDue) => {
                self.step = HandshakeStep::Complete;
                Some(NewKeys::OneRtt(self.keys(2)))
            }
            _ => None,
        }
    }

    fn next_phase(&self) -> PhaseKeys {
        let keys = self.keys(2 + ((self.phase + 1) << 8));
        PhaseKeys { seal: keys.seal.packet, open: keys.open.packet }
    }

    fn advance_phase(&mut self) {
        self.phase += 1;
    }

    fn peer_parameters(&self) -> Option<&[u8]> {
        self.peer_parameters.as_deref()
    }

    fn is_handshaking(&self) -> bool {
        self.step != HandshakeStep::Complete
    }

    fn initial_keys(&self, id: &ConnectionId, version: Version) -> Option<LevelKeys> {
        Some(initial_keys(id, self.side, version))
    }

    fn version(&self) -> Version {
        self.version
    }

    fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    fn peer_identity(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        if self.is_handshaking() {
            return Err(ExportError);
        }
        Rng::from_seed(hash(hash(self.secret(), label), context)).fill(out);
        Ok(())
    }

    fn early_keys(&self) -> Option<DirectionKeys> {
        let keys = level_keys(mix(self.resumption.as_ref()?.early? ^ 3), self.side);
        Some(if self.side == Side::Client { keys.seal } else { keys.open })
    }

    fn remembered_parameters(&self) -> Option<&[u8]> {
        let resumption = self.resumption.as_ref().filter(|_| self.side == Side::Client)?;
        resumption.early.map(|_| &resumption.remembered[..])
    }

    fn is_early_accepted(&self) -> bool {
        self.resumption.as_ref().is_some_and(|resumption| resumption.is_early_accepted)
    }

    fn summary(&self) -> SessionSummary {
        let cipher_suite = Some("none (deterministic)".into());
        SessionSummary { cipher_suite, version: self.version, ..SessionSummary::default() }
    }
}

struct ScrambleKey(u64);

impl ScrambleKey {
    fn nonce(&self, path: PathId, number: u64) -> u64 {
        self.0 ^ mix(number ^ (u64::from(path.0) << 40))
    }

    fn scramble(&self, nonce: u64, payload: &mut [u8]) {
        // Mixed counters: a different stream for each packet, and independent words.
        let mut count = nonce;
        let mut next = || {
            count = count.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let product = (count ^ (count >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
            product ^ (product >> 29)
        };
        let mut chunks = payload.chunks_exact_mut(8);
        for chunk in &mut chunks {
            let word: &mut [u8; 8] = chunk.try_into().expect("chunks of eight");
            *word = (u64::from_le_bytes(*word) ^ next()).to_le_bytes();
        }
        for (byte, key) in chunks.into_remainder().iter_mut().zip(next().to_le_bytes()) {
            *byte ^= key;
        }
    }

    fn tag(&self, nonce: u64, header: &[u8], sealed: &[u8]) -> [u8; TAG_LEN] {
        let high = hash(hash(nonce, header), sealed);
        let mut tag = [0; TAG_LEN];
        tag[..8].copy_from_slice(&high.to_le_bytes());
        tag[8..].copy_from_slice(&mix(high).to_le_bytes());
        tag
    }
}

impl PacketKey for ScrambleKey {
    fn seal(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = self.nonce(path, number);
        self.scramble(nonce, payload);
        self.tag(nonce, header, payload)
    }

    fn open(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed> {
        let nonce = self.nonce(path, number);
        let plain_len = payload.len().checked_sub(TAG_LEN).ok_or(OpenFailed)?;
        let (sealed, tag) = payload.split_at_mut(plain_len);
        if self.tag(nonce, header, sealed) != *tag {
            return Err(OpenFailed);
        }
        self.scramble(nonce, sealed);
        Ok(plain_len)
    }

    fn confidentiality_limit(&self) -> u64 {
        CONFIDENTIALITY_LIMIT
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

struct MaskKey(u64);

impl MaskKey {
    fn apply(&self, sample: &[u8], first: &mut u8, number: &mut [u8], number_len: usize) {
        let mask = hash(self.0, sample).to_le_bytes();
        // Long headers have four protected bits, short headers five (RFC 9001, section 5.4.1).
        *first ^= mask[0] & if *first & 0x80 == 0 { 0x1f } else { 0x0f };
        for (byte, mask) in number.iter_mut().take(number_len).zip(&mask[1..]) {
            *byte ^= mask;
        }
    }
}

impl HeaderKey for MaskKey {
    fn protect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) {
        let number_len = usize::from(*first & 3) + 1;
        self.apply(sample, first, number, number_len);
    }

    fn unprotect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) {
        let mask = hash(self.0, sample).to_le_bytes();
        let plain = *first ^ (mask[0] & if *first & 0x80 == 0 { 0x1f } else { 0x0f });
        self.apply(sample, first, number, usize::from(plain & 3) + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Box<dyn Session>, Box<dyn Session>) {
        let make = |side| DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1));
        (
            make(Side::Client).start("peer", b"client parameters", HandshakeVersions::V1).unwrap(),
            make(Side::Server).start("", b"server parameters", HandshakeVersions::V1).unwrap(),
        )
    }

    fn flights(session: &mut dyn Session) -> (Vec<u8>, Vec<NewKeys>) {
        let (mut bytes, mut keys) = (Vec::new(), Vec::new());
        while let Some(new) = session.poll_crypto(&mut bytes) {
            keys.push(new);
        }
        (bytes, keys)
    }

    #[test]
    fn both_sides_complete_and_hold_matching_keys() {
        let (mut client, mut server) = pair();
        let (hello, none) = flights(client.as_mut());
        assert!(none.is_empty());
        server.handle_crypto(&hello).unwrap();
        let (flight, server_keys) = flights(server.as_mut());
        assert_eq!(server_keys.len(), 2);
        client.handle_crypto(&flight[..20]).unwrap();
        let (_, mut client_keys) = flights(client.as_mut());
        client.handle_crypto(&flight[20..]).unwrap();
        let (finished, more) = flights(client.as_mut());
        client_keys.extend(more);
        server.handle_crypto(&finished).unwrap();
        assert!(!client.is_handshaking() && !server.is_handshaking());
        assert_eq!(client.peer_parameters(), Some(&b"server parameters"[..]));
        assert_eq!(server.peer_parameters(), Some(&b"client parameters"[..]));

        let (NewKeys::OneRtt(ours), NewKeys::OneRtt(theirs)) = (&client_keys[1], &server_keys[1]) else {
            panic!("the second keys are 1-RTT keys")
        };
        let mut payload = b"a secret to nobody".to_vec();
        let tag = ours.seal.packet.seal(PathId::ZERO, 7, b"header", &mut payload);
        payload.extend_from_slice(&tag);
        for (number, header) in [(8, &b"header"[..]), (7, b"Header")] {
            assert_eq!(theirs.open.packet.open(PathId::ZERO, number, header, &mut payload.clone()), Err(OpenFailed));
        }
        let len = theirs.open.packet.open(PathId::ZERO, 7, b"header", &mut payload).unwrap();
        assert_eq!(&payload[..len], b"a secret to nobody");
    }

    #[test]
    fn malformed_handshake_data_is_refused_with_a_crypto_error() {
        let (_, mut server) = pair();
        let error = server.handle_crypto(&[FINISHED, 0, 0, 0]).unwrap_err();
        assert_eq!(error.code, ErrorCode::crypto(40));
    }
}
