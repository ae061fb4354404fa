//! The TCP MD5 signature option (RFC 2385).

use bytes::Bytes;
use tcp::{Arrival, Connection, Md5Key, Plan, State, SuperPacket, TcpConfig, Tuple};
use units::{Duration, Instant, Seq32};
use wire::ip;

use crate::support::{CLIENT, SERVER};

const CLIENT_V6: &str = "[fd00::1]:40000";
const SERVER_V6: &str = "[fd00::2]:80";

fn key(bytes: &[u8]) -> Md5Key {
    Md5Key::new(bytes).expect("a valid length")
}

fn config(key: &Md5Key) -> TcpConfig {
    TcpConfig { md5: Some(key.clone()), ..TcpConfig::default() }
}

/// Returns the packets that a connection sends now.
fn packets(now: Instant, connection: &mut Connection) -> Vec<Bytes> {
    let (mut plan, mut packet, mut all) = (Plan::default(), SuperPacket::default(), Vec::new());
    while connection.poll_plan(now, 16, &mut plan) {
        plan.seal(&mut packet);
        packet.packets(|bytes| all.push(Bytes::copy_from_slice(bytes)));
    }
    all
}

/// Returns the TCP segment of a packet.
fn segment(packet: &[u8]) -> &[u8] {
    ip::Packet::parse(packet).expect("valid").payload
}

fn arrival(packet: &Bytes) -> Arrival {
    Arrival::open(packet, None, false).expect("the checksum is right")
}

/// Returns a connected pair whose server has written `len` bytes.
fn pair(tuple: Tuple, key: &Md5Key, len: usize) -> (Instant, Connection, Connection) {
    let mut now = Instant::ZERO;
    let mut client = Connection::connect(now, config(key), tuple, Seq32::new(5), 1);
    let syn = arrival(&packets(now, &mut client)[0]);
    let mut server = Connection::accept(now, config(key), &syn, Seq32::new(9), 2);
    for _ in 0..3 {
        now += Duration::from_millis(10);
        packets(now, &mut server).iter().for_each(|packet| client.handle_segment(now, arrival(packet)));
        packets(now, &mut client).iter().for_each(|packet| server.handle_segment(now, arrival(packet)));
    }
    assert_eq!((client.state(), server.state()), (State::Established, State::Established));
    server.write(&mut Bytes::from(vec![7; len])).expect("there is space");
    (now, client, server)
}

#[test]
fn every_segment_has_a_digest_that_only_the_key_makes() {
    let key = key(b"secret");
    let tuples = [
        Tuple { local: CLIENT, remote: SERVER },
        Tuple { local: CLIENT_V6.parse().unwrap(), remote: SERVER_V6.parse().unwrap() },
    ];
    for tuple in tuples {
        let (now, _, mut server) = pair(tuple, &key, 10_000);
        let sent = packets(now, &mut server);
        assert!(sent.len() >= 7, "{} packets: each segment is one", sent.len());
        for packet in &sent {
            assert!(packet.len() <= 1500);
            assert!(key.verifies(&tuple, segment(packet)));
            assert!(!self::key(b"Secret").verifies(&tuple, segment(packet)));
            let backwards = Tuple { local: tuple.remote, remote: tuple.local };
            assert!(!key.verifies(&backwards, segment(packet)), "the direction counts");
        }
    }
}

#[test]
fn every_bit_of_header_and_data_counts_but_those_of_checksum_and_options() {
    let (tuple, key) = (Tuple { local: CLIENT, remote: SERVER }, key(b"secret"));
    let (now, _, mut server) = pair(tuple, &key, 30);
    let sent = packets(now, &mut server).remove(0);
    let bytes = segment(&sent);
    let header_len = usize::from(bytes[12] >> 4) * 4;
    assert_eq!(bytes.len(), header_len + 30);
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let is_covered = !(16..18).contains(&(bit / 8)) && !(20..header_len).contains(&(bit / 8));
        if is_covered {
            assert!(!key.verifies(&tuple, &changed), "bit {bit}");
        }
    }
    let mut changed = bytes.to_vec();
    changed[16] ^= 1;
    assert!(key.verifies(&tuple, &changed), "the checksum is not covered (RFC 2385, section 2.0)");
    assert!(!key.verifies(&tuple, &bytes[..19]) && !key.verifies(&tuple, &[]));
}

#[test]
fn options_never_exceed_their_space() {
    let key = key(&[b'k'; 80]);
    for bits in 0..16_u32 {
        let has = |bit: u32| bits & 1 << bit != 0;
        let config =
            TcpConfig { timestamps: has(0), sack: has(1), window_scaling: has(2), ecn: has(3), ..config(&key) };
        let tuple = Tuple { local: CLIENT, remote: SERVER };
        let mut now = Instant::ZERO;
        let mut client = Connection::connect(now, config.clone(), tuple, Seq32::new(5), 1);
        let syn = arrival(&packets(now, &mut client)[0]);
        let mut server = Connection::accept(now, config, &syn, Seq32::new(9), 2);
        for _ in 0..3 {
            now += Duration::from_millis(10);
            packets(now, &mut server).iter().for_each(|packet| client.handle_segment(now, arrival(packet)));
            packets(now, &mut client).iter().for_each(|packet| server.handle_segment(now, arrival(packet)));
        }
        // Every other segment gets lost, so that there would be many blocks.
        server.write(&mut Bytes::from(vec![7; 14_000])).expect("there is space");
        let lossy: Vec<Bytes> = packets(now, &mut server).into_iter().skip(1).step_by(2).collect();
        assert!(lossy.len() >= 4);
        lossy.iter().for_each(|packet| client.handle_segment(now, arrival(packet)));
        let answers = packets(now, &mut client);
        let blocks = arrival(answers.last().expect("it is acknowledged")).header.options.sack.len();
        assert_eq!(blocks, if has(1) && !has(0) { 2 } else { 0 }, "{bits:b}");
        let reversed = Tuple { local: SERVER, remote: CLIENT };
        assert!(answers.iter().all(|packet| key.verifies(&reversed, segment(packet))));
    }
}
