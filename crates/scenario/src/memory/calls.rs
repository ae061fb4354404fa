//! The connection handles under `inline`: a call that makes a request runs a turn of the host
//! before it returns, as in the engine (`engine/src/inline.rs`).

use bytes::Bytes;
use quic::{Chunk, Dir, ReadError, StreamId, WriteError};
use units::Instant;

use super::cells::Handles;
use super::run::Run;
use super::turns::Flush;
use crate::apps::{App, Streams};
use crate::measurements::Measurements;

/// The connection of one host, with the run that a turn needs.
struct Calls<'a> {
    run: &'a mut Run,
    host: usize,
}

impl Run {
    /// Runs a host's application with calls that run turns.
    pub(super) fn pump_inline(&mut self, host: usize) {
        if self.nodes[host].connection.is_none() {
            return;
        }
        // Turns within calls use neither.
        let mut app = std::mem::replace(&mut self.apps[host], App::placeholder());
        let mut measurements = std::mem::replace(&mut self.measurements, Measurements::empty());
        while let Some(event) = self.cells[host].pop_event() {
            app.on_event(self.now, &event, &mut Calls { run: self, host }, &mut measurements);
        }
        let now = self.now;
        app.pump(now, &mut Calls { run: self, host }, &mut measurements);
        (self.apps[host], self.measurements) = (app, measurements);
    }
}

impl Calls<'_> {
    fn turn(&mut self, flush: Flush) {
        self.run.is_owed_turn[self.host] = self.run.turn(self.host, flush);
    }

    /// Makes a call, then runs a turn if the call added a change for the host to serve.
    fn call<T>(&mut self, flush: Flush, call: impl FnOnce(&mut Handles<'_>) -> T) -> T {
        let host = self.host;
        let had_changed = self.run.cells[host].has_changed();
        let connection = self.run.nodes[host].connection.as_mut().expect("it had one when the application began");
        let result = call(&mut self.run.cells[host].handles(connection));
        if self.run.cells[host].has_changed() && !had_changed {
            self.turn(flush);
        }
        result
    }
}

impl Streams for Calls<'_> {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let id = self.call(Flush::Now, |handles| handles.open(dir));
        if id.is_some() {
            // The engine requests another stream when one is taken.
            self.turn(Flush::Now);
        }
        id
    }

    fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.call(Flush::Now, |handles| handles.accept(dir))
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        self.call(Flush::Now, |handles| handles.set_priority(id, priority));
        self.turn(Flush::Now);
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        // More writes usually follow, so a partial batch is corked.
        self.call(Flush::Cork, |handles| handles.write(id, data))
    }

    fn finish(&mut self, id: StreamId) {
        self.call(Flush::Now, |handles| handles.finish(id));
    }

    fn is_taken(&mut self, id: StreamId) -> bool {
        self.call(Flush::Now, |handles| handles.is_taken(id))
    }

    fn read(&mut self, now: Instant, id: StreamId) -> Result<Chunk, ReadError> {
        self.call(Flush::Now, |handles| handles.read(now, id))
    }
}
