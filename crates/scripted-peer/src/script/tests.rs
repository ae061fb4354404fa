use bytes::BytesMut;
use quic::session::deterministic::DeterministicFactory;
use quic::{Chunk, Dir, Endpoint, SecretSource, Side, TransportConfig, seal};
use units::{Duration, Instant, Rng};
use wire::quic::SAMPLE_LEN;

use super::observer::SAMPLE_AT;
use super::*;

const SIZE: usize = 1200;

/// A client, and a server that has become a script of one or several paths.
struct Pair {
    client: Connection,
    keys: ScriptKeys,
    /// Script of the first path.
    script: ScriptedPeer,
    others: Vec<ScriptedPeer>,
    now: Instant,
    plan: Plan,
    sealed: Vec<u8>,
}

fn carry(now: Instant, from: &mut Connection, to: &mut Connection) {
    let (mut plan, mut sealed) = (Plan::new(), Vec::new());
    while from.poll_plan(now, 64, &mut plan) {
        seal(&plan, &mut sealed);
        from.handle_emitted(now, &plan.receipt());
        // Both ends use the same names for a path.
        let source = plan.addresses.expect("a plan has a destination");
        to.handle_datagrams(now, source, BytesMut::from(&sealed[..]), plan.segment_size);
    }
    for end in [from, to] {
        end.handle_timeout(now);
        while end.poll_event().is_some() {}
        while end.poll_route().is_some() {}
    }
}

impl Pair {
    fn new(config: TransportConfig) -> Self {
        Self::with_paths(1, config.with_max_paths(0))
    }

    fn with_paths(paths: u16, config: TransportConfig) -> Self {
        let config = config.with_datagram_size(SIZE);
        let rng = |side| Rng::from_seed(side as u64 + 7);
        let factory = Arc::new(DeterministicFactory::new(Side::Server, rng(Side::Server)));
        let mut listening = Endpoint::new(config.clone(), Some(factory), SecretSource::new(&[1; 32])).unwrap();
        let mut dialling = Endpoint::new(config, None, SecretSource::new(&[2; 32])).unwrap();
        let addresses = Addresses::of(([192, 0, 2, 1], 1).into());
        let mut now = Instant::ZERO;
        let factory = DeterministicFactory::new(Side::Client, rng(Side::Client));
        let mut client = dialling.connect(now, &factory, "test", addresses).unwrap();
        let (mut plan, mut sealed) = (Plan::new(), Vec::new());
        assert!(client.poll_plan(now, 1, &mut plan));
        seal(&plan, &mut sealed);
        client.handle_emitted(now, &plan.receipt());
        let mut server = listening.accept(now, addresses, BytesMut::from(&sealed[..]), None, false).unwrap();
        assert!(!server.can_dismantle(paths.into()), "the handshake continues");
        for round in 0..400 {
            now += Duration::from_millis(1);
            for socket in (1..paths).filter(|_| round == 100) {
                let addresses = Addresses { socket, ..Addresses::of(([192, 0, 2, 1], 1 + socket).into()) };
                client.open_path(now, addresses, false).unwrap();
            }
            carry(now, &mut server, &mut client);
            carry(now, &mut client, &mut server);
        }
        assert!(!server.can_dismantle(usize::from(paths) + 1), "there are no more paths");
        let (keys, mut others) = into_script(server, paths.into()).expect("both are at rest");
        let script = others.remove(0);
        Self { client, keys, script, others, now, plan, sealed }
    }

    fn scripts(&mut self) -> impl Iterator<Item = &mut ScriptedPeer> {
        std::iter::once(&mut self.script).chain(&mut self.others)
    }

    /// Returns the script of the path from this socket.
    fn script_at(&mut self, socket: usize) -> &mut ScriptedPeer {
        self.scripts().nth(socket).expect("there is such a path")
    }

    fn update_keys(&mut self) -> bool {
        let mut all: Vec<_> = std::iter::once(&mut self.script).chain(&mut self.others).collect();
        self.keys.update(&mut all)
    }

    /// Delivers the plan that the script has made to the client.
    fn deliver(&mut self) {
        seal(&self.plan, &mut self.sealed);
        let buffer = BytesMut::from(&self.sealed[..]);
        let (stride, addresses) = (self.plan.segment_size, self.plan.addresses.unwrap());
        self.client.handle_datagrams(self.now, addresses, buffer, stride);
        self.client.handle_timeout(self.now);
        while let Some(event) = self.client.poll_event() {
            assert!(!matches!(event, quic::Event::Closed(_)), "{event:?}");
        }
    }

