//! Bytes as an attacker would send them, derived from an input: from a fuzzer, or from a seed.

use bytes::Bytes;
use units::{Duration, Rng};
use wire::quic::Space;

use super::hostile::{HostilePair, SealOverrides};
use super::{Pair, Setup, apps};

/// Commands taken from one input, at most.
const COMMANDS_MAX: usize = 64;

/// The commands in an input.
struct Commands<'a> {
    rest: &'a [u8],
}

impl<'a> Commands<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn short(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = self.short().min(1500).min(self.rest.len());
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        head
    }
}

/// Injects datagrams into the links of a live pair: generated ones, and recorded ones that are
/// modified, truncated or sent to the wrong side. None of them authenticates, so the pair must stay
/// up and still carry data.
///
/// # Panics
/// If the pair fails.
pub fn datagrams_into_live_pair(input: &[u8]) {
    let mut commands = Commands { rest: input };
    let mut pair = Setup::new(u64::from(commands.byte())).build();
    pair.record = Some(Vec::new());
    pair.connect();
    apps::transfer(&mut pair, 3_000, Duration::from_secs(5));
    let recorded: Vec<(usize, Vec<u8>)> = pair
        .record
        .take()
        .expect("recording")
        .into_iter()
        .map(|(_, direction, datagram)| (direction, datagram))
        .collect();
    for _ in 0..COMMANDS_MAX {
        if commands.rest.is_empty() {
            break;
        }
        inject(&mut commands, &mut pair, &recorded);
    }
    pair.run_for(Duration::from_millis(100));
    let routes = pair.client.endpoint.route_count() + pair.server.endpoint.route_count();
    assert!(routes <= 16 + 8 * COMMANDS_MAX, "{routes} routes");
    assert!(pair.client.connection(0).is_established() && pair.server.connection(0).is_established());
    apps::transfer(&mut pair, 3_000, Duration::from_secs(60));
}

fn inject(commands: &mut Commands<'_>, pair: &mut Pair, recorded: &[(usize, Vec<u8>)]) {
    let choice = commands.byte();
    let (direction, datagram) = &recorded[commands.short() % recorded.len()];
    let direction = direction ^ usize::from(choice & 0x80 != 0);
    let mut datagram = datagram.clone();
    match choice & 0x7f {
        0 => datagram = commands.bytes().to_vec(),
        1 => {
            for _ in 0..=commands.byte() % 4 {
                let at = commands.short() % datagram.len();
                datagram[at] ^= commands.byte();
            }
        }
        2 => datagram.truncate(commands.short() % (datagram.len() + 1)),
        3 => {
            let keep = commands.short() % datagram.len();
            datagram.truncate(keep);
            datagram.extend_from_slice(commands.bytes());
        }
        4 => datagram.extend_from_slice(commands.bytes()),
        5 => {
            // The same header with another body: the first byte and the version come from the
            // input.
            let head = commands.bytes();
            let len = head.len().min(datagram.len()).min(40);
            datagram[..len].copy_from_slice(&head[..len]);
        }
        6 => pair.run_for(Duration::from_millis(u64::from(commands.byte()))),
        7 => pair.client.connection(0).send_datagram(Bytes::copy_from_slice(commands.bytes())).unwrap_or_default(),
        _ => {}
    }
    pair.inject(direction, datagram);
}

