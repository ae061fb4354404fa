//! Bytes as an attacker would send them, made of an input: from a fuzzer, or from a seed.

use bytes::Bytes;
use units::{Duration, Rng};
use wire::quic::Space;

use super::hostile::{Duel, Oddity};
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

/// Anything at all, on the links of a live pair: made up, recorded and changed, recorded and cut, recorded and sent to the
/// wrong side. Nothing of it authenticates, so the pair must stay up and still carry data.
///
/// # Panics
/// If the pair is impressed.
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
            // The same header on another body: a first byte and a version of the input's choice.
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

/// Any payload, properly sealed: behind the cipher, where only a peer can get. The connection closes or goes on, whatever
/// the payloads say, and holds no more than its bounds.
///
/// # Panics
/// If the victim does.
pub fn payloads_into_connection(input: &[u8]) {
    let mut commands = Commands { rest: input };
    let mut duel = if commands.byte() & 1 == 0 { Duel::against_server() } else { Duel::against_client() };
    for _ in 0..COMMANDS_MAX {
        if commands.rest.is_empty() {
            break;
        }
        speak(&mut commands, &mut duel);
    }
    duel.wait(Duration::from_millis(500));
    if duel.victim_lives() {
        let stats = duel.victim.connection(0).stats();
        assert!(stats.receive.streams_open <= 128 + 1024 + 64 && stats.send.streams_open <= 128 + 64, "{stats:?}");
        assert!(duel.victim.endpoint.route_count() <= 6, "{} routes", duel.victim.endpoint.route_count());
    }
    // A peer that delays an acknowledgement by a minute makes every timer that counts round trips that slow: idle and
    // closing periods are three probe timeouts at least (RFC 9000, sections 10.1 and 10.2).
    duel.wait(Duration::from_secs(3600));
    assert!(!duel.victim_lives(), "nobody speaks any more, so the idle timer ends it");
    assert_eq!(duel.victim.endpoint.route_count(), 0);
}

fn speak(commands: &mut Commands<'_>, duel: &mut Duel) {
    match commands.byte() % 8 {
        0..=3 => duel.say(commands.bytes()),
        4 => {
            let body = commands.bytes();
            duel.say_and_ack(body);
        }
        5 => duel.wait(Duration::from_millis(u64::from(commands.byte()) * 4)),
        6 => {
            let odd = Oddity {
                reserved_bits: commands.byte() & 7 == 0,
                clear_fixed_bit: commands.byte() & 7 == 0,
                number: (commands.byte() & 3 == 0).then(|| commands.short() as u64),
                phases_ahead: usize::from(commands.byte() & 1),
            };
            let packet = duel.hostile.odd_packet(Space::Data, commands.bytes(), odd);
            duel.deliver(&packet);
        }
        _ => application(commands, duel),
    }
}

/// What an application does meanwhile.
fn application(commands: &mut Commands<'_>, duel: &mut Duel) {
    let now = duel.now;
    let choice = commands.byte();
    let Some(Some(connection)) = duel.victim.connections.first_mut() else { return };
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

/// An input of `len` bytes from a seed, for tests: frame types are likely where frames begin.
pub fn random_input(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(seed).split("injection");
    let mut out = Vec::with_capacity(len + 64);
    while out.len() < len {
        match rng.below(4) {
            // A small command with a body of small numbers, which most frames are made of.
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
