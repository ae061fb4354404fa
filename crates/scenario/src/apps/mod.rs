//! The applications at both ends of a connection, without IO: they write, read and check what the scenario says.
//!
//! The sending host opens all streams. Everything that travels has a stream of its own and names itself
//! ([`crate::content`]), so the receiving host needs the scenario and nothing else. Used by every world, so that all do the
//! same work.

mod due;
mod reader;
mod streams;
mod writer;

use std::collections::BTreeMap;

use quic::{Dir, Event, StreamId};
use units::{Instant, Rng};

use crate::content::Name;
use crate::model::{Scenario, Work};
use crate::recorder::Recorder;
use crate::world::Stages;
use due::Items;
use reader::{Read, Reader};
use writer::{Writer, Written};

pub use streams::Streams;

/// The application of one host. Whoever owns the connection tells it what happens there ([`App::on_event`]): it takes what has
/// arrived and goes on with what it writes, as the engine does by itself out of what the application left there. And it calls
/// [`App::pump`] after that and at [`App::timeout`]: then the application does what only itself can, it begins and it answers.
#[derive(Debug)]
pub struct App {
    /// What this host begins: all parts at the sending host, none at the other.
    items: Vec<Items>,
    works: Vec<(Work, i32)>,
    writers: BTreeMap<StreamId, Writer>,
    readers: BTreeMap<StreamId, Reader>,
    /// Requests that have arrived whole and were not answered: bounded by the streams that the peer may open.
    unanswered: Vec<(StreamId, Name)>,
    /// The peer may allow more streams.
    may_open: bool,
    stages: Stages,
}

impl App {
    /// The application of the sending host.
    pub fn sending(scenario: &Scenario, rng: &Rng) -> Self {
        let items = scenario.parts.iter().enumerate().map(|(index, part)| Items::new(index, part, rng)).collect();
        Self { items, ..Self::receiving(scenario) }
    }

    /// The application of the other one.
    pub fn receiving(scenario: &Scenario) -> Self {
        Self {
            items: Vec::new(),
            works: scenario.parts.iter().map(|part| (part.work.clone(), part.priority)).collect(),
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            unanswered: Vec::new(),
            may_open: true,
            stages: Stages::Bytes,
        }
    }

    /// One that begins nothing and answers nothing.
    pub(crate) fn nobody() -> Self {
        Self {
            items: Vec::new(),
            works: Vec::new(),
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            unanswered: Vec::new(),
            may_open: false,
            stages: Stages::Lengths,
        }
    }

    /// Whether payload is made and checked; it is unless told otherwise. Both ends must do the same.
    #[must_use]
    pub fn with_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }

    /// The connection can be used from now on.
    pub fn on_connected(&mut self, now: Instant) {
        for items in &mut self.items {
            items.on_connected(now);
        }
    }

    /// When [`App::pump`] has something to do without an event before.
    pub fn timeout(&self) -> Option<Instant> {
        self.items.iter().filter_map(Items::timeout).min()
    }

    /// Answers what was asked, and begins what is due.
    pub fn pump(&mut self, now: Instant, connection: &mut dyn Streams, recorder: &mut Recorder) {
        for (id, name) in std::mem::take(&mut self.unanswered) {
            self.answer(id, name, connection, recorder);
        }
        for index in 0..self.items.len() {
            self.items[index].pump(now, recorder);
            while self.may_open && self.items[index].has_next() {
                self.open_next(index, connection, recorder);
            }
        }
    }

    fn open_next(&mut self, index: usize, connection: &mut dyn Streams, recorder: &mut Recorder) {
        let (work, priority) = &self.works[index];
        let asks = matches!(work, Work::RequestResponse { .. });
        let Some(id) = connection.open(if asks { Dir::Bi } else { Dir::Uni }) else {
            self.may_open = false;
            return;
        };
        let item = self.items[index].take_next();
        let name = Name { part: index as u16, is_answer: false, item };
        let writer = Writer::new(name, work.item_len(item), *priority, self.stages);
        if asks {
            self.readers.insert(id, Reader::new(self.stages));
        }
        self.write(id, writer, connection, recorder);
    }

    fn write(&mut self, id: StreamId, mut writer: Writer, connection: &mut dyn Streams, recorder: &mut Recorder) {
        match writer.pump(id, connection, recorder) {
            Written::All => {
                let name = writer.name();
                if let Some(items) = self.items.get_mut(usize::from(name.part)).filter(|_| !name.is_answer) {
                    items.on_written();
                }
            }
            Written::Part => {
                self.writers.insert(id, writer);
            }
        }
    }

    /// Reacts to what the connection says.
    pub fn on_event(&mut self, now: Instant, event: &Event, connection: &mut dyn Streams, recorder: &mut Recorder) {
        match event {
            Event::StreamsAvailable(_) => self.may_open = true,
            Event::Writable(id) => {
                if let Some(writer) = self.writers.remove(id) {
                    self.write(*id, writer, connection, recorder);
                }
            }
            Event::Opened(dir) => {
                while let Some(id) = connection.accept(*dir) {
                    self.readers.insert(id, Reader::new(self.stages));
                    self.read(now, id, connection, recorder);
                }
            }
            Event::Readable(id) => self.read(now, *id, connection, recorder),
            _ => {}
        }
    }

    fn read(&mut self, now: Instant, id: StreamId, connection: &mut dyn Streams, recorder: &mut Recorder) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        match reader.pump(now, id, connection, recorder) {
            Read::Blocked => {}
            Read::Foreign => {
                self.readers.remove(&id);
            }
            Read::End(name) => {
                self.readers.remove(&id);
                self.unanswered.push((id, name));
            }
        }
    }

    /// What a whole request deserves.
    fn answer(&mut self, id: StreamId, name: Name, connection: &mut dyn Streams, recorder: &mut Recorder) {
        let Some((Work::RequestResponse { response, .. }, priority)) = self.works.get(usize::from(name.part)) else {
            return;
        };
        if name.is_answer || !self.items.is_empty() {
            return;
        }
        let writer = Writer::new(Name { is_answer: true, ..name }, Some(*response), *priority, self.stages);
        self.write(id, writer, connection, recorder);
    }
}
