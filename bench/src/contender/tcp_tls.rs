//! Kernel TCP with TLS 1.3 (rustls, AES-128-GCM) in user space: blocking calls, one thread per
//! side.
//!
//! The sender uses the buffered interface: its records are sealed into separate memory and sent
//! with one vectored write. The receiver uses the unbuffered one, which opens records in the buffer
//! they were read into.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use super::tcp::serve_with;
use super::{Failure, Server};
use crate::meter::BulkMeter;
use crate::tls;
use crate::work::{CHUNK_LEN, Figures, Job};

/// Bytes read at most before they are opened: a few records of 16 KiB.
const READ_LEN: usize = 256 << 10;
/// A record with its header and tag, at most (RFC 8446, section 5.2).
const RECORD_LEN_MAX: usize = (1 << 14) + 256 + 5;

pub fn server(job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    let config = tls::server();
    serve_with(job, listen, move |stream, mut meter| {
        let mut receiver = Receiver {
            stream,
            tls: UnbufferedServerConnection::new(config.clone())?,
            buffer: vec![0; READ_LEN + RECORD_LEN_MAX],
            start: 0,
            end: 0,
            outgoing: Vec::new(),
        };
        let mut application = vec![0; RECORD_LEN_MAX];
        while meter.note(receiver.read(&mut application)?) {}
        Ok(meter.figures())
    })
}

/// A TLS server on a socket.
struct Receiver {
    stream: TcpStream,
    tls: UnbufferedServerConnection,
    /// Bytes read and not processed: `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Handshake bytes waiting to be sent.
    outgoing: Vec<u8>,
}

impl Receiver {
    /// Copies one record's content to `application`; 0 if this was a step of the handshake.
    fn read(&mut self, application: &mut [u8]) -> Result<usize, Failure> {
        let UnbufferedStatus { mut discard, state, .. } =
            self.tls.process_tls_records(&mut self.buffer[self.start..self.end]);
        let mut copied = 0;
        let mut starved = false;
        match state? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    application[copied..copied + record.payload.len()].copy_from_slice(record.payload);
                    copied += record.payload.len();
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                let at = self.outgoing.len();
                self.outgoing.resize(at + RECORD_LEN_MAX, 0);
                let len = data.encode(&mut self.outgoing[at..])?;
                self.outgoing.truncate(at + len);
            }
            ConnectionState::TransmitTlsData(data) => {
                self.stream.write_all(&self.outgoing)?;
                self.outgoing.clear();
                data.done();
            }
            ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => starved = true,
            state => return Err(format!("unexpected: {state:?}").into()),
        }
        std::hint::black_box(application);
        self.start += discard;
        if starved {
            // The remainder is a partial record.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let read = self.stream.read(&mut self.buffer[self.end..])?;
            if read == 0 {
                return Err("the client has gone".into());
            }
            self.end += read;
        }
        Ok(copied)
    }
}

pub fn drive(job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    let mut stream = TcpStream::connect(remote)?;
    stream.set_nodelay(true)?;
    let mut tls = rustls::ClientConnection::new(tls::client(), "localhost".try_into()?)?;
    // Sealed records are sent before the next chunk.
    tls.set_buffer_limit(None);
    let chunk = vec![0x5a; CHUNK_LEN];
    let mut meter = BulkMeter::new(job);
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    'sending: loop {
        tls.writer().write_all(&chunk)?;
        while tls.wants_write() {
            // The server closes when its time is over.
            if tls.write_tls(&mut stream).is_err() {
                break 'sending;
            }
        }
        meter.note(chunk.len());
    }
    Ok(meter.sender_figures())
}
