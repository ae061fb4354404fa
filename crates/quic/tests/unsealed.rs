//! The length-only stage changes nothing: a transfer with sealed datagrams and one with unsealed
//! datagrams are identical to the byte, with losses, bit errors and key updates.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{
    Addresses, Chunk, Connection, ConnectionKey, Dir, Endpoint, Event, Plan, Route, SecretSource, Side, StreamId,
    TransportConfig, Unsealed, seal,
};
use units::{Duration, Instant, Rng};

const KEY: ConnectionKey = ConnectionKey(0);
const BYTES: usize = 6 << 20;
const DELAY: Duration = Duration::from_millis(4);
/// Datagrams in each direction that are lost, and that arrive with a bit flipped.
const LOST_EVERY: usize = 211;
const DAMAGED_EVERY: usize = 307;

enum Body {
    Sealed(Vec<u8>),
    Unsealed(Arc<Unsealed>, usize),
}

struct End {
    side: Side,
    endpoint: Endpoint,
    connection: Option<Connection>,
    factory: Arc<dyn SessionFactory>,
    sent: usize,
}

/// The log of a run: which bytes left when, from which end.
type Log = Vec<(Instant, usize, Vec<u8>)>;

fn addresses(side: Side) -> Addresses {
    let end = |host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 1000);
    let (here, there) = if side == Side::Client { (end(1), end(2)) } else { (end(2), end(1)) };
    Addresses { remote: there, local_ip: Some(here.ip()), socket: 0 }
}

impl End {
    fn new(side: Side) -> Self {
        let rng = Rng::from_seed(side as u64 + 7);
        let mut key = [0; 32];
        rng.split("secrets").fill(&mut key);
        let factory: Arc<dyn SessionFactory> = Arc::new(DeterministicFactory::new(side, rng.split("sessions")));
        let config = TransportConfig::default().with_key_update_interval(700);
        let server = (side == Side::Server).then(|| factory.clone());
        let endpoint = Endpoint::new(config, server, SecretSource::new(&key)).expect("the pair is valid");
        Self { side, endpoint, connection: None, factory, sent: 0 }
    }

    fn send(&mut self, now: Instant, sealed: bool, log: &mut Log, out: &mut VecDeque<(Instant, Body)>) {
        let Some(connection) = &mut self.connection else { return };
        let mut plan = Plan::new();
        while connection.poll_plan(now, 44, &mut plan) {
            connection.handle_emitted(now, &plan.receipt());
            let mut bytes = Vec::new();
            seal(&plan, &mut bytes);
            let datagrams: Vec<_> = bytes.chunks(plan.segment_size).map(<[u8]>::to_vec).collect();
            let mut unsealed = Unsealed::new();
            unsealed.fill(&mut plan);
            let unsealed = Arc::new(unsealed);
            assert_eq!(unsealed.datagram_count(), datagrams.len());
            for (index, datagram) in datagrams.into_iter().enumerate() {
                let mut again = Vec::new();
                unsealed.seal_datagram(index, &mut again);
                assert_eq!(
                    (again.len(), &again),
                    (unsealed.len_bytes(index), &datagram),
                    "sealing late gives the same bytes"
                );
                let mut known = Vec::new();
                unsealed.known_bytes(index, &mut known);
                if unsealed.is_sealed(index) {
                    assert_eq!(known, datagram, "all of it is known");
                } else {
                    // A short header in front, with the connection ID, and a frame's; no payload.
                    assert!((6..50).contains(&known.len()) && known.len() < datagram.len(), "{known:02x?}");
                    assert_eq!((known[0] & 0xe0, &known[1..5]), (datagram[0] & 0xe0, &datagram[1..5]));
                }
                log.push((now, self.side as usize, datagram.clone()));
                self.sent += 1;
                if self.sent.is_multiple_of(LOST_EVERY) {
                    continue;
                }
                let body = if self.sent.is_multiple_of(DAMAGED_EVERY) {
                    let mut damaged = datagram;
                    let at = damaged.len() - 3;
                    damaged[at] ^= 4;
                    Body::Sealed(damaged)
                } else if sealed {
                    Body::Sealed(datagram)
                } else {
                    Body::Unsealed(Arc::clone(&unsealed), index)
                };
                out.push_back((now + DELAY, body));
            }
        }
        while let Some(change) = connection.poll_route() {
            self.endpoint.apply(KEY, change);
        }
    }

