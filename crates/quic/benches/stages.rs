//! Nanoseconds per packet and stage, on one core, without a network: plan, seal, open and absorb,
//! read, acknowledge.
//!
//! The handshake is the deterministic one; the 1-RTT keys are real AES-128-GCM, so the figures are
//! those of a real transfer without its system calls. Run `cargo bench -p litz-quic --bench
//! stages`; with `-- --journal` both sides are recorded to a sink that only counts the bytes.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant as Clock;

use bytes::Bytes;
use quic::session::LevelKeys;
use quic::{Chunk, Connection, Dir, JournalSink, JournalSource, Plan, ReceiveBuffer, Side, TransportConfig, seal};
use units::{Duration, Instant};

const DATAGRAM_SIZE: usize = 1472;
const WARM_UP_BYTES: u64 = 64 << 20;
const MEASURED_BYTES: u64 = 1 << 30;
const CHUNK_LEN: usize = 64 * 1024;

fn aes_keys(side: Side) -> LevelKeys {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let suite = provider
        .cipher_suites
        .iter()
        .find(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256)
        .and_then(|suite| suite.tls13())
        .and_then(rustls::Tls13CipherSuite::quic_suite)
        .expect("AES-128-GCM is built in");
    let side = if side == Side::Client { rustls::Side::Client } else { rustls::Side::Server };
    suite.keys(b"a benchmark", side, rustls::quic::Version::V1).into()
}

/// Memory that is reused when the last reference is dropped, as a driver's receive buffers are.
struct Recycled {
    memory: Vec<u8>,
    home: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl ReceiveBuffer for Recycled {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Recycled {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        self.home.lock().expect("no thread panics").push(std::mem::take(&mut self.memory));
    }
}

/// Counts the bytes of journals.
struct Counted(Arc<AtomicU64>);

impl JournalSink for Counted {
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        true
    }
}

/// As [`support::exchange`], timed by stage.
fn exchange(now: Instant, from: &mut Connection, to: &mut Connection, stages: &mut Stages) -> u64 {
    let mut packets = 0;
    loop {
        let start = Clock::now();
        let planned = from.poll_plan(now, 44, &mut stages.plan);
        stages.plan_ns += start.elapsed().as_nanos();
        if !planned {
            return packets;
        }
        packets += stages.plan.packet_count() as u64;
        let start = Clock::now();
        seal(&stages.plan, &mut stages.sealed);
        stages.seal_ns += start.elapsed().as_nanos();
        from.handle_emitted(now, &stages.plan.receipt());
        // This copy stands in for the network and is not counted.
        let mut memory = stages.home.lock().expect("no thread panics").pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(&stages.sealed);
        let arrived = Recycled { memory, home: stages.home.clone() };
        let start = Clock::now();
        let source = to.addresses().remote;
        to.handle_datagrams(now, quic::Addresses::of(source), arrived, stages.plan.segment_size);
        stages.open_ns += start.elapsed().as_nanos();
    }
}

#[derive(Default)]
struct Stages {
    plan: Plan,
    sealed: Vec<u8>,
    home: Arc<Mutex<Vec<Vec<u8>>>>,
    plan_ns: u128,
    seal_ns: u128,
    open_ns: u128,
    read_ns: u128,
}

fn main() {
    // As a test, only check that it works.
    let measured = if std::env::args().any(|arg| arg == "--bench") { MEASURED_BYTES } else { WARM_UP_BYTES };
    let written = Arc::new(AtomicU64::new(0));
    let journal = std::env::args().any(|arg| arg == "--journal").then(|| {
        let written = Arc::clone(&written);
        JournalSource(Arc::new(move |_| Some(Box::new(Counted(Arc::clone(&written))))))
    });
    let is_written_down = journal.is_some();
    let config = TransportConfig::default().with_datagram_size(DATAGRAM_SIZE).with_journal(journal);
    let (mut client, mut server, mut now) = support::connected(&config, aes_keys);
    let (mut forward, mut backward) = (Stages::default(), Stages::default());
    let id = client.open(Dir::Uni).expect("a stream is allowed");
    let chunk = Bytes::from(vec![7; CHUNK_LEN]);
    let (mut read, mut packets, mut acks) = (0u64, 0u64, 0u64);
    let (mut accepted, mut warm) = (None, false);
    let mut started = Clock::now();
    while read < WARM_UP_BYTES + measured {
        if !warm && read >= WARM_UP_BYTES {
            warm = true;
            (forward, backward, packets, acks) = (Stages::default(), Stages::default(), 0, 0);
            started = Clock::now();
        }
        now += Duration::from_micros(20);
        while client.write(id, chunk.clone()).is_ok() {}
        packets += exchange(now, &mut client, &mut server, &mut forward);
        accepted = accepted.or_else(|| server.accept(Dir::Uni));
        if let Some(accepted) = accepted {
            let start = Clock::now();
            while let Ok(Chunk::Bytes(bytes)) = server.read(now, accepted, usize::MAX) {
                read += bytes.len() as u64;
            }
            forward.read_ns += start.elapsed().as_nanos();
        }
        acks += exchange(now, &mut server, &mut client, &mut backward);
        if let Some(at) = client.poll_timeout().filter(|at| *at <= now) {
            now = now.max(at);
            client.handle_timeout(now);
        }
        server.handle_timeout(now);
    }
    let wall = started.elapsed();
    let each = |nanos: u128| nanos as f64 / packets as f64;
    println!("stage            ns/packet ({packets} packets of {DATAGRAM_SIZE} bytes, {acks} acknowledgement packets)");
    println!("plan             {:9.1}", each(forward.plan_ns));
    println!("seal             {:9.1}", each(forward.seal_ns));
    println!("open + absorb    {:9.1}", each(forward.open_ns));
    println!("read             {:9.1}", each(forward.read_ns));
    println!("acks: plan       {:9.1}", each(backward.plan_ns));
    println!("acks: seal       {:9.1}", each(backward.seal_ns));
    println!("acks: absorb     {:9.1}", each(backward.open_ns));
    if is_written_down {
        let bytes = written.load(Ordering::Relaxed) as f64;
        println!("journals         {:9.2} bytes for each KiB carried", bytes * 1024.0 / read as f64);
    }
    println!("goodput of both sides on one core: {:.2} Gb/s", measured as f64 * 8.0 / wall.as_nanos() as f64);
}
