//! A connection as the file protocol sees it.

use std::io::{self, Read, Write};

use bytes::Bytes;
use litz::Connection;
use litz::identity::{Fingerprint, ProofContext, PublicKey, peer_public_key};
use litz::transfer::{Control, Link, SendStream};

/// The only close code of this application: how a transfer ended is said on its control stream.
pub(crate) const CLOSE_CODE: u64 = 0;

/// A connection and its streams.
pub(crate) struct ConnectionLink(pub(crate) Connection);

struct StreamWriter(litz::SendStream);

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
}

/// The control stream of a transfer from the two halves of a bidirectional stream.
pub(crate) fn control((send, recv): (litz::SendStream, litz::RecvStream)) -> Control {
    Control { reader: Box::new(recv), writer: Box::new(StreamWriter(send)) }
}

/// A connection's beginning, for `-v`.
pub(crate) fn log_connected(connection: &Connection) {
    let stats = connection.stats();
    tracing::info!(
        local = %connection.local_addr(),
        remote = %connection.remote_addr(),
        handshake = %stats.handshake_time.unwrap_or_default(),
        cipher = ?stats.session.cipher_suite,
        key_exchange = ?stats.session.key_exchange,
        "connected"
    );
}

/// What a connection did, for `-v`.
pub(crate) fn log_ended(connection: &Connection) {
    let stats = connection.stats();
    tracing::info!(
        remote = %connection.remote_addr(),
        packets_sent = stats.send.packets_sent,
        packets_lost = stats.send.packets_lost,
        bytes_sent = stats.send.bytes_sent,
        round_trip = %stats.round_trip,
        round_trip_min = %stats.round_trip_min,
        "the connection's end"
    );
}

/// The peer's key, as TLS has authenticated it.
///
/// # Errors
/// In words for the user.
pub(crate) fn peer_key(connection: &Connection) -> Result<PublicKey, String> {
    peer_public_key(Some(&connection.peer_identity())).map_err(|error| error.to_string())
}

/// What both ends of the connection have in common, for the ticket's proof.
///
/// # Errors
/// If the handshake is not complete.
pub(crate) fn proof_context(
    connection: &Connection,
    sender: PublicKey,
    receiver: Fingerprint,
) -> Result<ProofContext, String> {
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
    material.map_err(|error| error.to_string())?;
    Ok(context)
}
