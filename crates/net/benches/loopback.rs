//! Cost of a batch over loopback: nanoseconds to send and to receive 64 KB, by datagram size.
//!
//! `cargo bench -p litz-net` measures; `cargo test -p litz-net --benches` only runs each case
//! briefly as a check.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::net::{Ipv4Addr, SocketAddr};

use net::{
    BATCH_BYTES_MAX, DatagramSocket, MemoryNetwork, MonotonicClock, RECV_BUFFER_BYTES, RecvMeta, Transmit, UdpSocket,
    UdpSocketOptions,
};

/// Batches in flight at once: fewer than the smallest receive buffer holds.
const BURST: usize = 4;

struct Figures {
    send_ns: f64,
    recv_ns: f64,
    buffers: f64,
}

fn main() {
    // Cargo passes this argument for benchmarks, but not for tests.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let rounds = if measuring { 5_000 } else { 20 };
    println!("{:<22} {:>8} {:>9} {:>9} {:>11} {:>8}", "case", "bytes", "send/ns", "recv/ns", "buffers", "Gb/s");
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for segment_size in [1200, 1472, 8952] {
        for (name, segments) in [("udp, batch", usize::MAX), ("udp, one by one", 1), ("memory, batch", usize::MAX)] {
            let (sender, receiver): (Box<dyn DatagramSocket>, Box<dyn DatagramSocket>) = if name.starts_with("udp") {
                let open =
                    || UdpSocket::open(&UdpSocketOptions::new(local)).expect("a socket can be opened on loopback");
                (Box::new(open()), Box::new(open()))
            } else {
                let network = MemoryNetwork::new();
                let open = || network.bind(local).expect("an empty network has free ports");
                (Box::new(open()), Box::new(open()))
            };
            let bytes = BATCH_BYTES_MAX / segment_size * segment_size;
            let figures = measure(sender, receiver, bytes, segment_size, segments, rounds);
            let gbps = bytes as f64 * 8.0 / (figures.send_ns + figures.recv_ns);
            println!(
                "{:<22} {:>8} {:>9.0} {:>9.0} {:>11.1} {:>8.1}",
                format!("{name} {segment_size}"),
                bytes,
                figures.send_ns,
                figures.recv_ns,
                figures.buffers,
                gbps
            );
        }
    }
}

/// Sends bursts and receives them on one thread, so that the times of both sides can be separated.
/// The first tenth is warm-up.
fn measure(
    mut sender: Box<dyn DatagramSocket>,
    mut receiver: Box<dyn DatagramSocket>,
    bytes: usize,
    segment_size: usize,
    segments: usize,
    rounds: usize,
) -> Figures {
    let contents = vec![0xa5; bytes];
    let destination = receiver.local_addr().expect("the socket is bound");
    let call_bytes = segment_size.saturating_mul(segments).min(bytes);
    let mut memory = vec![vec![0; RECV_BUFFER_BYTES]; 8];
    let mut buffers: Vec<&mut [u8]> = memory.iter_mut().map(|buffer| &mut buffer[..]).collect();
    let mut metas = [RecvMeta::default(); 8];
    let clock = MonotonicClock::start();
    let (mut send_ns, mut recv_ns, mut filled, mut counted) = (0, 0, 0, 0);
    for round in 0..rounds {
        let started = clock.now();
        for _ in 0..BURST {
            for piece in contents.chunks(call_bytes) {
                let segment_size = (piece.len() > segment_size).then_some(segment_size);
                let transmit = Transmit { destination, source_ip: None, ecn: None, contents: piece, segment_size };
                sender.send(&transmit).expect("four batches fit a send buffer");
            }
        }
        let sent = clock.now();
        let (mut received, mut buffers_filled) = (0, 0);
        while received < BURST * bytes {
            // Loopback delivers before `send` returns. A missing datagram would make this loop
            // endless, so it has a limit.
            assert!((clock.now() - sent).as_millis() < 10_000, "{received} of {} bytes arrived", BURST * bytes);
            let Ok(count) = receiver.recv(&mut buffers, &mut metas) else { continue };
            received += metas[..count].iter().map(|meta| meta.len).sum::<usize>();
            buffers_filled += count;
        }
        let done = clock.now();
        if round >= rounds / 10 {
            send_ns += (sent - started).as_nanos();
            recv_ns += (done - sent).as_nanos();
            filled += buffers_filled;
            counted += BURST;
        }
    }
    let per_batch = |sum: f64| sum / counted as f64;
    Figures {
        send_ns: per_batch(send_ns as f64),
        recv_ns: per_batch(recv_ns as f64),
        buffers: per_batch(filled as f64),
    }
}
