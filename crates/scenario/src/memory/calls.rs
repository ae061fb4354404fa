//! What an application has of its connection under `inline`: a call that asks for something does a turn of the host before it returns,
//! as the engine's calls do there (`engine/src/inline.rs`).

use bytes::Bytes;
use quic::{Chunk, Dir, ReadError, StreamId, WriteError};
use units::Instant;

use super::cells::Handles;
use super::run::Run;
use super::turns::Tails;
use crate::apps::{App, Streams};
use crate::recorder::Recorder;

/// The connection of one host, with everything that a turn needs.
struct Calls<'a> {
    run: &'a mut Run,
    host: usize,
}

impl Run {
    /// Lets the application of a host do what it can, in calls that do turns.
    pub(super) fn pump_inline(&mut self, host: usize) {
        if self.nodes[host].connection.is_none() {
            return;
        }
        // Turns within calls have nothing to do with either.
        let mut app = std::mem::replace(&mut self.apps[host], App::nobody());
        let mut recorder = std::mem::replace(&mut self.recorder, Recorder::of_nothing());
        while let Some(event) = self.cells[host].pop_news() {
            app.on_event(self.now, &event, &mut Calls { run: self, host }, &mut recorder);
        }
        let now = self.now;
        app.pump(now, &mut Calls { run: self, host }, &mut recorder);
        (self.apps[host], self.recorder) = (app, recorder);
    }
}

impl Calls<'_> {
    fn turn(&mut self, tails: Tails) {
        self.run.is_owed_turn[self.host] = self.run.turn(self.host, tails);
    }

    /// Does what the application calls for, and a turn if the host has something to serve that it had not before.
    fn call<T>(&mut self, tails: Tails, call: impl FnOnce(&mut Handles<'_>) -> T) -> T {
        let host = self.host;
        let had_changed = self.run.cells[host].has_changed();
        let connection = self.run.nodes[host].connection.as_mut().expect("it had one when the application began");
        let result = call(&mut self.run.cells[host].over(connection));
        if self.run.cells[host].has_changed() && !had_changed {
            self.turn(tails);
        }
        result
    }
}

impl Streams for Calls<'_> {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let id = self.call(Tails::Sent, |handles| handles.open(dir));
        if id.is_some() {
            // Whoever takes a stream asks for the next.
            self.turn(Tails::Sent);
        }
        id
    }

    fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.call(Tails::Sent, |handles| handles.accept(dir))
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        self.call(Tails::Sent, |handles| handles.set_priority(id, priority));
        self.turn(Tails::Sent);
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        // More is to be expected, and what fills no batch waits for it.
        self.call(Tails::Held, |handles| handles.write(id, data))
    }

    fn finish(&mut self, id: StreamId) {
        self.call(Tails::Sent, |handles| handles.finish(id));
    }

    fn is_taken(&mut self, id: StreamId) -> bool {
        self.call(Tails::Sent, |handles| handles.is_taken(id))
    }

    fn read(&mut self, now: Instant, id: StreamId) -> Result<Chunk, ReadError> {
        self.call(Tails::Sent, |handles| handles.read(now, id))
    }
}
