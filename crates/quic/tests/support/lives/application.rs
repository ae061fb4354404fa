//! An application of requests and responses that survives the end of connections and the restart
//! of either host, as a careful program would.
//!
//! Each request is a bidirectional stream: the number of the request, the lengths of both
//! directions, and the request's content. The server checks it and responds once it has ended. A
//! client whose connection ended asks again on the next one for everything that it has not read in
//! full.

use std::collections::BTreeMap;

use bytes::Bytes;
use quic::{Chunk, Connection, Dir, ReadError, StreamId, WriteError};
use units::Instant;

/// Bytes before the content of a request: its number, its length and that of the response.
const HEADER_LEN: u64 = 24;

/// Bytes written at a time.
const CHUNK_LEN: u64 = 8 * 1024;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) up_len: u64,
    pub(super) down_len: u64,
}

impl Request {
    fn header(&self, number: u64) -> Vec<u8> {
        [number, self.up_len, self.down_len].into_iter().flat_map(u64::to_be_bytes).collect()
    }
}

/// Byte `at` of the content of a request, or of its response.
fn content(number: u64, is_response: bool, at: u64) -> u8 {
    let mixed = (at / 5).wrapping_mul(0x9e37_79b9).wrapping_add(2 * number + u64::from(is_response)) ^ at;
    (mixed ^ (mixed >> 13)) as u8
}

/// One direction of a stream that is written: a header, content and the end.
#[derive(Debug)]
struct Writing {
    header: Vec<u8>,
    number: u64,
    is_response: bool,
    /// Of header and content.
    len: u64,
    written: u64,
    ended: bool,
}

impl Writing {
    fn byte(&self, at: u64) -> u8 {
        let header_len = self.header.len() as u64;
        if at < header_len { self.header[at as usize] } else { content(self.number, self.is_response, at - header_len) }
    }

    /// Writes until blocked.
    fn pump(&mut self, connection: &mut Connection, id: StreamId) {
        while self.written < self.len {
            let end = self.len.min(self.written + CHUNK_LEN);
            let mut chunk: Bytes = (self.written..end).map(|at| self.byte(at)).collect();
            let len = chunk.len() as u64;
            let result = connection.write_some(id, &mut chunk);
            self.written += len - chunk.len() as u64;
            match result {
                Ok(()) => {}
                Err(WriteError::Blocked) => return,
                Err(error) => panic!("{id}: {error}: {self:?}"),
            }
        }
        if !self.ended {
            connection.finish(id).unwrap_or_else(|error| panic!("{id}: {error}: {self:?}"));
            self.ended = true;
        }
    }
}

/// One direction of a stream that is read and checked.
#[derive(Debug)]
struct Reading {
    header: Vec<u8>,
    header_len: u64,
    number: u64,
    is_response: bool,
    read: u64,
    ended: bool,
}

impl Reading {
    fn new(header_len: u64, number: u64, is_response: bool) -> Self {
        Self { header: Vec::new(), header_len, number, is_response, read: 0, ended: false }
    }

    /// Reads what is there. The content must be as sent.
    fn pump(&mut self, connection: &mut Connection, now: Instant, id: StreamId) {
        while !self.ended {
            match connection.read(now, id, 1 << 16) {
                Ok(Chunk::Bytes(bytes)) => bytes.iter().for_each(|byte| self.take(id, *byte)),
                Ok(Chunk::End) => self.ended = true,
                Err(ReadError::Blocked) => return,
                Err(error) => panic!("{id}: {error}: {self:?}"),
            }
        }
    }

    fn take(&mut self, id: StreamId, byte: u8) {
        if (self.header.len() as u64) < self.header_len {
            self.header.push(byte);
            if self.header.len() as u64 == self.header_len {
                self.number = self.field(0);
            }
            return;
        }
        assert_eq!(byte, content(self.number, self.is_response, self.read), "{id} at {}: {self:?}", self.read);
        self.read += 1;
    }

    fn field(&self, index: usize) -> u64 {
        let bytes = self.header[8 * index..].first_chunk().expect("the header has arrived");
        u64::from_be_bytes(*bytes)
    }
}

/// The client's side: all requests, and the streams of the present connection.
#[derive(Debug, Default)]
pub(super) struct Client {
    requests: Vec<Request>,
    is_answered: Vec<bool>,
    streams: BTreeMap<u64, (StreamId, Writing, Reading)>,
    pub(super) bytes_read: u64,
}

impl Client {
    pub(super) fn ask(&mut self, request: Request) {
        self.requests.push(request);
        self.is_answered.push(false);
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn request(&self, number: u64) -> Request {
        self.requests[number as usize]
    }

    /// What was under way on the last connection begins anew.
    pub(super) fn forget_streams(&mut self) {
        self.streams.clear();
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_answered.iter().all(|is_answered| *is_answered)
    }

    pub(super) fn pump(&mut self, connection: &mut Connection, now: Instant) {
        for number in 0..self.requests.len() as u64 {
            if self.is_answered[number as usize] || self.streams.contains_key(&number) {
                continue;
            }
            let Some(id) = connection.open(Dir::Bi) else { break };
            let header = self.request(number).header(number);
            let len = HEADER_LEN + self.request(number).up_len;
            let writing = Writing { header, number, is_response: false, len, written: 0, ended: false };
            self.streams.insert(number, (id, writing, Reading::new(0, number, true)));
        }
        for (number, (id, writing, reading)) in &mut self.streams {
            writing.pump(connection, *id);
            reading.pump(connection, now, *id);
            if reading.ended {
                let request = self.requests[*number as usize];
                assert!(writing.ended, "a response comes after its request: {writing:?}");
                assert_eq!(reading.read, request.down_len, "{id} ended early: {reading:?}");
                self.is_answered[*number as usize] = true;
                self.bytes_read += reading.read;
            }
        }
        self.streams.retain(|_, (_, _, reading)| !reading.ended);
    }
}

/// The server's side of one connection.
#[derive(Debug, Default)]
pub(super) struct Server {
    streams: BTreeMap<StreamId, (Reading, Option<Writing>)>,
    pub(super) bytes_read: u64,
}

impl Server {
    pub(super) fn pump(&mut self, connection: &mut Connection, now: Instant, client: &Client) {
        while let Some(id) = connection.accept(Dir::Bi) {
            self.streams.insert(id, (Reading::new(HEADER_LEN, 0, false), None));
        }
        for (id, (reading, writing)) in &mut self.streams {
            reading.pump(connection, now, *id);
            if reading.ended && writing.is_none() {
                let request = client.request(reading.number);
                let asked = Request { up_len: reading.field(1), down_len: reading.field(2) };
                assert_eq!((asked, reading.read), (request, request.up_len), "{id} ended early: {reading:?}");
                self.bytes_read += reading.read;
                let (number, len) = (reading.number, request.down_len);
                *writing =
                    Some(Writing { header: Vec::new(), number, is_response: true, len, written: 0, ended: false });
            }
            if let Some(writing) = writing {
                writing.pump(connection, *id);
            }
        }
        self.streams.retain(|_, (_, writing)| writing.as_ref().is_none_or(|writing| !writing.ended));
    }
}
