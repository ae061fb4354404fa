//! Litz in either role, with the same steps and events as the peers' programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use litz::{Closed, ConnectOptions, Connection, Endpoint, PathEvent, RecvStream, SendStream, Stats, Version};
use serde_json::{Value, json};

use super::{hex, pattern};
use crate::pattern::CHUNK_LEN;

/// A migration takes this long at most; it needs a round trip on loopback.
const MOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// After an error of a stream, the connection is known to have ended within this time, if it has.
const END_WITHIN: Duration = Duration::from_secs(1);

type Failed = Box<dyn std::error::Error>;

/// An answer as it arrives.
struct Answer {
    bytes: u64,
    hash: digest::Context,
}

impl Answer {
    fn new() -> Self {
        Self { bytes: 0, hash: digest::Context::new(&digest::SHA256) }
    }

    /// Reads until the end, or until there are `limit` bytes.
    fn read(&mut self, recv: &mut RecvStream, limit: u64) -> Result<(), Failed> {
        while self.bytes < limit {
            let Some(chunk) = recv.read_chunk()? else { break };
            self.bytes += chunk.len() as u64;
            self.hash.update(&chunk);
        }
        Ok(())
    }
}

fn send_pattern(send: &mut SendStream, len: u64) -> Result<(), Failed> {
    let mut offset = 0;
    while offset < len {
        let chunk = (len - offset).min(CHUNK_LEN as u64) as usize;
        send.write_chunk(bytes::Bytes::from_static(pattern(offset, chunk)))?;
        offset += chunk as u64;
    }
    Ok(send.finish()?)
}

/// Litz as a client.
pub struct Client<'a> {
    /// With two sockets, for migrations.
    pub endpoint: &'a Endpoint,
    /// The server, or the relay before it.
    pub remote: SocketAddr,
    /// Kept for all connections, with its sessions.
    pub tls: Arc<rustls::ClientConfig>,
    /// The newest connection.
    pub connection: Option<Connection>,
    /// What the connections reported before they ended.
    pub stats: Vec<Stats>,
    /// What happened, as a peer prints it.
    pub lines: Vec<Value>,
}

