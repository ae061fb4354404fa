//! Shared by the benchmarks: a handshake with 1-RTT keys that the benchmark chooses.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use quic::session::deterministic::DeterministicFactory;
use quic::session::{
    DirectionKeys, ExportError, HandshakeVersions, LevelKeys, NewKeys, PhaseKeys, Session, SessionFactory,
    SessionSummary,
};
use quic::{
    Addresses, Connection, ConnectionId, Endpoint, Plan, SecretSource, Side, TransportConfig, TransportError, Version,
    seal,
};
use units::{Duration, Instant, Rng};

/// Makes the 1-RTT keys of one side.
pub(crate) type MakeKeys = fn(Side) -> LevelKeys;

/// The deterministic handshake with other keys for 1-RTT packets.
pub(crate) struct ChosenKeys {
    inner: DeterministicFactory,
    side: Side,
    make: MakeKeys,
}

struct ChosenKeysSession {
    inner: Box<dyn Session>,
    side: Side,
    make: MakeKeys,
}

impl ChosenKeys {
    pub(crate) fn new(side: Side, make: MakeKeys) -> Self {
        Self { inner: DeterministicFactory::new(side, Rng::from_seed(side as u64)), side, make }
    }
}

impl SessionFactory for ChosenKeys {
    fn start(
        &self,
        server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        let inner = self.inner.start(server_name, parameters, versions)?;
        Ok(Box::new(ChosenKeysSession { inner, side: self.side, make: self.make }))
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        self.inner.initial_keys(id, side, version)
    }
}

impl Session for ChosenKeysSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.inner.handle_crypto(bytes)
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        match self.inner.poll_crypto(out)? {
            NewKeys::OneRtt(_) => Some(NewKeys::OneRtt((self.make)(self.side))),
            other => Some(other),
        }
    }

    fn next_phase(&self) -> PhaseKeys {
        let LevelKeys { seal, open } = (self.make)(self.side);
        let packet = |keys: DirectionKeys| keys.packet;
        PhaseKeys { seal: packet(seal), open: packet(open) }
    }

    fn advance_phase(&mut self) {}

    fn peer_parameters(&self) -> Option<&[u8]> {
        self.inner.peer_parameters()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn peer_identity(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        self.inner.export(label, context, out)
    }

    fn version(&self) -> Version {
        self.inner.version()
    }

    fn set_version(&mut self, version: Version) {
        self.inner.set_version(version);
    }

    fn summary(&self) -> SessionSummary {
        self.inner.summary()
    }
}

/// Moves every datagram that `from` sends to `to`; returns the number of packets.
pub(crate) fn exchange(now: Instant, from: &mut Connection, to: &mut Connection) -> usize {
    let (mut plan, mut sealed, mut packets) = (Plan::new(), Vec::new(), 0);
    while from.poll_plan(now, 44, &mut plan) {
        packets += plan.packet_count();
        seal(&plan, &mut sealed);
        from.handle_emitted(now, &plan.receipt());
        let source = to.addresses().remote;
        to.handle_datagrams(now, Addresses::of(source), BytesMut::from(&sealed[..]), plan.segment_size);
    }
    packets
}

/// A client and a server whose handshake is confirmed, and the time it took.
pub(crate) fn connected(config: &TransportConfig, make: MakeKeys) -> (Connection, Connection, Instant) {
    let remote: SocketAddr = "192.0.2.1:1".parse().expect("an address");
    let mut client_end = Endpoint::new(config.clone(), None, SecretSource::new(&[1; 32])).expect("valid");
    let factory: Arc<dyn SessionFactory> = Arc::new(ChosenKeys::new(Side::Server, make));
    let mut server_end = Endpoint::new(config.clone(), Some(factory), SecretSource::new(&[2; 32])).expect("valid");
    let mut now = Instant::ZERO;
    let factory = ChosenKeys::new(Side::Client, make);
    let mut client = client_end.connect(now, &factory, "bench", Addresses::of(remote)).expect("starts");
    let (mut plan, mut sealed) = (Plan::new(), Vec::new());
    assert!(client.poll_plan(now, 1, &mut plan));
    seal(&plan, &mut sealed);
    let addresses = Addresses::of(remote);
    let mut server = server_end.accept(now, addresses, BytesMut::from(&sealed[..]), None, false).expect("an Initial");
    for _ in 0..10 {
        now += Duration::from_millis(1);
        exchange(now, &mut server, &mut client);
        exchange(now, &mut client, &mut server);
    }
    (client, server, now)
}