    /// Delivers all due packets of the client to the script; returns their number.
    fn take(&mut self) -> usize {
        let mut packets = 0;
        while self.client.poll_plan(self.now, 64, &mut self.plan) {
            seal(&self.plan, &mut self.sealed);
            self.client.handle_emitted(self.now, &self.plan.receipt());
            let script = match self.plan.addresses.unwrap().socket {
                0 => &mut self.script,
                socket => &mut self.others[usize::from(socket) - 1],
            };
            script.note_arrived(&self.sealed, self.plan.segment_size).unwrap();
            self.keys.renew(script);
            packets += self.plan.packet_count();
        }
        packets
    }
}

/// Returns a configuration with windows that never block the script, and a send buffer that keeps
/// flights short.
fn config() -> TransportConfig {
    TransportConfig::default()
        .with_connection_window(1 << 40)
        .with_stream_window(1 << 40)
        .with_send_buffer_max(256 << 10)
}

#[test]
fn each_packet_is_acknowledged_and_no_skipped_number() {
    let mut pair = Pair::new(config());
    let id = pair.client.open(Dir::Uni).unwrap();
    let (chunk, mut packets) = (Bytes::from(vec![7; 1 << 16]), 0);
    let before = pair.script.observer.largest;
    for _ in 0..400 {
        pair.now += Duration::from_millis(1);
        while pair.client.write(id, chunk.clone()).is_ok() {}
        packets += pair.take() as u64;
        if pair.script.plan_ack(&mut pair.plan) {
            // A client closes when it gets an acknowledgement of a skipped number; `deliver` would
            // detect that.
            pair.deliver();
        }
        assert_eq!(pair.script.unacknowledged(), 0);
    }
    let stats = pair.client.stats();
    let left_out = pair.script.observer.largest.unwrap() - before.unwrap() - packets;
    assert!(packets > 20_000 && left_out > 2, "{packets} packets, {left_out} numbers left out between them");
    assert_eq!((stats.send.packets_lost, stats.in_flight_bytes), (0, 0));
    assert_eq!(stats.send.packets_sent, stats.paths[0].packets_acked + before_the_script(&stats));
}

/// Returns the number of packets of the handshake, and of those that are never acknowledged.
fn before_the_script(stats: &quic::Stats) -> u64 {
    let known = stats.send.packets_sent - stats.paths[0].packets_acked;
    assert!(known < 40, "{known} packets were not acknowledged");
    known
}

#[test]
fn every_byte_of_a_scripted_stream_arrives_at_its_offset() {
    let mut pair = Pair::new(config());
    let id = StreamId::new(Side::Server, Dir::Uni, 0);
    let pattern: Bytes = (0..9973_u32).map(|byte| (byte % 251) as u8).collect::<Vec<_>>().into();
    pair.script.plan_ack_frequency(256, 1000, &mut pair.plan);
    pair.deliver();
    let (mut written, mut read) = (0, 0);
    for round in 0..300 {
        pair.now += Duration::from_millis(1);
        if round % 10 == 9 {
            let number = pair.script.reserve_number();
            pair.script.plan_ack_as(number, &mut pair.plan);
            pair.deliver();
        }
        written += pair.script.plan_data(id, written, 1 + round % 60, SIZE, &pattern, &mut pair.plan);
        pair.deliver();
        let _once = pair.client.accept(Dir::Uni);
        while let Ok(Chunk::Bytes(bytes)) = pair.client.read(pair.now, id, usize::MAX) {
            for byte in bytes.iter() {
                assert_eq!(*byte, pattern[read % pattern.len()], "at {read}");
                read += 1;
            }
        }
        pair.take();
    }
    let stats = pair.client.stats().receive;
    assert_eq!(read as u64, written);
    assert_eq!((stats.packets_unauthentic, stats.packets_duplicate), (0, 0));
}

