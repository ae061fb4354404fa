//! Security layers of a TCP/IP stack: two stacks over devices in memory, and a test between them that
//! changes packets.
#![expect(clippy::disallowed_methods, reason = "the threads of a test")]

use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use litz::Placement;
use litz::tcp::{
    CipherLayer, CloseReason, Closed, DigestLayer, IpDevice, Layers, MemoryTun, RecordError, SharedSecret, Stack,
    TcpStack, TcpStackConfig, Tun,
};

use crate::listening::Listening;
use crate::tcp_stack::exchange;
use crate::world::pattern;

const PLACEMENTS: [Placement; 5] =
    [Placement::Inline, Placement::Thread, Placement::Split, Placement::Pipeline, Placement::Packet(3)];

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 78, 0, 1));
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 78, 0, 2));

/// The length of the IP header, of the header of a digest and of the TCP header with timestamps.
const HEADERS: [usize; 3] = [20, 24, 32];

fn all_stacks() -> impl Iterator<Item = Stack> {
    let digests = || DigestLayer::ALL.into_iter().map(Some).chain([None]);
    let ciphers = CipherLayer::ALL.into_iter().map(Some).chain([None]);
    ciphers.flat_map(move |cipher| digests().map(move |digest| Stack { cipher, digest }))
}

fn start(tun: MemoryTun, ip: IpAddr, layers: Option<Layers>, placement: Placement) -> Listening {
    let config = TcpStackConfig::new(IpDevice::memory(tun, ip), &[ip]).with_placement(placement);
    let config = match layers {
        Some(layers) => config.with_layers(layers),
        None => config,
    };
    Listening::start(config)
}

fn layers(stack: Stack, secret: u8) -> Layers {
    Layers::new(stack, SharedSecret::new([secret; 32])).with_record_len(4096)
}

/// Makes both stacks send and receive over one connection; everything arrives.
fn exchange_both_ways(client: &TcpStack, server: &Listening, len: usize, case: &str) {
    let (there, back) = (pattern(len, 1), pattern(len * 2 / 3, 2));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| exchange(&server.accept().expect("a client"), &back));
        let stream = client.connect((SERVER, 80).into()).expect("connected");
        assert!(exchange(&stream, &there) == back, "{case}");
        assert!(serving.join().expect("served") == there, "{case}");
    });
}

#[test]
fn every_stack_carries_data_both_ways_under_every_placement() {
    for (index, stack) in all_stacks().enumerate() {
        for (at, placement) in PLACEMENTS.into_iter().enumerate() {
            // Each side has a placement of its own; the lengths fill no record.
            let other = PLACEMENTS[(at + index) % PLACEMENTS.len()];
            let [one, two] = MemoryTun::pair();
            let client = start(one, CLIENT, Some(layers(stack, 7)), placement);
            let server = start(two, SERVER, Some(layers(stack, 7)), other);
            exchange_both_ways(&client, &server, 300_001, &format!("{stack} {placement} {other}"));
        }
    }
}

#[test]
fn a_short_and_an_empty_stream_arrive() {
    for stack in Stack::PAPER.into_iter().chain(Stack::TODAY) {
        for len in [0, 1, 100] {
            let [one, two] = MemoryTun::pair();
            let client = start(one, CLIENT, Some(layers(stack, 7)), Placement::Thread);
            let server = start(two, SERVER, Some(layers(stack, 7)), Placement::Packet(2));
            exchange_both_ways(&client, &server, len, &format!("{stack} {len}"));
        }
    }
}

#[test]
fn what_was_written_before_a_stream_is_dropped_arrives_through_a_cipher() {
    let stack = Stack::TODAY[1];
    let [one, two] = MemoryTun::pair();
    let client = start(one, CLIENT, Some(layers(stack, 7)), Placement::Packet(2));
    let server = start(two, SERVER, Some(layers(stack, 7)), Placement::Packet(2));
    let bytes = pattern(1 << 20, 1);
    let sending = client.connect((SERVER, 80).into()).expect("connected");
    (&sending).write_all(&bytes).expect("there is space");
    drop(sending);
    let mut received = Vec::new();
    (&server.accept().expect("a client")).read_to_end(&mut received).expect("the end");
    assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
}

