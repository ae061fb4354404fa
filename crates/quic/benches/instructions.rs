//! Instructions per packet, counted by callgrind: plan, open and absorb, acknowledgement, parsing.
//! The cipher is left out (1-RTT keys that do nothing), because valgrind does not support the wide
//! vector instructions that make it fast.
//!
//! Counts are the same on every machine, so they can have limits: a benchmark fails if it needs 5 %
//! more than its recorded figure. If a change is worth more instructions, raise the figure and give
//! the reason. `make instructions` installs the tools.
#![expect(missing_docs, reason = "the macros make modules that cannot be documented")]

mod support;

use std::hint::black_box;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use quic::session::{DirectionKeys, HeaderKey, LevelKeys, OpenFailed, PacketKey};
use quic::{Connection, Dir, PathId, Plan, Side, TransportConfig, seal};
use units::{Duration, Instant};
use wire::quic::Reader;
use wire::quic::frame::{Frame, emit_ack, emit_stream_header};

/// Packets in a batch.
const BATCH: u64 = 44;

/// The instructions of each benchmark, as of the last intended change.
mod figures {
    /// A batch of 44 packets, with delivery-rate stamps. Of these, about 20 are for probes of other
    /// addresses than the path's (RFC 9000, section 8.2.2): half an instruction per packet.
    pub(super) const PLAN: u64 = 2_112;
    /// A batch of 44 packets, read by the application at the end.
    pub(super) const ABSORB: u64 = 24_001;
    /// An acknowledgement of 198 packets with 22 packets missing in between, delivery-rate sample
    /// included.
    pub(super) const ACKNOWLEDGE: u64 = 10_052;
    /// A STREAM frame and an ACK frame of 16 ranges.
    pub(super) const PARSE: u64 = 1651;
}