#[test]
fn key_updates_of_both_sides_are_followed() {
    let mut pair = Pair::new(config().with_key_update_interval(500));
    let id = pair.client.open(Dir::Uni).unwrap();
    let chunk = Bytes::from(vec![7; 1 << 16]);
    let theirs = StreamId::new(Side::Server, Dir::Uni, 0);
    let mut written = 0;
    for round in 0..400 {
        pair.now += Duration::from_millis(5);
        if round % 50 == 25 {
            pair.update_keys();
        }
        while pair.client.write(id, chunk.clone()).is_ok() {}
        pair.take();
        written += pair.script.plan_data(theirs, written, 3, SIZE, &chunk, &mut pair.plan);
        pair.deliver();
        if pair.script.plan_ack(&mut pair.plan) {
            pair.deliver();
        }
    }
    let stats = pair.client.stats();
    assert!(pair.keys.phase > 15 && stats.send.key_updates > 15, "{} {}", pair.keys.phase, stats.send.key_updates);
    assert_eq!((stats.receive.packets_unauthentic, stats.send.packets_lost), (0, 0));
}

#[test]
fn datagrams_that_are_no_packets_for_the_script_are_refused() {
    let mut pair = Pair::new(TransportConfig::default());
    let long = [0xc0; 1200];
    assert_eq!(pair.script.note_arrived(&long, 1200), Err(NotScripted));
    for len in 0..30 {
        let result = pair.script.note_arrived(&vec![0x40; len], 1200);
        assert!(result.is_err() || len == 0 || len >= SAMPLE_AT + SAMPLE_LEN, "{len}");
    }
    assert!(!pair.script.plan_ack(&mut pair.plan) || pair.script.observer.largest.is_some());
}

/// Returns the same as `config`, for several paths.
fn paths_config() -> TransportConfig {
    config().with_max_paths(4).with_scheduler(quic::Strategy::RoundRobin)
}

#[test]
fn each_path_has_its_own_acknowledgements_and_follows_key_updates() {
    let mut pair = Pair::with_paths(3, paths_config().with_key_update_interval(500));
    let id = pair.client.open(Dir::Uni).unwrap();
    let chunk = Bytes::from(vec![7; 1 << 16]);
    for round in 0..400 {
        pair.now += Duration::from_millis(5);
        if round % 50 == 25 {
            pair.update_keys();
        }
        while pair.client.write(id, chunk.clone()).is_ok() {}
        pair.take();
        for socket in 0..3 {
            let mut plan = std::mem::take(&mut pair.plan);
            let is_due = pair.script_at(socket).plan_ack(&mut plan);
            pair.plan = plan;
            if is_due {
                // An acknowledgement of a skipped number, or of another path's, would end the
                // connection.
                pair.deliver();
            }
        }
    }
    let stats = pair.client.stats();
    assert!(pair.keys.phase > 10 && stats.send.key_updates > 10, "{:?} {}", pair.keys, stats.send.key_updates);
    assert_eq!((stats.receive.packets_unauthentic, stats.send.packets_lost), (0, 0));
    assert_eq!((stats.paths.len(), stats.in_flight_bytes), (3, 0));
    for path in &stats.paths {
        assert!(path.packets_acked > 1000 && path.packets_sent - path.packets_acked < 40, "{path:?}");
    }
}

#[test]
fn streams_of_several_paths_arrive_whole_and_are_acknowledged_on_each() {
    let mut pair = Pair::with_paths(2, paths_config());
    let pattern: Bytes = (0..9973_u32).map(|byte| (byte % 251) as u8).collect::<Vec<_>>().into();
    let (mut written, mut read) = ([0; 2], [0; 2]);
    for round in 0..300 {
        pair.now += Duration::from_millis(1);
        if round == 150 {
            assert!(pair.update_keys());
        }
        for (path, written) in written.iter_mut().enumerate() {
            let id = StreamId::new(Side::Server, Dir::Uni, path as u64);
            let mut plan = std::mem::take(&mut pair.plan);
            let count = 1 + (round + path * 7) % 60;
            *written += pair.script_at(path).plan_data(id, *written, count, SIZE, &pattern, &mut plan);
            pair.plan = plan;
            pair.deliver();
        }
        while pair.client.accept(Dir::Uni).is_some() {}
        for (path, read) in read.iter_mut().enumerate() {
            let id = StreamId::new(Side::Server, Dir::Uni, path as u64);
            while let Ok(Chunk::Bytes(bytes)) = pair.client.read(pair.now, id, usize::MAX) {
                for byte in bytes.iter() {
                    assert_eq!(*byte, pattern[*read % pattern.len()], "at {read} of path {path}");
                    *read += 1;
                }
            }
        }
        pair.take();
    }
    let stats = pair.client.stats();
    assert_eq!(read.map(|read| read as u64), written);
    assert_eq!((stats.receive.packets_unauthentic, stats.receive.packets_duplicate), (0, 0));
    // The client's acknowledgements arrived on both paths: the scripts have noted them, in the new
    // phase too.
    assert!(pair.scripts().all(|script| script.unacknowledged() > 50 && script.observer.peer_phase == 1));
}

