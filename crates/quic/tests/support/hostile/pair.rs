//! The hostile peer and its victim.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::*;
use crate::support::spins::Spins;

/// The hostile peer and its victim, without a link between them: each receives what the other sends
/// at once.
pub struct HostilePair {
    pub now: Instant,
    pub victim: Node,
    pub hostile: Hostile,
    /// Bytes that the victim has sent to each address.
    pub victim_bytes: BTreeMap<SocketAddr, u64>,
}

impl HostilePair {
    /// With a server as victim.
    pub fn with_server(config: TransportConfig, hostile: Hostile) -> Self {
        let rng = Rng::from_seed(1).split("victim");
        let factory = DeterministicFactory::new(Side::Server, rng.split("session"));
        let victim = Node::new(Side::Server, config, &rng, Some(std::sync::Arc::new(factory)));
        let mut pair = Self { now: Instant::ZERO, victim, hostile, victim_bytes: BTreeMap::new() };
        pair.run_session();
        pair
    }

    /// With a client as victim, whose first datagram creates the hostile server.
    pub fn with_client(config: TransportConfig, hostile: impl FnOnce(&[u8]) -> Hostile) -> Self {
        let rng = Rng::from_seed(1).split("victim");
        let factory = DeterministicFactory::new(Side::Client, rng.split("session"));
        let mut victim = Node::new(Side::Client, config, &rng, None);
        let connection =
            victim.endpoint.connect(Instant::ZERO, &factory, "", quic::Addresses::of(HOSTILE)).expect("sessions start");
        victim.add(connection);
        victim.flush(Instant::ZERO);
        let first = std::mem::take(&mut victim.outbox);
        let hostile = hostile(&first[0].1);
        let mut pair = Self { now: Instant::ZERO, victim, hostile, victim_bytes: BTreeMap::new() };
        first.iter().for_each(|(_, datagram)| pair.hostile.receive(datagram));
        pair.run_session();
        pair
    }

    /// With a server as victim, after the handshake.
    pub fn against_server() -> Self {
        Self::established(Self::with_server(TransportConfig::default(), Hostile::ordinary_client(7)))
    }

    /// With a server of `max_paths` paths as victim; the hostile peer accepts path IDs up to `max`.
    pub fn against_multipath_server(max_paths: u32, max: u32) -> Self {
        let config = TransportConfig::default().with_max_paths(max_paths);
        Self::established(Self::with_server(config, Hostile::multipath_client(7, max)))
    }

    /// With a client as victim, after the handshake.
    pub fn against_client() -> Self {
        Self::against_client_with(TransportConfig::default(), |_| {})
    }

    /// With a client of `max_paths` paths as victim; the hostile peer accepts path IDs up to `max`.
    pub fn against_multipath_client(max_paths: u32, max: u32) -> Self {
        Self::against_multipath_client_with(max_paths, max, |_| {})
    }

    /// As [`against_multipath_client`](Self::against_multipath_client), with other parameters of
    /// the hostile peer.
    pub fn against_multipath_client_with(
        max_paths: u32,
        max: u32,
        change: impl FnOnce(&mut TransportParameters),
    ) -> Self {
        let config = TransportConfig::default().with_max_paths(max_paths);
        Self::against_client_with(config, |parameters| {
            parameters.initial_max_path_id = Some(PathId(max));
            change(parameters);
        })
    }

    fn against_client_with(config: TransportConfig, change: impl FnOnce(&mut TransportParameters)) -> Self {
        let make = |first: &[u8]| {
            Hostile::server(7, first, |id, original| {
                let mut parameters = client_parameters(id);
                parameters.original_destination_connection_id = Some(original);
                change(&mut parameters);
                encode(&parameters)
            })
        };
        let mut pair = Self::established(Self::with_client(config, make));
        pair.send(&payload(&[Frame::HandshakeDone]));
        pair
    }

    /// Checks that the handshake is complete.
    #[must_use]
    pub fn established(pair: Self) -> Self {
        assert!(pair.hostile.is_ready() && pair.victim_is_alive(), "{:?}", pair.victim.events);
        pair
    }

