//! The applications at both ends of a connection, sans-I/O: they write, read and check the workload
//! of the scenario.
//!
//! The sending host opens all streams. Each item has its own stream and names itself in a header
//! ([`crate::content`]), so the receiving host needs only the scenario. All worlds use these
//! applications, so that all do the same work.

pub mod handles;
mod reader;
mod schedule;
mod streams;
mod writer;

use std::collections::BTreeMap;

use quic::{Dir, Event, StreamId};
use units::{Instant, Rng};

use crate::content::ItemName;
use crate::measurements::Measurements;
use crate::model::{Scenario, Work};
use crate::world::PayloadMode;
use reader::{Read, Reader};
use schedule::Items;
use writer::{Writer, Written};

pub use streams::Streams;

/// The application of one host. The owner of the connection calls [`App::on_event`] for each event:
/// the application reads what has arrived and continues its writes. Afterwards, and at
/// [`App::timeout`], the owner calls [`App::pump`]: the application begins due items and answers
/// requests.
#[derive(Debug)]
pub struct App {
    /// The items that this host begins: all parts at the sending host, none at the receiving host.
    items: Vec<Items>,
    works: Vec<(Work, i32)>,
    writers: BTreeMap<StreamId, Writer>,
    readers: BTreeMap<StreamId, Reader>,
    /// Complete requests that are not answered yet; bounded by the streams that the peer may open.
    unanswered: Vec<(StreamId, ItemName)>,
    /// False after a failed attempt to open a stream, until the peer allows more.
    may_open: bool,
    payload_mode: PayloadMode,
}

impl App {
    /// Creates the application of the sending host.
    pub fn sending(scenario: &Scenario, rng: &Rng) -> Self {
        let items = scenario.parts.iter().enumerate().map(|(index, part)| Items::new(index, part, rng)).collect();
        Self { items, ..Self::receiving(scenario) }
    }

    /// Creates the application of the receiving host.
    pub fn receiving(scenario: &Scenario) -> Self {
        Self {
            items: Vec::new(),
            works: scenario.parts.iter().map(|part| (part.work.clone(), part.priority)).collect(),
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            unanswered: Vec::new(),
            may_open: true,
            payload_mode: PayloadMode::Bytes,
        }
    }

    /// Sets whether payload is generated and checked; the default is [`PayloadMode::Bytes`]. Both
    /// ends must use the same mode.
    #[must_use]
    pub fn with_payload_mode(self, payload_mode: PayloadMode) -> Self {
        Self { payload_mode, ..self }
    }

    /// Records that the connection is established.
    pub fn on_connected(&mut self, now: Instant) {
        for items in &mut self.items {
            items.on_connected(now);
        }
    }

    /// Returns when to call [`App::pump`] next without an event.
    pub fn timeout(&self) -> Option<Instant> {
        self.items.iter().filter_map(Items::timeout).min()
    }

    /// Answers complete requests, and begins due items.
    pub fn pump(&mut self, now: Instant, connection: &mut dyn Streams, measurements: &mut Measurements) {
        for (id, name) in std::mem::take(&mut self.unanswered) {
            self.answer(id, name, connection, measurements);
        }
        for index in 0..self.items.len() {
            self.items[index].pump(now, measurements);
            while self.may_open && self.items[index].has_next() {
                self.open_next(index, connection, measurements);
            }
        }
    }

    fn open_next(&mut self, index: usize, connection: &mut dyn Streams, measurements: &mut Measurements) {
        let (work, priority) = &self.works[index];
        let asks = matches!(work, Work::RequestResponse { .. });
        let Some(id) = connection.open(if asks { Dir::Bi } else { Dir::Uni }) else {
            self.may_open = false;
            return;
        };
        let item = self.items[index].take_next();
        let name = ItemName { part: index as u16, is_answer: false, item };
        let writer = Writer::new(name, work.item_len(item), *priority, self.payload_mode);
        if asks {
            self.readers.insert(id, Reader::new(self.payload_mode));
        }
        self.write(id, writer, connection, measurements);
    }

    fn write(
        &mut self,
        id: StreamId,
        mut writer: Writer,
        connection: &mut dyn Streams,
        measurements: &mut Measurements,
    ) {
        match writer.pump(id, connection, measurements) {
            Written::Done => {
                let name = writer.name();
                if let Some(items) = self.items.get_mut(usize::from(name.part)).filter(|_| !name.is_answer) {
                    items.on_written();
                }
            }
            Written::Blocked => {
                self.writers.insert(id, writer);
            }
        }
    }

    /// Handles an event of the connection.
    pub fn on_event(
        &mut self,
        now: Instant,
        event: &Event,
        connection: &mut dyn Streams,
        measurements: &mut Measurements,
    ) {
        match event {
            Event::StreamsAvailable(_) => self.may_open = true,
            Event::Writable(id) => {
                if let Some(writer) = self.writers.remove(id) {
                    self.write(*id, writer, connection, measurements);
                }
            }
            Event::Opened(dir) => {
                while let Some(id) = connection.accept(*dir) {
                    self.readers.insert(id, Reader::new(self.payload_mode));
                    self.read(now, id, connection, measurements);
                }
            }
            Event::Readable(id) => self.read(now, *id, connection, measurements),
            _ => {}
        }
    }

    fn read(&mut self, now: Instant, id: StreamId, connection: &mut dyn Streams, measurements: &mut Measurements) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        match reader.pump(now, id, connection, measurements) {
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

    /// Writes the response to a complete request.
    fn answer(&mut self, id: StreamId, name: ItemName, connection: &mut dyn Streams, measurements: &mut Measurements) {
        let Some((Work::RequestResponse { response, .. }, priority)) = self.works.get(usize::from(name.part)) else {
            return;
        };
        if name.is_answer || !self.items.is_empty() {
            return;
        }
        let writer = Writer::new(ItemName { is_answer: true, ..name }, Some(*response), *priority, self.payload_mode);
        self.write(id, writer, connection, measurements);
    }
}