impl Client<'_> {
    /// Takes the steps; `at_pause` is called for the step of that name. The end of the connection is
    /// an event, as for a peer.
    pub fn run(&mut self, steps: &[String], mut at_pause: impl FnMut() -> Result<(), String>) -> Result<(), String> {
        let outcome = self.connect().and_then(|()| {
            for step in steps {
                let (name, count) = step.split_once('=').unwrap_or((step, "0"));
                if name == "pause" {
                    at_pause()?;
                    continue;
                }
                self.step(name, count.parse()?)?;
            }
            Ok(())
        });
        // A stream may report the end a moment before its connection does.
        let has_failed = outcome.is_err();
        let connection = self.connection.as_ref().filter(|_| has_failed);
        let closed = connection.and_then(|connection| connection.closed_timeout(END_WITHIN));
        match (outcome, closed) {
            (Ok(()), _) => {
                self.close();
                Ok(())
            }
            (Err(_), Some(closed)) => {
                let kind = if closed == Closed::Reset { "reset" } else { "other" };
                self.lines.push(json!({ "event": "closed", "kind": kind, "text": closed.to_string() }));
                Ok(())
            }
            (Err(error), None) => Err(error.to_string()),
        }
    }

    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.stats.push(connection.stats());
            connection.close(0, "done");
        }
    }

    fn connect(&mut self) -> Result<(), Failed> {
        let connection = self.endpoint.connect(self.remote, "localhost", self.tls.clone())?;
        self.has_connected(&connection, false);
        self.connection = Some(connection);
        Ok(())
    }

    fn has_connected(&mut self, connection: &Connection, early: bool) {
        let session = connection.stats().session;
        let version = if session.version == Version::V2 { 2 } else { 1 };
        let resumed = session.is_resumed;
        self.lines.push(json!({ "event": "connected", "resumed": resumed, "early": early, "version": version }));
    }

    /// Connects again, and sends a request before the handshake is complete. A server that does not
    /// take it makes the stream fail.
    fn early(&mut self, count: u64) -> Result<(u64, String), Failed> {
        self.close();
        let connection =
            self.endpoint.connect_early(&ConnectOptions::default(), self.remote, "localhost", self.tls.clone())?;
        self.connection = Some(connection.clone());
        let (mut send, mut recv) = connection.open_bi_early()?;
        send.write_all(format!("GET {count}\n").as_bytes())?;
        send.finish()?;
        let mut answer = Answer::new();
        answer.read(&mut recv, u64::MAX)?;
        connection.connected()?;
        self.has_connected(&connection, true);
        Ok((answer.bytes, hex(answer.hash.finish().as_ref())))
    }

    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("it connects first")
    }

    fn step(&mut self, name: &str, count: u64) -> Result<(), Failed> {
        let begun = Instant::now();
        let (bytes, hash) = match name {
            "get" => self.get(count, None)?,
            "migrate" => self.get(count, Some(count / 4))?,
            "put" => self.put(count)?,
            "streams" => self.streams(count)?,
            "early" => self.early(count)?,
            // It asks the peers' clients. Their servers update by themselves, if they do.
            "key-update" => return Ok(()),
            "reconnect" => {
                self.close();
                return self.connect();
            }
            _ => return Err(format!("Litz has no step {name}").into()),
        };
        let seconds = begun.elapsed().as_secs_f64();
        // The answer to an early request is reported as any other one.
        let name = if name == "early" { "get" } else { name };
        self.lines.push(json!({ "event": name, "bytes": bytes, "sha256": hash, "seconds": seconds }));
        Ok(())
    }

    fn request(&self, line: &str) -> Result<RecvStream, Failed> {
        let (mut send, recv) = self.connection().open_bi()?;
        send.write_all(line.as_bytes())?;
        send.finish()?;
        Ok(recv)
    }

    fn get(&self, count: u64, move_at: Option<u64>) -> Result<(u64, String), Failed> {
        let (mut recv, mut answer) = (self.request(&format!("GET {count}\n"))?, Answer::new());
        if let Some(at) = move_at {
            answer.read(&mut recv, at)?;
            self.migrate()?;
        }
        answer.read(&mut recv, u64::MAX)?;
        Ok((answer.bytes, hex(answer.hash.finish().as_ref())))
    }

    fn migrate(&self) -> Result<(), Failed> {
        self.connection().migrate(1, self.remote)?;
        let deadline = Instant::now() + MOVE_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.connection().next_path_event_timeout(left)? {
                Some(PathEvent::Migrated { .. }) => return Ok(()),
                Some(PathEvent::MigrationRefused { error, .. }) => return Err(format!("not moved: {error}").into()),
                Some(_) => {}
                None => return Err(format!("not moved within {MOVE_TIMEOUT:?}").into()),
            }
        }
    }

    fn put(&self, count: u64) -> Result<(u64, String), Failed> {
        let (mut send, mut recv) = self.connection().open_bi()?;
        send.write_all(format!("PUT {count}\n").as_bytes())?;
        send_pattern(&mut send, count)?;
        let mut answer = String::new();
        recv.read_to_string(&mut answer)?;
        Ok((count, answer))
    }

    fn streams(&self, count: u64) -> Result<(u64, String), Failed> {
        let (mut total, mut hash) = (0, digest::Context::new(&digest::SHA256));
        let streams = (0..count).map(|_| self.request("GET 1000\n")).collect::<Result<Vec<_>, _>>()?;
        for mut recv in streams {
            let mut answer = Answer::new();
            answer.read(&mut recv, u64::MAX)?;
            total += answer.bytes;
            hash.update(answer.hash.finish().as_ref());
        }
        Ok((total, hex(hash.finish().as_ref())))
    }
}

/// Serves every connection of `endpoint` until that is closed, and keeps the connections.
pub fn serve(endpoint: &Endpoint, connections: &Mutex<Vec<Connection>>) {
    std::thread::scope(|scope| {
        while let Ok(connection) = endpoint.accept() {
            connections.lock().expect("no thread panics").push(connection.clone());
            scope.spawn(move || {
                std::thread::scope(|scope| {
                    while let Ok((send, recv)) = connection.accept_bi() {
                        // A stream that fails is the client's loss: it reports it.
                        scope.spawn(move || answer(send, recv).is_ok());
                    }
                });
            });
        }
    });
}

fn answer(mut send: SendStream, recv: RecvStream) -> Result<(), Failed> {
    let mut recv = BufReader::with_capacity(CHUNK_LEN, recv);
    let mut line = String::new();
    recv.by_ref().take(64).read_line(&mut line)?;
    match line.trim_end().split_once(' ') {
        Some(("GET", count)) => {
            // Dropped before its end, the stream would ask the client to stop sending.
            recv.read_to_end(&mut Vec::new())?;
            send_pattern(&mut send, count.parse()?)
        }
        Some(("PUT", _)) => {
            let mut hash = digest::Context::new(&digest::SHA256);
            hash.update(recv.buffer());
            let mut rest = Answer { bytes: 0, hash };
            rest.read(&mut recv.into_inner(), u64::MAX)?;
            send.write_all(hex(rest.hash.finish().as_ref()).as_bytes())?;
            Ok(send.finish()?)
        }
        _ => Err(format!("a request {line:?}").into()),
    }
}
