//! Key updates while packets are lost and out of order (RFC 9001, section 6).

use std::sync::Arc;

use quic::session::deterministic::DeterministicFactory;
use quic::session::{
    DirectionKeys, ExportError, HandshakeVersions, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys, Session,
    SessionFactory, SessionSummary, TAG_LEN,
};
use quic::{ConnectionId, PathId, Side, TransportError, Version};
use units::{Duration, Ratio, Rng};

use crate::support::{Pair, Sessions, Setup, apps};

/// Both sides send at once; returns once both have received everything.
fn transfer_both_ways(pair: &mut Pair, total: u64) {
    let seed = pair.seed;
    let ids = [pair.client.connection(0), pair.server.connection(0)]
        .map(|connection| connection.open(quic::Dir::Uni).expect("streams are allowed"));
    let mut writers = ids.map(|id| apps::Writer::new(id, total));
    let mut readers = ids.map(apps::Reader::new);
    let mut known = [false; 2];
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        let now = pair.now;
        writers[0].pump(pair.client.connection(0));
        writers[1].pump(pair.server.connection(0));
        for (index, node) in [&mut pair.server, &mut pair.client].into_iter().enumerate() {
            known[index] |= node.connection(0).accept(quic::Dir::Uni).is_some();
            if known[index] {
                readers[index].pump(now, node.connection(0));
            }
        }
        readers.iter().all(|reader| reader.ended)
    });
    assert!(done, "seed {seed}: {} and {} of {total} bytes", readers[0].read, readers[1].read);
}

#[test]
fn keys_are_updated_many_times_under_loss_by_both_at_once() {
    for seed in 0..6 {
        let mut pair = Setup::new(seed)
            .with_loss(seed * 5)
            .with_links(|link| {
                link.reorder = Ratio::new(20, 100);
                link.reorder_by = Duration::from_millis(9);
                link.duplicate = Ratio::new(5, 100);
            })
            .with_config(|config| config.key_update_interval = 100)
            .build();
        pair.connect();
        transfer_both_ways(&mut pair, 6_000_000);
        for node in [&mut pair.client, &mut pair.server] {
            let stats = node.connection(0).stats();
            assert!(stats.send.key_updates >= 4, "seed {seed}: {} updates", stats.send.key_updates);
            assert_eq!(stats.receive.packets_unauthentic, 0, "seed {seed}: a packet was opened with the wrong key");
        }
        assert!(pair.link_stats()[0].reordered > 0);
    }
}

#[test]
fn one_side_updates_and_the_other_follows() {
    for by_server in [false, true] {
        // At a low rate, since an update has to wait for three probe timeouts after the one before.
        let mut setup = Setup::new(3).with_links(|link| link.rate = Some(units::Rate::from_mbps(10)));
        let updater = if by_server { &mut setup.server } else { &mut setup.client };
        updater.key_update_interval = 50;
        let mut pair = setup.build();
        pair.connect();
        transfer_both_ways(&mut pair, 2_000_000);
        let updates = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).stats().send.key_updates);
        assert!(updates[0] >= 3 && updates[0].abs_diff(updates[1]) <= 1, "{updates:?}");
    }
}

#[test]
fn packets_of_the_previous_phase_still_open_after_an_update() {
    // Half of all packets are late by less than the three probe timeouts for which old keys are
    // kept.
    for seed in 0..5 {
        let mut pair = Setup::new(seed)
            .with_links(|link| {
                link.reorder = Ratio::new(50, 100);
                link.reorder_by = Duration::from_millis(40);
            })
            .with_config(|config| config.key_update_interval = 60)
            .build();
        pair.connect();
        transfer_both_ways(&mut pair, 1_000_000);
        let stats = pair.server.connection(0).stats();
        assert!(stats.send.key_updates >= 2);
        assert_eq!(stats.receive.packets_unauthentic, 0, "seed {seed}");
    }
}

#[test]
fn corrupted_packets_never_advance_the_keys() {
    for seed in 0..4 {
        let mut pair = Setup::new(seed)
            .with_links(|link| link.corrupt = Ratio::new(30, 100))
            .with_config(|config| config.key_update_interval = 100)
            .build();
        pair.connect();
        transfer_both_ways(&mut pair, 500_000);
        let updates = [&mut pair.client, &mut pair.server].map(|node| node.connection(0).stats().send.key_updates);
        assert!(updates[0].abs_diff(updates[1]) <= 1, "{updates:?}");
        assert!(pair.server.connection(0).stats().receive.packets_unauthentic > 50);
    }
}

/// Deterministic sessions whose keys have low limits.
struct LowLimit {
    inner: DeterministicFactory,
    /// The confidentiality limit: packets a key may seal.
    seals: u64,
    /// The integrity limit: packets that may fail to open.
    failures: u64,
}

struct LowLimitSession {
    inner: Box<dyn Session>,
    seals: u64,
    failures: u64,
}

struct LowLimitKey {
    inner: Arc<dyn PacketKey>,
    seals: u64,
    failures: u64,
}

impl PacketKey for LowLimitKey {
    fn seal(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
        self.inner.seal(path, number, header, payload)
    }

