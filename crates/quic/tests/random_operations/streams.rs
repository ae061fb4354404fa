//! Operations on streams, and what both ends know of each.

use quic::{Chunk, Connection, Dir, ReadError, Side, StreamId, WriteError};

use super::{CODE, Run, index, magnitude, node};
use crate::support::apps;

/// One direction of one stream, as seen by its sender and its receiver.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) written: u64,
    pub(super) finished: bool,
    pub(super) reset: bool,
    /// The writer was notified that the peer stopped reading.
    pub(super) stopped_told: bool,
    pub(super) read: u64,
    pub(super) ended: bool,
    pub(super) reset_read: bool,
    pub(super) stopped: bool,
}

impl Flow {
    pub(super) fn is_over(&self) -> bool {
        self.ended || self.reset_read || self.stopped
    }

    pub(super) fn may_write(&self) -> bool {
        !self.finished && !self.reset && !self.stopped_told
    }
}

impl Run {
    /// Picks a flow on which `side` sends.
    pub(super) fn pick_flow(&mut self, side: Side) -> Option<StreamId> {
        let ids: Vec<StreamId> = self
            .flows
            .iter()
            .filter(|((sender, _), flow)| *sender == side && flow.may_write())
            .map(|((_, id), _)| *id)
            .collect();
        (!ids.is_empty()).then(|| ids[self.rng.below(ids.len() as u64) as usize])
    }

    pub(super) fn open(&mut self, side: Side) {
        let dir = if self.rng.below(3) == 0 { Dir::Bi } else { Dir::Uni };
        let Some(id) = node(&mut self.pair, side).connection(0).open(dir) else { return };
        self.flows.insert((side, id), Flow::default());
        if dir == Dir::Bi {
            self.flows.insert((side.peer(), id), Flow::default());
            self.readable[index(side)].push(id);
        }
    }

    /// Streams are readable, and bidirectional ones writable, by the side that has accepted them.
    pub(super) fn accept(&mut self, side: Side) {
        for dir in Dir::ALL {
            while let Some(id) = node(&mut self.pair, side).connection(0).accept(dir) {
                assert_eq!(id.initiator(), side.peer());
                self.readable[index(side)].push(id);
            }
        }
    }

    /// True if `side` can use the sending part of `id`: a peer's stream only once it is accepted.
    pub(super) fn has_accepted(&self, side: Side, id: StreamId) -> bool {
        id.initiator() == side || self.readable[index(side)].contains(&id)
    }

    pub(super) fn write(&mut self, side: Side) {
        let Some(id) = self.pick_flow(side).filter(|id| self.has_accepted(side, *id)) else { return };
        let len = magnitude(&mut self.rng, 400_000);
        let flow = self.flows.get_mut(&(side, id)).expect("the flow exists");
        let chunk: Vec<u8> = (flow.written..flow.written + len).map(|at| apps::pattern_byte(id, at)).collect();
        match node(&mut self.pair, side).connection(0).write(id, chunk.into()) {
            Ok(()) => flow.written += len,
            Err(WriteError::Blocked) => {}
            Err(WriteError::Stopped(code)) => {
                assert_eq!(code, CODE);
                assert!(self.flows[&(side, id)].stopped, "{id}: no STOP_SENDING was sent");
                self.flows.get_mut(&(side, id)).expect("the flow exists").stopped_told = true;
            }
            Err(WriteError::Closed) => {
                // The reset after STOP_SENDING was acknowledged: the stream no longer exists.
                assert!(flow.stopped, "{side} {id} is closed: {flow:?}");
                flow.stopped_told = true;
            }
            Err(error) => panic!("{id}: {error}"),
        }
    }

    pub(super) fn finish(&mut self, side: Side, id: StreamId) {
        if !self.has_accepted(side, id) {
            return;
        }
        let flow = self.flows.get_mut(&(side, id)).expect("the flow exists");
        match node(&mut self.pair, side).connection(0).finish(id) {
            Ok(()) => flow.finished = true,
            Err(error) => {
                assert!(flow.stopped, "{side} {id}: {error}: {flow:?}");
                flow.stopped_told = true;
            }
        }
    }

    pub(super) fn reset(&mut self, side: Side) {
        // Finished ones too.
        let ids: Vec<StreamId> = self.flows.keys().filter(|(sender, _)| *sender == side).map(|(_, id)| *id).collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.rng.below(ids.len() as u64) as usize];
        if self.has_accepted(side, id) && node(&mut self.pair, side).connection(0).reset(id, CODE).is_ok() {
            self.flows.get_mut(&(side, id)).expect("the flow exists").reset = true;
        }
    }

    pub(super) fn stop(&mut self, side: Side) {
        let ids = &self.readable[index(side)];
        if ids.is_empty() {
            return;
        }
        let id = ids[self.rng.below(ids.len() as u64) as usize];
        let now = self.pair.now;
        if node(&mut self.pair, side).connection(0).stop(now, id, CODE).is_ok() {
            let flow = self.flows.get_mut(&(side.peer(), id)).expect("readable streams have a sender");
            assert!(!flow.is_over(), "{side} {id}: {flow:?}");
            flow.stopped = true;
        }
    }

    pub(super) fn read_all(&mut self, side: Side) {
        self.accept(side);
        for id in self.readable[index(side)].clone() {
            self.read(side, id, u64::MAX);
        }
        while node(&mut self.pair, side).connection(0).recv_datagram().is_some() {
            self.datagrams_read[index(side)] += 1;
        }
    }

    pub(super) fn read(&mut self, side: Side, id: StreamId, mut budget: u64) {
        let now = self.pair.now;
        let flow = self.flows.get_mut(&(side.peer(), id)).expect("readable streams have a sender");
        let connection: &mut Connection = node(&mut self.pair, side).connection(0);
        while budget > 0 && !flow.is_over() {
            match connection.read(now, id, budget.min(1 << 20) as usize) {
                Ok(Chunk::Bytes(bytes)) => {
                    assert!(!bytes.is_empty() && bytes.len() as u64 <= budget);
                    for byte in bytes.iter() {
                        assert_eq!(*byte, apps::pattern_byte(id, flow.read), "{id} at {}", flow.read);
                        flow.read += 1;
                    }
                    assert!(flow.read <= flow.written, "{id}: {flow:?}");
                    budget -= bytes.len() as u64;
                }
                Ok(Chunk::End) => {
                    assert!(flow.finished && flow.read == flow.written, "{id} ended early: {flow:?}");
                    flow.ended = true;
                }
                Err(ReadError::Reset(code)) => {
                    assert!(code == CODE && flow.reset, "{id} was never reset: {flow:?}");
                    flow.reset_read = true;
                }
                Err(ReadError::Blocked) => return,
                Err(error) => panic!("{id}: {error}: {flow:?}"),
            }
        }
    }
}