/// Fails at 5 % more.
fn limit(figure: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::with_args(["--cache-sim=no"]);
    callgrind.hard_limits([(EventKind::Ir, figure + figure / 20)]).fail_fast(false);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

struct NoCipher;

impl PacketKey for NoCipher {
    fn seal(&self, _: PathId, _: u64, _: &[u8], _: &mut [u8]) -> [u8; 16] {
        [0; 16]
    }

    fn open(&self, _: PathId, _: u64, _: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed> {
        payload.len().checked_sub(16).ok_or(OpenFailed)
    }

    fn confidentiality_limit(&self) -> u64 {
        1 << 23
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

impl HeaderKey for NoCipher {
    fn protect(&self, _: &[u8], _: &mut u8, _: &mut [u8]) {}

    fn unprotect(&self, _: &[u8], _: &mut u8, _: &mut [u8]) {}
}

fn no_keys(_: Side) -> LevelKeys {
    let keys = || DirectionKeys { header: Arc::new(NoCipher), packet: Arc::new(NoCipher) };
    LevelKeys { seal: keys(), open: keys() }
}

/// A transfer that has run for a while.
struct Transfer {
    client: Connection,
    server: Connection,
    now: Instant,
    plan: Plan,
    sealed: Vec<u8>,
    received: quic::StreamId,
}

fn transfer() -> Box<Transfer> {
    let config = TransportConfig::default().with_datagram_size(1472);
    let (mut client, mut server, mut now) = support::connected(&config, no_keys);
    let id = client.open(Dir::Uni).expect("a stream is allowed");
    let chunk = Bytes::from(vec![7; 64 << 10]);
    let mut received = None;
    for _ in 0..300 {
        now += Duration::from_micros(100);
        while client.write(id, chunk.clone()).is_ok() {}
        support::exchange(now, &mut client, &mut server);
        received = received.or_else(|| server.accept(Dir::Uni));
        while received.is_some_and(|id| server.read(now, id, usize::MAX).is_ok()) {}
        support::exchange(now, &mut server, &mut client);
    }
    // The pacer does not block the next batches.
    now += Duration::from_millis(20);
    let received = received.expect("the stream arrived");
    // Boxed, so that moving a connection is not measured.
    let mut transfer = Box::new(Transfer { client, server, now, plan: Plan::new(), sealed: Vec::new(), received });
    // Buffers have reached their size.
    for _ in 0..2 {
        transfer.plan();
        let arrived = transfer.seal();
        transfer.absorb(arrived);
    }
    while transfer.server.read(now, received, usize::MAX).is_ok() {}
    transfer
}

impl Transfer {
    fn plan(&mut self) {
        self.now += Duration::from_millis(2);
        assert!(self.client.poll_plan(self.now, BATCH as usize, &mut self.plan));
        assert_eq!(self.plan.packet_count() as u64, BATCH, "a full batch");
    }

    fn seal(&mut self) -> BytesMut {
        seal(&self.plan, &mut self.sealed);
        self.client.handle_emitted(self.now, &self.plan.receipt());
        BytesMut::from(&self.sealed[..])
    }

    fn absorb(&mut self, arrived: BytesMut) {
        let source = self.server.addresses().remote;
        self.server.handle_datagrams(self.now, quic::Addresses::of(source), arrived, self.plan.segment_size);
    }
}

fn batch_sealed() -> (Box<Transfer>, BytesMut) {
    let mut transfer = transfer();
    transfer.plan();
    let arrived = transfer.seal();
    (transfer, arrived)
}

/// Five batches were sent, half of one was lost, and this is the server's acknowledgement.
fn five_batches_answered() -> (Box<Transfer>, BytesMut, usize) {
    let mut transfer = transfer();
    for batch in 0..5 {
        transfer.plan();
        let mut arrived = transfer.seal();
        if batch == 2 {
            arrived.truncate(arrived.len() / 2);
        }
        transfer.absorb(arrived);
    }
    assert!(transfer.server.poll_plan(transfer.now, 1, &mut transfer.plan));
    seal(&transfer.plan, &mut transfer.sealed);
    let answer = BytesMut::from(&transfer.sealed[..]);
    let stride = transfer.plan.segment_size;
    (transfer, answer, stride)
}

fn payloads() -> (Vec<u8>, Vec<u8>) {
    let (mut stream, mut ack) = (Vec::new(), Vec::new());
    emit_stream_header(quic::StreamId::new(Side::Client, Dir::Uni, 3), 1 << 33, 1400, false, true, &mut stream);
    stream.resize(stream.len() + 1400, 7);
    emit_ack(None, 25, (0..16u64).rev().map(|range| range * 100 + 5_000..=range * 100 + 5_060), None, &mut ack);
    (stream, ack)
}

#[library_benchmark(setup = transfer, config = limit(figures::PLAN))]
#[bench::batch()]
fn plan(mut transfer: Box<Transfer>) -> Box<Transfer> {
    transfer.plan();
    transfer
}

#[library_benchmark(setup = batch_sealed, config = limit(figures::ABSORB))]
#[bench::batch()]
fn absorb((mut transfer, arrived): (Box<Transfer>, BytesMut)) -> (Box<Transfer>, Vec<quic::Chunk>) {
    transfer.absorb(arrived);
    let mut read = Vec::with_capacity(4);
    while let Ok(chunk) = transfer.server.read(transfer.now, transfer.received, usize::MAX) {
        read.push(chunk);
    }
    (transfer, read)
}

#[library_benchmark(setup = five_batches_answered, config = limit(figures::ACKNOWLEDGE))]
#[bench::five_batches()]
fn acknowledge((mut transfer, answer, stride): (Box<Transfer>, BytesMut, usize)) -> Box<Transfer> {
    let source = transfer.client.addresses().remote;
    transfer.client.handle_datagrams(transfer.now, quic::Addresses::of(source), answer, stride);
    transfer
}

#[library_benchmark(setup = payloads, config = limit(figures::PARSE))]
#[bench::stream_and_ack()]
fn parse((stream, ack): (Vec<u8>, Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    for payload in [&stream, &ack] {
        match black_box(Frame::parse(&mut Reader::new(payload))).expect("a frame") {
            Frame::Ack(ack) => drop(black_box(ack.ranges().map(|range| range.end() - range.start()).sum::<u64>())),
            frame => drop(black_box(frame.is_ack_eliciting())),
        }
    }
    (stream, ack)
}

library_benchmark_group!(name = packets; benchmarks = plan, absorb, acknowledge, parse);
main!(library_benchmark_groups = packets);
