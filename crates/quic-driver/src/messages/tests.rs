use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use quic::{ReceivedDatagram, Side};

use super::*;
use driver::shared::Common;

use crate::application::{Limits, QuicShared};

/// A peer that opens streams and sends as the test requests.
#[derive(Default)]
struct Peer {
    opened: VecDeque<StreamId>,
    arrived: BTreeMap<StreamId, VecDeque<Chunk>>,
    reads: usize,
}

impl Peer {
    fn open(&mut self, index: u64) -> StreamId {
        let id = StreamId::new(Side::Server, Dir::Uni, index);
        self.opened.push_back(id);
        id
    }

    fn send(&mut self, id: StreamId, bytes: &'static [u8]) {
        self.arrived.entry(id).or_default().push_back(Chunk::Bytes(Bytes::from_static(bytes).into()));
    }

    fn end(&mut self, id: StreamId) {
        self.arrived.entry(id).or_default().push_back(Chunk::End);
    }
}

impl DataSource for Peer {
    fn accept(&mut self, _: Dir) -> Option<StreamId> {
        self.opened.pop_front()
    }

    fn read(&mut self, _: Instant, id: StreamId, _: usize) -> Result<Chunk, ReadError> {
        self.reads += 1;
        self.arrived.get_mut(&id).and_then(VecDeque::pop_front).ok_or(ReadError::Blocked)
    }

    fn stop(&mut self, _: Instant, _: StreamId, _: u64) -> Result<(), ReadError> {
        Ok(())
    }

    fn recv_datagram(&mut self) -> Option<ReceivedDatagram> {
        None
    }
}

fn cell() -> ConnectionCell {
    let limits = Limits {
        outbox_bytes_max: 1,
        inbox_bytes_max: 1,
        message_len_max: 1000,
        compact_below: 0,
        is_listening: false,
        accepts_early: false,
    };
    let common = Arc::new(Common::new(1));
    let shared = QuicShared::new(Waker::noop().clone(), Vec::new(), limits, common, 0);
    let remote = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    ConnectionCell::new(Arc::new(shared), remote, Side::Client)
}

fn taken(cell: &ConnectionCell) -> Vec<Bytes> {
    std::iter::from_fn(|| cell.lock().take_message()).map(|(message, _)| message).collect()
}

#[test]
fn streams_without_data_do_not_block_other_messages() {
    let (cell, mut peer, mut incoming) = (cell(), Peer::default(), IncomingMessages::new(1000));
    for index in 0..10 * PARTIAL_MESSAGES_MAX as u64 {
        peer.open(index);
    }
    let last = peer.open(10_000);
    peer.send(last, b"whole");
    peer.end(last);
    incoming.on_opened(Instant::ZERO, &mut peer, &cell);
    assert_eq!(taken(&cell), [Bytes::from_static(b"whole")]);
}

#[test]
fn the_number_of_partial_messages_is_limited_and_deferred_messages_follow() {
    let (cell, mut peer, mut incoming) = (cell(), Peer::default(), IncomingMessages::new(1000));
    let ids: Vec<StreamId> = (0..3 * PARTIAL_MESSAGES_MAX as u64).map(|index| peer.open(index)).collect();
    incoming.on_opened(Instant::ZERO, &mut peer, &cell);
    // In reverse order of the stream IDs.
    for id in ids.iter().rev() {
        peer.send(*id, b"be");
        incoming.on_readable(Instant::ZERO, *id, &mut peer, &cell);
    }
    let begun = |incoming: &IncomingMessages| incoming.receiving.values().filter(|partial| partial.len > 0).count();
    assert_eq!((begun(&incoming), incoming.deferred.len()), (PARTIAL_MESSAGES_MAX, 2 * PARTIAL_MESSAGES_MAX));
    // Another call keeps to the limit.
    incoming.serve(Instant::ZERO, &mut peer, &cell, false);
    assert_eq!((begun(&incoming), incoming.partial_count), (PARTIAL_MESSAGES_MAX, PARTIAL_MESSAGES_MAX));
    let mut arrived = 0;
    for id in ids.iter().rev() {
        peer.send(*id, b"gun");
        peer.end(*id);
        incoming.on_readable(Instant::ZERO, *id, &mut peer, &cell);
        assert!(begun(&incoming) <= PARTIAL_MESSAGES_MAX && incoming.partial_count == begun(&incoming));
        for message in taken(&cell) {
            assert_eq!(message, "begun");
            arrived += 1;
        }
    }
    assert_eq!((arrived, incoming.receiving.len(), incoming.partial_count), (ids.len(), 0, 0));
    assert!(incoming.deferred.is_empty());
}

#[test]
fn accepting_a_stream_does_not_read_the_other_streams() {
    let (cell, mut peer, mut incoming) = (cell(), Peer::default(), IncomingMessages::new(1000));
    for index in 0..1_000 {
        peer.open(index);
        incoming.on_opened(Instant::ZERO, &mut peer, &cell);
    }
    assert_eq!(peer.reads, 1_000);
}
