use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::Clock;
use quic::Side;

use super::*;
use crate::shared::{Common, Limits, Shared};

/// A peer whose streams are opened and read as the test says.
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

impl Source for Peer {
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

    fn recv_datagram(&mut self) -> Option<Bytes> {
        None
    }
}

fn cell() -> ConnectionCell {
    let (_poll, waker) = crate::wake::poll_and_waker(mio::Token(0)).expect("a poll");
    let limits = Limits { outbox_bytes_max: 1, inbox_bytes_max: 1, message_len_max: 1000, is_listening: false };
    let common = Arc::new(Common::new(1));
    let shared = Shared::new(Clock::start(), Arc::new(waker), Vec::new(), limits, false, common, 0);
    let remote = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    ConnectionCell::new(Arc::new(shared), remote, Side::Client)
}

fn taken(cell: &ConnectionCell) -> Vec<Bytes> {
    std::iter::from_fn(|| cell.lock().take_message()).map(|(message, _)| message).collect()
}

#[test]
fn streams_of_which_nothing_has_come_keep_no_message_out() {
    let (cell, mut peer, mut incoming) = (cell(), Peer::default(), Incoming::new(1000));
    for index in 0..10 * ASSEMBLIES_MAX as u64 {
        peer.open(index);
    }
    let last = peer.open(10_000);
    peer.send(last, b"whole");
    peer.end(last);
    incoming.on_opened(Instant::ZERO, &mut peer, &cell);
    assert_eq!(taken(&cell), [Bytes::from_static(b"whole")]);
}

#[test]
fn no_more_messages_are_put_together_than_the_bound_and_the_others_have_their_turn() {
    let (cell, mut peer, mut incoming) = (cell(), Peer::default(), Incoming::new(1000));
    let ids: Vec<StreamId> = (0..3 * ASSEMBLIES_MAX as u64).map(|index| peer.open(index)).collect();
    incoming.on_opened(Instant::ZERO, &mut peer, &cell);
    // Those that came last begin first.
    for id in ids.iter().rev() {
        peer.send(*id, b"be");
        incoming.on_readable(Instant::ZERO, *id, &mut peer, &cell);
    }
    let begun = |incoming: &Incoming| incoming.receiving.values().filter(|assembly| assembly.len > 0).count();
    assert_eq!((begun(&incoming), incoming.deferred.len()), (ASSEMBLIES_MAX, 2 * ASSEMBLIES_MAX));
    // Served anew, it heeds the bound.
    incoming.serve(Instant::ZERO, &mut peer, &cell, false);
    assert_eq!((begun(&incoming), incoming.partial_count), (ASSEMBLIES_MAX, ASSEMBLIES_MAX));
    let mut arrived = 0;
    for id in ids.iter().rev() {
        peer.send(*id, b"gun");
        peer.end(*id);
        incoming.on_readable(Instant::ZERO, *id, &mut peer, &cell);
        assert!(begun(&incoming) <= ASSEMBLIES_MAX && incoming.partial_count == begun(&incoming));
        for message in taken(&cell) {
            assert_eq!(message, "begun");
            arrived += 1;
        }
    }
    assert_eq!((arrived, incoming.receiving.len(), incoming.partial_count), (ids.len(), 0, 0));
    assert!(incoming.deferred.is_empty());
}

#[test]
fn a_stream_that_opens_costs_no_look_at_those_that_wait() {
    let (cell, mut peer, mut incoming) = (cell(), Peer::default(), Incoming::new(1000));
    for index in 0..1_000 {
        peer.open(index);
        incoming.on_opened(Instant::ZERO, &mut peer, &cell);
    }
    assert_eq!(peer.reads, 1_000);
}
