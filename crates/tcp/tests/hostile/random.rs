//! Random segments around the valid numbers, in any state, between operations of the application:
//! nothing panics, nothing is sent without end, and memory stays within the buffers.

use bytes::Bytes;
use tcp::{Nagle, State, TcpConfig};
use units::{Duration, Ecn, Rng};
use wire::tcp::{Flags, Options, Timestamps};

use crate::support::peer::{Peer, Segment, offer};

const BUFFER: usize = 20_000;

/// Number of seeds; `LITZ_SEEDS` sets another one.
const SEEDS: u64 = 3000;

/// Returns a number that is usually close to one of these.
fn near(rng: &mut Rng, places: &[u32]) -> u32 {
    let place = places[rng.below(places.len() as u64) as usize];
    match rng.below(8) {
        0 => rng.next_u64() as u32,
        1..=3 => place,
        4 | 5 => place.wrapping_add(rng.below(3000) as u32),
        _ => place.wrapping_sub(rng.below(3000) as u32),
    }
}

fn flags(rng: &mut Rng) -> Flags {
    match rng.below(8) {
        0 => Flags(rng.below(0x200) as u16),
        1 => Flags::FIN | Flags::ACK,
        2 => Flags::SYN | Flags::ACK,
        3 => Flags::ACK | Flags::ECE,
        _ => Flags::ACK,
    }
}

fn segment(peer: &Peer, rng: &mut Rng, sent_end: u32) -> Segment {
    let (nxt, edge) = (peer.nxt, peer.nxt.wrapping_add(BUFFER as u32));
    let mut segment = peer.segment().flags(flags(rng));
    segment.seq = near(rng, &[nxt, edge, 0, 1]);
    segment.ack = near(rng, &[sent_end, peer.expected, 0, 1]);
    segment.window = if rng.below(3) == 0 { rng.below(3000) as u16 } else { rng.next_u64() as u16 };
    let len = if rng.below(2) == 0 { 0 } else { rng.below(3000) as usize };
    let blocks: Vec<_> = (0..rng.below(4))
        .map(|_| {
            let start = near(rng, &[sent_end, peer.expected]);
            (start, start.wrapping_add(rng.below(4000) as u32))
        })
        .collect();
    segment = segment.len(len).sack(&blocks);
    if rng.below(4) == 0 {
        segment.options.timestamps =
            Some(Timestamps { value: near(rng, &[peer.clock()]), echo: near(rng, &[peer.echo.unwrap_or(0)]) });
    }
    segment.joined = (rng.below(3) == 0).then(|| rng.below(2000) as usize);
    if rng.below(4) == 0 { segment.ecn(Ecn::Ce) } else { segment }
}

fn peer(rng: &mut Rng) -> Peer {
    let config = TcpConfig {
        receive_buffer: BUFFER,
        send_buffer: BUFFER,
        sack: rng.below(3) > 0,
        timestamps: rng.below(2) > 0,
        nagle: if rng.below(2) > 0 { Nagle::Minshall } else { Nagle::Off },
        ..TcpConfig::default()
    };
    let timestamps = (rng.below(2) == 0).then(Timestamps::default);
    let options = Options { timestamps, window_scale: Some(rng.below(15) as u8), ..offer() };
    let initials = (rng.next_u64() as u32, rng.next_u64() as u32);
    match rng.below(4) {
        0 => Peer::awaits(&config),
        1 => Peer::sends_syn(&config, options, Flags::SYN, initials),
        _ => Peer::opens_with(&config, options, Flags::SYN, initials),
    }
}

fn run(seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let mut peer = peer(&mut rng);
    let mut sent_end = peer.expected;
    for _ in 0..200 {
        match rng.below(12) {
            0 => drop(peer.connection.write(&mut Bytes::from(vec![0; rng.below(6000) as usize]))),
            1 => drop(peer.read()),
            2 if rng.below(20) == 0 => peer.connection.finish(),
            3 if rng.below(60) == 0 => peer.connection.orphan(),
            4 if rng.below(60) == 0 => peer.connection.abort(),
            5 => {
                let bits = 1 + rng.below(24);
                let span = Duration::from_micros(rng.below(1 << bits));
                for sent in peer.pass(span) {
                    sent_end = sent.end();
                }
            }
            // An occasional honest step keeps the connection going.
            6 => peer.send_data(100),
            7 => peer.send_ack(),
            _ => {
                let segment = segment(&peer, &mut rng, sent_end);
                peer.send(segment);
            }
        }
        let sent = peer.sent();
        assert!(sent.len() < 100, "{sent:?}");
        peer.note(&sent);
        sent_end = sent.last().map_or(sent_end, |sent| sent.end());
        let connection = &peer.connection;
        assert!(connection.readable() <= BUFFER && connection.buffered() <= BUFFER);
        assert!(connection.sent_runs() < 500, "{}", connection.sent_runs());
        let waits = connection.buffered() > 0 && connection.state() != State::Closed;
        assert!(!waits || connection.poll_timeout().is_some(), "no timer: {connection:#?}");
        peer.events.clear();
    }
}

#[test]
fn nothing_that_a_peer_sends_breaks_a_connection() {
    let count = std::env::var("LITZ_SEEDS").map_or(SEEDS, |text| text.parse().expect("a number"));
    for seed in 0..count {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
