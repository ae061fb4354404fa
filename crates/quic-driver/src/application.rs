//! The state that a QUIC driver shares with applications: its named types, its limits, and the
//! request for a connection.

use std::sync::Arc;

use driver::{Application, Shared};
use quic::session::SessionFactory;

use crate::cells::connection::ConnectionCell;

/// The application-facing types of QUIC connections.
#[derive(Debug, Clone, Copy)]
pub struct QuicApplication;

impl Application for QuicApplication {
    type Cell = ConnectionCell;
    type Connect = Connect;
    type Limits = Limits;
}

/// The state that a QUIC driver shares with all handles of its connections.
pub type QuicShared = Shared<QuicApplication>;

/// Limits of the queues between handles and the driver.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes that a stream's outbox holds until the connection takes them. A writer waits while the
    /// outbox is full.
    pub outbox_bytes_max: usize,
    /// Bytes that a stream's inbox holds for its reader. While it is full, received bytes stay in
    /// the connection and use up the peer's flow-control credit.
    pub inbox_bytes_max: usize,
    /// Maximum length of a message that is sent or accepted.
    pub message_len_max: usize,
    /// Received chunks of a stream shorter than this are copied out of their receive buffer, so
    /// that a slow reader keeps no whole buffers alive: [`COMPACT_BELOW`], or
    /// 0 if there are no receive buffers.
    pub compact_below: usize,
    /// Whether connections from peers are accepted.
    pub is_listening: bool,
    /// Whether the application gets the connection of a client with its first 0-RTT stream, before
    /// the handshake is complete. It may then answer before the client has proved its presence.
    pub accepts_early: bool,
}

/// The parameters of an outgoing connection.
pub struct Connect {
    /// The server name for TLS.
    pub server_name: String,
    /// Creates the TLS session.
    pub factory: Arc<dyn SessionFactory>,
}

/// Received chunks shorter than this are copied out of their receive buffer before they are queued
/// for the application. An application that does not read would otherwise keep whole buffers alive.
/// With this bound, an inbox pins at most four times the bytes that it holds.
pub const COMPACT_BELOW: usize = driver::INTERACTIVE_MAX;