    /// Sends the hostile session's output until there is none.
    pub fn run_session(&mut self) {
        loop {
            let flight = self.hostile.flight();
            if flight.is_empty() {
                return;
            }
            flight.into_iter().for_each(|datagram| self.deliver(&datagram));
        }
    }

    /// Delivers a datagram to the victim and processes its response. A datagram with an Initial
    /// packet is padded to the minimum size with bytes that begin no packet.
    pub fn deliver(&mut self, datagram: &[u8]) {
        let mut datagram = datagram.to_vec();
        let is_initial = datagram.first().is_some_and(|first| first & 0xb0 == 0x80);
        if is_initial && datagram.len() < MIN_INITIAL_SIZE {
            datagram.resize(MIN_INITIAL_SIZE, 0);
        }
        self.deliver_unpadded(&datagram, HOSTILE);
    }

    /// Delivers a datagram from `source` to the victim and processes its response.
    pub fn deliver_unpadded(&mut self, datagram: &[u8], source: SocketAddr) {
        self.hostile.sent_bytes += datagram.len() as u64;
        self.victim.receive(self.now, datagram, source);
        self.settle();
    }

    /// Lets the victim send what is due, for instance after a call of its application.
    pub fn settle(&mut self) {
        self.victim.flush(self.now);
        for (addresses, datagram) in std::mem::take(&mut self.victim.outbox) {
            *self.victim_bytes.entry(addresses.remote).or_default() += datagram.len() as u64;
            let before = self.hostile.opened.len();
            self.hostile.receive(&datagram);
            self.hostile.opened[before..].iter_mut().for_each(|packet| packet.to = Some(addresses.remote));
        }
    }

    /// Sends one 1-RTT packet with this payload.
    pub fn send(&mut self, payload: &[u8]) {
        // Header protection samples after a packet number of four bytes.
        let packet = self.hostile.packet(Space::Data, payload);
        self.deliver(&packet);
    }

    /// Sends one 1-RTT packet with this payload on `path`, from an address of its own.
    pub fn send_on(&mut self, path: u32, payload: &[u8]) {
        let packet = self.hostile.packet_on(path, payload);
        self.deliver_on(path as u16, &packet);
    }

    /// Delivers a datagram to the victim at `socket`, from the hostile peer's address there.
    pub fn deliver_on(&mut self, socket: u16, datagram: &[u8]) {
        self.hostile.sent_bytes += datagram.len() as u64;
        let addresses = Addresses { socket, ..Addresses::of(hostile_on(socket)) };
        self.victim.receive_on(self.now, datagram, None, addresses);
        self.settle();
    }

    /// As [`HostilePair::send`], and acknowledges the victim's packets in the same packet.
    pub fn send_and_ack(&mut self, frames: &[u8]) {
        let mut body = self.hostile.ack(Space::Data);
        body.extend_from_slice(frames);
        self.send(&body);
    }

    /// Advances time, running all timers that fire meanwhile.
    ///
    /// # Panics
    /// If a timer fires again and again without progress of time.
    #[track_caller]
    pub fn wait(&mut self, span: Duration) {
        let (until, mut spins) = (self.now + span, Spins::default());
        while let Some(at) = self.victim.timeout().filter(|at| *at <= until) {
            spins.check(self.now, at);
            self.now = self.now.max(at);
            self.victim.handle_timeouts(self.now);
            self.settle();
        }
        self.now = until;
    }

    /// True while the victim's connection has not ended.
    pub fn victim_is_alive(&self) -> bool {
        self.victim.connections.last().is_some_and(|connection| {
            connection.as_ref().is_some_and(|connection| connection.is_established() || connection.is_handshaking())
        })
    }

    /// Checks that the victim closed with `code` and sent it.
    #[track_caller]
    pub fn assert_closed(&self, code: ErrorCode, what: &str) {
        assert!(!self.victim_is_alive(), "{what}: the victim has not closed");
        assert_eq!(self.hostile.close(), Some((code, false)), "{what}");
    }

    /// Checks that the victim's connection continues.
    #[track_caller]
    pub fn assert_alive(&self, what: &str) {
        assert!(self.victim_is_alive(), "{what}: {:?}", self.victim.events);
        assert_eq!(self.hostile.close(), None, "{what}");
    }
}
