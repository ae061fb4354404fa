//! One stream of the test protocol, in either direction.

use std::sync::LazyLock;

use quiche::Connection;
use ring::digest;

const PERIOD: usize = 65_521;
const CHUNK: usize = 64 * 1024;

/// The start of an answer that is kept, in bytes: that of `PUT` fits.
const KEPT: usize = 100;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |index: usize| ((index % PERIOD) as u32).wrapping_mul(2_654_435_761) >> 24;
    (0..PERIOD + CHUNK).map(|index| byte(index) as u8).collect()
});

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A stream: first some bytes, then the pattern, go out; what comes is hashed.
pub struct Stream {
    first: Vec<u8>,
    pattern: u64,
    sent: u64,
    /// All has been given to quiche; or there is nothing to send yet.
    pub is_idle: bool,
    /// A server's stream begins with a line.
    line: Option<Vec<u8>>,
    hash: digest::Context,
    pub received: u64,
    pub kept: Vec<u8>,
    pub is_finished: bool,
}

impl Stream {
    /// A request of a client.
    pub fn request(line: String, upload: u64) -> Self {
        let (first, hash) = (line.into_bytes(), digest::Context::new(&digest::SHA256));
        let (kept, is_finished) = (Vec::new(), false);
        Self { first, pattern: upload, sent: 0, is_idle: false, line: None, hash, received: 0, kept, is_finished }
    }

    /// One that a client has opened.
    pub fn incoming() -> Self {
        Self { is_idle: true, line: Some(Vec::new()), ..Self::request(String::new(), 0) }
    }

    pub fn digest(&self) -> digest::Digest {
        self.hash.clone().finish()
    }

    /// Sends what there is room for; an error ends the stream.
    pub fn send(&mut self, id: u64, connection: &mut Connection) -> Result<(), quiche::Error> {
        let first = self.first.len() as u64;
        while !self.is_idle {
            let chunk = if self.sent < first {
                &self.first[self.sent as usize..]
            } else {
                let offset = self.sent - first;
                let start = (offset % PERIOD as u64) as usize;
                &PATTERN[start..start + (self.pattern - offset).min(CHUNK as u64) as usize]
            };
            let is_last = self.sent + chunk.len() as u64 == first + self.pattern;
            match connection.stream_send(id, chunk, is_last) {
                Ok(len) => {
                    self.sent += len as u64;
                    self.is_idle = is_last && len == chunk.len();
                    if len < chunk.len() {
                        return Ok(());
                    }
                }
                Err(quiche::Error::Done) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what has come, at most until `limit` bytes have been received.
    pub fn receive(&mut self, id: u64, connection: &mut Connection, limit: u64) -> Result<(), quiche::Error> {
        let mut buffer = [0; CHUNK];
        while self.received < limit && !self.is_finished {
            let room = (limit - self.received).min(CHUNK as u64) as usize;
            match connection.stream_recv(id, &mut buffer[..room]) {
                Ok((len, is_finished)) => self.take(&buffer[..len], is_finished),
                Err(quiche::Error::Done) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, mut data: &[u8], is_finished: bool) {
        if let Some(line) = &mut self.line
            && line.last() != Some(&b'\n')
        {
            let end = data.iter().position(|byte| *byte == b'\n').map_or(data.len(), |at| at + 1);
            line.extend_from_slice(&data[..end]);
            data = &data[end..];
        }
        self.received += data.len() as u64;
        self.hash.update(data);
        self.kept.extend_from_slice(&data[..data.len().min(KEPT - self.kept.len())]);
        self.is_finished = is_finished;
        if let (true, Some(line)) = (is_finished, &self.line) {
            let line = String::from_utf8_lossy(line).into_owned();
            match line.trim_end().split_once(' ') {
                Some(("GET", count)) => self.pattern = count.parse().unwrap_or(0),
                _ => self.first = hex(self.digest().as_ref()).into_bytes(),
            }
            self.is_idle = false;
        }
    }
}