    fn receive(&mut self, now: Instant, body: Body) {
        let addresses = addresses(self.side);
        match (body, &mut self.connection) {
            (Body::Unsealed(unsealed, index), Some(connection)) => {
                assert_eq!(self.endpoint.route_unsealed(&unsealed, index), Route::Known(KEY));
                connection.handle_unsealed(now, addresses, &unsealed, index..index + 1, None);
            }
            (Body::Sealed(bytes), Some(connection)) => {
                let len = bytes.len();
                connection.handle_datagrams(now, addresses, BytesMut::from(&bytes[..]), len);
            }
            (body, None) => {
                let mut bytes = Vec::new();
                match body {
                    Body::Sealed(sealed) => bytes = sealed,
                    Body::Unsealed(unsealed, index) => unsealed.seal_datagram(index, &mut bytes),
                }
                self.connection = self.endpoint.accept(now, addresses, BytesMut::from(&bytes[..]), None, false).ok();
            }
        }
        if let Some(connection) = &mut self.connection {
            while let Some(change) = connection.poll_route() {
                self.endpoint.apply(KEY, change);
            }
        }
    }
}

/// The client's part: writes what the stream accepts.
fn write(connection: &mut Connection, stream: &mut Option<StreamId>, rest: &mut Bytes) {
    while let Some(event) = connection.poll_event() {
        if let Event::Connected = event {
            *stream = connection.open(Dir::Uni);
        }
    }
    let Some(id) = *stream else { return };
    while !rest.is_empty() {
        // Chunks that end inside packets.
        let mut chunk = rest.slice(..rest.len().min(10_007));
        let before = chunk.len();
        let result = connection.write_some(id, &mut chunk);
        *rest = rest.slice(before - chunk.len()..);
        if result.is_err() {
            return;
        }
    }
    connection.finish(id).expect("the stream is open");
    *stream = None;
}

/// The server's part.
fn read(now: Instant, connection: &mut Connection, stream: &mut Option<StreamId>, got: &mut Vec<u8>) -> bool {
    while connection.poll_event().is_some() {}
    if stream.is_none() {
        *stream = connection.accept(Dir::Uni);
    }
    let Some(id) = *stream else { return false };
    loop {
        match connection.read(now, id, usize::MAX) {
            Ok(Chunk::Bytes(bytes)) => bytes.pieces().for_each(|piece| got.extend_from_slice(piece)),
            Ok(Chunk::End) => return true,
            Err(_) => return false,
        }
    }
}

fn run(sealed: bool) -> (Log, Vec<u8>, String) {
    let mut payload = vec![0; BYTES];
    Rng::from_seed(3).fill(&mut payload);
    let (mut rest, mut got) = (Bytes::from(payload), Vec::new());
    let mut ends = [End::new(Side::Client), End::new(Side::Server)];
    let mut wires = [VecDeque::new(), VecDeque::new()];
    let (mut log, mut now, mut streams) = (Log::new(), Instant::ZERO, [None, None]);
    let factory = ends[0].factory.clone();
    let client = ends[0].endpoint.connect(now, factory.as_ref(), "b", addresses(Side::Client));
    ends[0].connection = Some(client.expect("the replay starts"));
    for _ in 0..1_000_000 {
        if let Some(connection) = &mut ends[0].connection {
            write(connection, &mut streams[0], &mut rest);
        }
        let mut is_done = false;
        if let Some(connection) = &mut ends[1].connection {
            is_done = read(now, connection, &mut streams[1], &mut got);
        }
        for (end, wire) in ends.iter_mut().zip(&mut wires) {
            end.send(now, sealed, &mut log, wire);
        }
        if is_done {
            let stats = ends.map(|end| end.connection.expect("it was made").stats());
            assert!(stats[0].send.key_updates > 3, "{:?}", stats[0].send);
            return (log, got, format!("{stats:?}"));
        }
        let arrivals = wires.iter().filter_map(|wire| wire.front().map(|(at, _)| *at));
        let timers = ends.iter().filter_map(|end| end.connection.as_ref()?.poll_timeout());
        now = arrivals.chain(timers).min().expect("an event is due").max(now);
        for from in 0..2 {
            while wires[from].front().is_some_and(|(at, _)| *at <= now) {
                let (_, body) = wires[from].pop_front().expect("it was just inserted");
                ends[1 - from].receive(now, body);
            }
        }
        for end in &mut ends {
            if let Some(connection) = &mut end.connection {
                connection.handle_timeout(now);
            }
        }
    }
    panic!("the transfer does not end");
}

#[test]
fn a_transfer_without_sealing_is_the_same_to_the_byte() {
    let (sealed, got, stats) = run(true);
    let (unsealed, got_unsealed, stats_unsealed) = run(false);
    assert!(sealed.len() > 5000, "{} datagrams", sealed.len());
    assert!(got.len() == BYTES && got == got_unsealed, "{} and {} bytes", got.len(), got_unsealed.len());
    let differs = sealed.iter().zip(&unsealed).position(|(one, other)| one != other);
    assert_eq!((differs, sealed.len()), (None, unsealed.len()));
    assert_eq!(stats, stats_unsealed);
}