/// Carries packets between two devices, and passes each packet of the client to `change`.
fn carry(client: &MemoryTun, server: &MemoryTun, is_over: &AtomicBool, mut change: impl FnMut(&mut Vec<u8>)) {
    while !is_over.load(Ordering::Relaxed) {
        let mut has_none = true;
        while let Some(mut packet) = client.take_written() {
            change(&mut packet);
            server.inject(packet);
            has_none = false;
        }
        while let Some(packet) = server.take_written() {
            client.inject(packet);
            has_none = false;
        }
        if has_none {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// Runs a connection of the client to the server, whose packets from the client are changed.
fn with_changed_packets(
    stack: Stack,
    change: impl FnMut(&mut Vec<u8>) + Send,
    test: impl FnOnce(Listening, Listening),
) {
    let devices = [MemoryTun::new(), MemoryTun::new()];
    let client = start(devices[0].clone(), CLIENT, Some(layers(stack, 7)), Placement::Thread);
    let server = start(devices[1].clone(), SERVER, Some(layers(stack, 7)), Placement::Packet(2));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| carry(&devices[0], &devices[1], &is_over, change));
        test(client, server);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_flipped_bit_in_any_part_of_a_packet_is_found_below_tcp() {
    for digest in DigestLayer::ALL {
        let stack = Stack { cipher: None, digest: Some(digest) };
        let headers_len: usize = HEADERS.iter().sum();
        let flipped = AtomicU32::new(0);
        let (mut count, mut part) = (0, 0);
        // One bit of each tenth full packet: in the digest header, in the TCP header, in the data.
        let change = |packet: &mut Vec<u8>| {
            let offload_len = packet.len().saturating_sub(1500);
            if packet.len() < 1500 {
                return;
            }
            count += 1;
            if count % 10 == 0 {
                let at = [21, 30, 45, 60, headers_len, 1499][part % 6];
                packet[offload_len + at] ^= 1 << (part % 8);
                part += 1;
                flipped.fetch_add(1, Ordering::Relaxed);
            }
        };
        with_changed_packets(stack, change, |client, server| {
            exchange_both_ways(&client, &server, 400_000, &stack.to_string());
        });
        assert!(flipped.load(Ordering::Relaxed) > 12, "{stack}");
    }
}

#[test]
fn forged_data_end_a_connection_whose_cipher_has_a_tag() {
    for cipher in [CipherLayer::Aes128Gcm, CipherLayer::ChaCha20Poly1305] {
        let stack = Stack { cipher: Some(cipher), digest: None };
        let mut is_forged = false;
        let change = |packet: &mut Vec<u8>| {
            // A super-packet in memory has no checksum yet, so TCP does not notice.
            if packet.len() > 2000 && !is_forged {
                is_forged = true;
                let last = packet.len() - 1;
                packet[last] ^= 1;
            }
        };
        with_changed_packets(stack, change, |client, server| {
            std::thread::scope(|scope| {
                let serving = scope.spawn(|| {
                    let stream = server.accept().expect("a client");
                    while let Ok(Some(_)) = stream.read_chunk() {}
                    stream.closed()
                });
                let stream = client.connect((SERVER, 80).into()).expect("connected");
                let _reset = (&stream).write_all(&pattern(400_000, 1));
                assert_eq!(serving.join().expect("served"), Closed::Records(RecordError::Forged), "{stack}");
                assert_eq!(stream.closed(), Closed::Tcp(CloseReason::Reset), "{stack}");
            });
        });
        assert!(is_forged);
    }
}

/// Returns the end of a stream of these bytes at a server with `stack`, sent by a client without
/// layers.
fn verdict(stack: Stack, stream: &[u8]) -> Closed {
    let [one, two] = MemoryTun::pair();
    let client = start(one, CLIENT, None, Placement::Thread);
    let server = start(two, SERVER, Some(layers(stack, 7)), Placement::Packet(2));
    let raw = client.connect((SERVER, 80).into()).expect("connected");
    raw.write_chunk(Bytes::copy_from_slice(stream)).expect("there is space");
    raw.finish();
    let accepted = server.accept().expect("a client");
    assert!(!matches!(accepted.read_chunk(), Ok(Some(_))), "nothing of it is data");
    accepted.closed()
}

#[test]
fn lying_lengths_unknown_types_and_cut_streams_end_a_connection() {
    let salt = [9; 32];
    let with_salt = |bytes: &[u8]| [&salt[..], bytes].concat();
    for cipher in CipherLayer::ALL {
        let stack = Stack { cipher: Some(cipher), digest: None };
        let cases = [
            (Vec::new(), RecordError::Truncated),
            (salt[..20].to_vec(), RecordError::Truncated),
            (salt.to_vec(), RecordError::Truncated),
            (with_salt(&[1, 0, 0]), RecordError::Truncated),
            // The length exceeds the bytes that follow.
            (with_salt(&[&[1, 0, 0x10, 0][..], &[0; 100]].concat()), RecordError::Truncated),
            (with_salt(&[1, 0, 0, 3]), RecordError::Length(3)),
            (with_salt(&[1, 0, 0xff, 0xff]), RecordError::Length(0xffff)),
            (with_salt(b"GET / HTTP/1.1\r\n"), RecordError::Type(b'G')),
            (with_salt(&[2, 1, 0, 24]), RecordError::Type(1)),
            // No key gives this record; the padding of CBC is wrong for this secret.
            (with_salt(&[&[1, 0, 0, 40][..], &[0; 40]].concat()), RecordError::Forged),
        ];
        for (stream, expected) in cases {
            assert_eq!(verdict(stack, &stream), Closed::Records(expected), "{stack} {stream:?}");
        }
    }
}

#[test]
fn historical_layers_do_not_start_on_a_device_of_the_kernel() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let name = format!("litz-l-{}", std::process::id() % 100_000);
    let tun = Tun::open_up(&name, &[(CLIENT, 24)], 1500).expect("a device");
    let started = |stack: &str| {
        let layers = layers(stack.parse().expect("a stack"), 7);
        let config = TcpStackConfig::new(IpDevice::kernel(tun.clone(), SERVER), &[SERVER]).with_layers(layers);
        TcpStack::start(config).map(|stack| stack.close()).map_err(|error| error.to_string())
    };
    for stack in ["tcp/md5/ip", "des/tcp/ip", "3des/tcp/blake3/ip", "aes128/tcp/md5/ip"] {
        let refused = started(stack).expect_err("it protects nothing");
        assert!(refused.contains(stack) && refused.contains("devices in memory only"), "{refused}");
    }
    for stack in ["tcp/ip", "tcp/blake3/ip", "aes128/tcp/blake3/ip", "chacha20/tcp/ip"] {
        assert_eq!(started(stack), Ok(()), "{stack}");
    }
}