    fn open(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed> {
        self.inner.open(path, number, header, payload)
    }

    fn confidentiality_limit(&self) -> u64 {
        self.seals
    }

    fn integrity_limit(&self) -> u64 {
        self.failures
    }
}

impl LowLimitSession {
    fn key(&self, inner: Arc<dyn PacketKey>) -> Arc<dyn PacketKey> {
        Arc::new(LowLimitKey { inner, seals: self.seals, failures: self.failures })
    }

    fn level(&self, keys: LevelKeys) -> LevelKeys {
        let wrap = |keys: DirectionKeys| DirectionKeys { header: keys.header, packet: self.key(keys.packet) };
        LevelKeys { seal: wrap(keys.seal), open: wrap(keys.open) }
    }
}

impl Session for LowLimitSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.inner.handle_crypto(bytes)
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        Some(match self.inner.poll_crypto(out)? {
            NewKeys::Handshake(keys) => NewKeys::Handshake(self.level(keys)),
            NewKeys::OneRtt(keys) => NewKeys::OneRtt(self.level(keys)),
        })
    }

    fn next_phase(&self) -> PhaseKeys {
        let keys = self.inner.next_phase();
        PhaseKeys { seal: self.key(keys.seal), open: self.key(keys.open) }
    }

    fn advance_phase(&mut self) {
        self.inner.advance_phase();
    }

    fn peer_parameters(&self) -> Option<&[u8]> {
        self.inner.peer_parameters()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn peer_identity(&self) -> Vec<Vec<u8>> {
        self.inner.peer_identity()
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

impl SessionFactory for LowLimit {
    fn start(
        &self,
        server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        let inner = self.inner.start(server_name, parameters, versions)?;
        Ok(Box::new(LowLimitSession { inner, seals: self.seals, failures: self.failures }))
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        self.inner.initial_keys(id, side, version)
    }
}

fn low_limit(seed: u64, seals: u64, failures: u64) -> Sessions {
    let make = |side, name: &str| {
        let inner = DeterministicFactory::new(side, Rng::from_seed(seed).split(name));
        Arc::new(LowLimit { inner, seals, failures })
    };
    Sessions {
        client: make(Side::Client, "client"),
        server: make(Side::Server, "server"),
        server_name: "server".to_owned(),
    }
}

#[test]
fn no_key_seals_more_than_the_cipher_allows() {
    // Updates are disabled (the interval exceeds the limit), so the limit must end the connection.
    let setup = Setup::new(1).with_sessions(low_limit(1, 500, 1 << 40));
    let mut pair = setup.build();
    pair.connect();
    let id = pair.client.connection(0).open(quic::Dir::Uni).expect("streams are allowed");
    let mut writer = apps::Writer::new(id, 10_000_000);
    let ended = pair.run_until(Duration::from_secs(10), |pair| {
        let client = pair.client.connection(0);
        if client.is_established() {
            writer.pump(client);
        }
        !client.is_established()
    });
    assert!(ended, "{:?}", pair.client.connection(0).stats());
    let sent = pair.client.connection(0).stats().send.packets_sent;
    assert!((400..=510).contains(&sent), "{sent} packets");
    let closed = pair.client.events[0].back();
    assert!(
        matches!(closed, Some(quic::Event::Closed(quic::ConnectionError::PeerMisbehaved(error)))
            if error.code == quic::ErrorCode::AEAD_LIMIT_REACHED),
        "{closed:?}"
    );
    // With updates in time, keys of the same limit suffice.
    let setup = Setup::new(1)
        .with_sessions(low_limit(1, 500, 1 << 40))
        .with_links(|link| link.rate = Some(units::Rate::from_mbps(3)))
        .with_config(|config| config.key_update_interval = 100);
    let mut pair = setup.build();
    pair.connect();
    apps::transfer(&mut pair, 1_500_000, Duration::from_secs(20));
}

#[test]
fn too_many_forgeries_end_the_connection() {
    let mut pair = Setup::new(1).with_sessions(low_limit(1, 1 << 23, 1000)).build();
    pair.record = Some(Vec::new());
    pair.connect();
    apps::transfer(&mut pair, 10_000, Duration::from_secs(1));
    let mut forged = pair
        .record
        .as_ref()
        .expect("recording")
        .iter()
        .rev()
        .find(|(_, direction, _)| *direction == 0)
        .expect("sent")
        .2
        .clone();
    let last = forged.len() - 1;
    forged[last] ^= 0xff;
    for count in 1..=1000_u64 {
        assert!(pair.server.connection(0).is_established(), "closed after {count}");
        forged[last - 1] = forged[last - 1].wrapping_add(1);
        pair.server.receive(pair.now, &forged, crate::support::CLIENT);
        assert_eq!(pair.server.connection(0).stats().receive.packets_unauthentic, count);
    }
    assert!(!pair.server.connection(0).is_established());
    pair.run_for(Duration::from_millis(100));
    let closed = pair.client.events[0].back();
    assert!(
        matches!(closed, Some(quic::Event::Closed(quic::ConnectionError::ClosedByPeerTransport(error)))
            if error.code == quic::ErrorCode::AEAD_LIMIT_REACHED),
        "{closed:?}"
    );
}