/// Sends any payload, properly sealed, as only an authenticated peer can. The connection closes or
/// continues, whatever the payloads contain, and stays within its memory bounds.
///
/// # Panics
/// If the victim panics or exceeds a bound.
pub fn payloads_into_connection(input: &[u8]) {
    let mut commands = Commands { rest: input };
    let mut hostile_pair =
        if commands.byte() & 1 == 0 { HostilePair::against_server() } else { HostilePair::against_client() };
    for _ in 0..COMMANDS_MAX {
        if commands.rest.is_empty() {
            break;
        }
        send_payloads(&mut commands, &mut hostile_pair);
    }
    hostile_pair.wait(Duration::from_millis(500));
    if hostile_pair.victim_is_alive() {
        let stats = hostile_pair.victim.connection(0).stats();
        assert!(stats.receive.streams_open <= 128 + 1024 + 64 && stats.send.streams_open <= 128 + 64, "{stats:?}");
        assert!(
            hostile_pair.victim.endpoint.route_count() <= 6,
            "{} routes",
            hostile_pair.victim.endpoint.route_count()
        );
    }
    // A peer that delays an acknowledgement by a minute slows down every timer based on the round
    // trip: idle and closing periods last at least three probe timeouts (RFC 9000, sections 10.1
    // and 10.2).
    hostile_pair.wait(Duration::from_secs(3600));
    assert!(!hostile_pair.victim_is_alive(), "neither side sends, so the idle timer ends it");
    assert_eq!(hostile_pair.victim.endpoint.route_count(), 0);
}

fn send_payloads(commands: &mut Commands<'_>, hostile_pair: &mut HostilePair) {
    match commands.byte() % 8 {
        0..=3 => hostile_pair.send(commands.bytes()),
        4 => {
            let body = commands.bytes();
            hostile_pair.send_and_ack(body);
        }
        5 => hostile_pair.wait(Duration::from_millis(u64::from(commands.byte()) * 4)),
        6 => {
            let odd = SealOverrides {
                reserved_bits: commands.byte() & 7 == 0,
                clear_fixed_bit: commands.byte() & 7 == 0,
                number: (commands.byte() & 3 == 0).then(|| commands.short() as u64),
                phases_ahead: usize::from(commands.byte() & 1),
                ..SealOverrides::default()
            };
            let packet = hostile_pair.hostile.packet_with(Space::Data, commands.bytes(), odd);
            hostile_pair.deliver(&packet);
        }
        _ => application(commands, hostile_pair),
    }
}

/// The application's actions meanwhile.
fn application(commands: &mut Commands<'_>, hostile_pair: &mut HostilePair) {
    let now = hostile_pair.now;
    let choice = commands.byte();
    let Some(Some(connection)) = hostile_pair.victim.connections.first_mut() else { return };
    for dir in quic::Dir::ALL {
        match choice % 4 {
            0 => {
                if let Some(id) = connection.open(dir) {
                    let _ = connection.write(id, Bytes::from(vec![choice; 3000]));
                }
            }
            1 => {
                while let Some(id) = connection.accept(dir) {
                    let _ = connection.read(now, id, usize::from(choice) + 1);
                    let _ = connection.stop(now, id, 1);
                }
            }
            2 => {
                while let Some(id) = connection.accept(dir) {
                    let _ = connection.read(now, id, usize::from(choice) + 1);
                    let _ = connection.write(id, Bytes::from(vec![choice; 100]));
                    let _ = connection.reset(id, 2);
                }
            }
            _ => {
                let _ = connection.recv_datagram();
                let _ = connection.send_datagram(Bytes::from(vec![choice; 100]));
            }
        }
    }
}

/// A test input of `len` bytes from a seed: frame types are likely where frames begin.
pub fn random_input(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(seed).split("injection");
    let mut out = Vec::with_capacity(len + 64);
    while out.len() < len {
        match rng.below(4) {
            // A small command with a body of small numbers, which most frames consist of.
            0 | 1 => {
                let body = rng.between(1, 60);
                out.extend([rng.below(8) as u8, 0, body as u8]);
                out.extend(
                    (0..body).map(|_| if rng.below(3) == 0 { rng.below(32) as u8 } else { rng.below(66) as u8 }),
                );
            }
            2 => out.extend([rng.below(8) as u8, rng.next_u64() as u8, rng.next_u64() as u8]),
            _ => out.extend(rng.next_u64().to_le_bytes()),
        }
    }
    out
}