#[test]
fn a_detached_observer_lets_the_script_acknowledge_with_reserved_numbers() {
    let mut pair = Pair::new(config().with_key_update_interval(1 << 22));
    let (reader, mut observer) = (pair.keys.reader(&pair.script), pair.script.detach_observer());
    let mut reader = reader.expect("no keys were updated");
    let pattern: Bytes = (0..9973_u32).map(|byte| (byte % 251) as u8).collect::<Vec<_>>().into();
    let (ours, theirs) = (pair.client.open(Dir::Uni).unwrap(), StreamId::new(Side::Server, Dir::Uni, 0));
    let (mut written, mut sent, mut scripted, mut read) = (0, 0_u64, 0, 0_usize);
    for round in 0..300 {
        pair.now += Duration::from_millis(1);
        while round < 200 && pair.client.write(ours, pattern.clone()).is_ok() {
            written += pattern.len() as u64;
        }
        if round == 150 {
            pair.client.finish(ours).unwrap();
        }
        // Two processors behave this way: a run is sealed in advance, and the acknowledgement
        // before it gets its content only then.
        let number = pair.script.reserve_number();
        let mut row = Plan::new();
        scripted += pair.script.plan_data(theirs, scripted, 40, SIZE, &pattern, &mut row);
        while pair.client.poll_plan(pair.now, 64, &mut pair.plan) {
            seal(&pair.plan, &mut pair.sealed);
            pair.client.handle_emitted(pair.now, &pair.plan.receipt());
            observer.note_arrived(&pair.sealed, pair.plan.segment_size).unwrap();
            let look = |id, offset: u64, bytes: &[u8], _is_last: bool| {
                assert_eq!((id, offset), (ours, sent));
                assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == pattern[(offset as usize + at) % 9973]));
                sent += bytes.len() as u64;
            };
            reader.read(&mut pair.sealed, pair.plan.segment_size, look).unwrap();
        }
        let waiting = observer.unacknowledged();
        assert_eq!((pair.script.take_observed(&mut observer), observer.unacknowledged()), (waiting, 0));
        let mut plan = std::mem::take(&mut pair.plan);
        pair.script.plan_ack_as(number, &mut plan);
        pair.plan = plan;
        pair.deliver();
        pair.plan = row;
        pair.deliver();
        let _once = pair.client.accept(Dir::Uni);
        while let Ok(Chunk::Bytes(bytes)) = pair.client.read(pair.now, theirs, usize::MAX) {
            assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == pattern[(read + at) % 9973]));
            read += bytes.len();
        }
    }
    let stats = pair.client.stats();
    assert_eq!((written > 1 << 20, sent, read as u64), (true, written, scripted));
    assert_eq!((stats.send.packets_lost, stats.in_flight_bytes, stats.send.probe_timeouts), (0, 0, 0));
    assert_eq!((stats.receive.packets_unauthentic, stats.receive.packets_duplicate), (0, 0));
}

#[test]
fn a_reader_counts_unopened_packets_and_is_refused_after_a_key_update() {
    let mut pair = Pair::new(config());
    let mut reader = pair.keys.reader(&pair.script).expect("no keys were updated");
    let id = pair.client.open(Dir::Uni).unwrap();
    pair.client.write(id, Bytes::from(vec![7; 20_000])).unwrap();
    assert!(pair.client.poll_plan(pair.now, 64, &mut pair.plan));
    seal(&pair.plan, &mut pair.sealed);
    let (packets, stride) = (pair.plan.packet_count(), pair.plan.segment_size);
    assert!(packets > 3);
    pair.sealed[stride * 2 + 100] ^= 1;
    let mut bytes_read = 0;
    let result = reader.read(&mut pair.sealed, stride, |_, _, bytes, _| bytes_read += bytes.len());
    assert_eq!(result, Err(Unopened(1)));
    assert!(bytes_read > (packets - 2) * (stride - 60), "{bytes_read} of {packets} packets");
    assert_eq!(Unopened(1).to_string(), "1 packets for the script did not open");
    pair.take();
    assert!(pair.update_keys() && pair.keys.reader(&pair.script).is_none());
}
