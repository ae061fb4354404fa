//! The file protocol over a Litz connection.

use std::io::{self, Read, Write};

use bytes::Bytes;
use quic_endpoint::identity::{Fingerprint, KeyError, PublicKey, peer_public_key};
use quic_endpoint::{Connection, ExportError};

use crate::link::{Control, Link, SendStream};
use crate::proof::ProofContext;
use crate::revision::Revision;

/// The only close code of this application. The control stream carries the outcome of a transfer.
pub const CLOSE_CODE: u64 = 0;

/// A connection and its streams.
#[derive(Clone)]
pub struct ConnectionLink(Connection);

impl ConnectionLink {
    /// Creates a link over `connection`, which stays usable by itself.
    pub fn new(connection: &Connection) -> Self {
        Self(connection.clone())
    }
}

struct StreamWriter(quic_endpoint::SendStream);

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl SendStream for StreamWriter {
    fn write_chunk(&mut self, chunk: Bytes) -> io::Result<()> {
        self.0.write_chunk(chunk).map_err(io::Error::from)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.0.finish().map_err(io::Error::from)
    }
}

impl Link for ConnectionLink {
    fn open_uni(&self) -> io::Result<Box<dyn SendStream>> {
        Ok(Box::new(StreamWriter(self.0.open_uni()?)))
    }

    fn accept_uni(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(self.0.accept_uni()?))
    }

    fn close(&self, reason: &str) {
        self.0.close(CLOSE_CODE, reason);
    }

    fn revision(&self) -> Revision {
        Revision::of(&self.0)
    }
}

/// Returns the control stream of a transfer from the two halves of a bidirectional stream.
pub fn control((send, recv): (quic_endpoint::SendStream, quic_endpoint::RecvStream)) -> Control {
    Control { reader: Box::new(recv), writer: Box::new(StreamWriter(send)) }
}

/// Returns the peer's key, as TLS has authenticated it.
///
/// # Errors
/// Fails if the peer presented no Ed25519 key.
pub fn peer_key(connection: &Connection) -> Result<PublicKey, KeyError> {
    peer_public_key(Some(&connection.peer_identity()))
}

/// Returns the values that both ends of the connection share, for the ticket's proof. `sender` is
/// the key of the end that sends files, `receiver` the fingerprint of the other end's.
///
/// # Errors
/// Fails if the handshake is not complete, or the connection is parked.
pub fn proof_context(
    connection: &Connection,
    sender: PublicKey,
    receiver: Fingerprint,
) -> Result<ProofContext, ExportError> {
    let mut material = Ok(());
    let context = ProofContext::new(
        |label, context| {
            let mut bytes = [0; 32];
            material = connection.export_keying_material(label, context, &mut bytes);
            bytes
        },
        sender,
        receiver,
    );
    material.map(|()| context)
}
