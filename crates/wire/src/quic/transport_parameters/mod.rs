//! Transport parameters (RFC 9000 §18): what each side tells the other inside the TLS handshake.

mod emit;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{SocketAddrV4, SocketAddrV6};

use super::error::ErrorCode;
use super::id::{ConnectionId, PathId};

/// Parameter IDs on the wire.
mod id {
    pub(super) const ORIGINAL_DESTINATION_CONNECTION_ID: u64 = 0x00;
    pub(super) const MAX_IDLE_TIMEOUT: u64 = 0x01;
    pub(super) const STATELESS_RESET_TOKEN: u64 = 0x02;
    pub(super) const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub(super) const INITIAL_MAX_DATA: u64 = 0x04;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
    pub(super) const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
    pub(super) const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
    pub(super) const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
    pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
    pub(super) const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
    pub(super) const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    pub(super) const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
    pub(super) const RETRY_SOURCE_CONNECTION_ID: u64 = 0x10;
    /// RFC 9221 §3.
    pub(super) const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
    /// Multipath draft-21 §2.1.
    pub(super) const INITIAL_MAX_PATH_ID: u64 = 0x3e;
    /// RFC 9287 §3.
    pub(super) const GREASE_QUIC_BIT: u64 = 0x2ab2;
    /// Acknowledgement frequency draft-14 §3.
    pub(super) const MIN_ACK_DELAY: u64 = 0xff04_de1b;
}

/// One side's transport parameters. What was not sent has its default, as the RFC defines it.
#[derive(Debug, Clone, Eq, PartialEq)]
pub struct TransportParameters {
    /// Server only: the destination connection ID of the client's first Initial packet.
    pub original_destination_connection_id: Option<ConnectionId>,
    /// Milliseconds of silence until the connection is dropped; 0: never.
    pub max_idle_timeout_ms: u64,
    /// Server only: the stateless reset token of the handshake's connection ID.
    pub stateless_reset_token: Option<[u8; 16]>,
    /// Bytes of the largest UDP payload that is worth sending, at least 1200. Default 65527.
    pub max_udp_payload_size: u64,
    /// Bytes that may be sent on the connection. Default 0, as the limits that follow.
    pub initial_max_data: u64,
    /// Bytes that may be sent on a bidirectional stream opened by the sender of the parameters.
    pub initial_max_stream_data_bidi_local: u64,
    /// Bytes that may be sent on a bidirectional stream opened by the receiver of the parameters.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Bytes that may be sent on a unidirectional stream.
    pub initial_max_stream_data_uni: u64,
    /// Bidirectional streams that may be opened, at most 2^60.
    pub initial_max_streams_bidi: u64,
    /// Unidirectional streams that may be opened, at most 2^60.
    pub initial_max_streams_uni: u64,
    /// Delays in ACK frames come in units of 2^this microseconds, at most 2^20. Default 3.
    pub ack_delay_exponent: u8,
    /// Milliseconds that an acknowledgement is delayed at most, below 2^14. Default 25.
    pub max_ack_delay_ms: u64,
    /// Whether the receiver must not move to another address of its own.
    pub disable_active_migration: bool,
    /// Server only: where the client should move to after the handshake.
    pub preferred_address: Option<PreferredAddress>,
    /// Connection IDs that the sender is willing to store, at least 2 (for each path, with multipath). Default 2.
    pub active_connection_id_limit: u64,
    /// The source connection ID of the sender's first Initial packet. Every peer must send it (RFC 9000 §7.3).
    pub initial_source_connection_id: Option<ConnectionId>,
    /// Server only: the source connection ID of its Retry packet.
    pub retry_source_connection_id: Option<ConnectionId>,
    /// Bytes of the largest DATAGRAM frame that is accepted, with its type and length; 0: none is (RFC 9221 §3).
    pub max_datagram_frame_size: u64,
    /// Whether packets with the fixed bit 0 are accepted (RFC 9287).
    pub grease_quic_bit: bool,
    /// `Some` if the sender speaks multipath: the highest path ID that may be used (draft-21 §2.1).
    pub initial_max_path_id: Option<PathId>,
    /// `Some` if the sender accepts ACK_FREQUENCY and IMMEDIATE_ACK: the least microseconds it can delay an acknowledgement,
    /// at most its `max_ack_delay_ms` (draft-14 §3).
    pub min_ack_delay_us: Option<u64>,
}

impl Default for TransportParameters {
    /// What a peer that sends no parameter means (RFC 9000 §18.2).
    fn default() -> Self {
        Self {
            original_destination_connection_id: None,
            max_idle_timeout_ms: 0,
            stateless_reset_token: None,
            max_udp_payload_size: 65527,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            initial_max_streams_bidi: 0,
            initial_max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay_ms: 25,
            disable_active_migration: false,
            preferred_address: None,
            active_connection_id_limit: 2,
            initial_source_connection_id: None,
            retry_source_connection_id: None,
            max_datagram_frame_size: 0,
            grease_quic_bit: false,
            initial_max_path_id: None,
            min_ack_delay_us: None,
        }
    }
}

/// Where a server would rather be reached (RFC 9000 §9.6).
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct PreferredAddress {
    /// Its IPv4 address, if it has one.
    pub ipv4: Option<SocketAddrV4>,
    /// Its IPv6 address, if it has one. Flow label and scope are not sent.
    pub ipv6: Option<SocketAddrV6>,
    /// Connection ID with sequence number 1, of 1 to 20 bytes.
    pub id: ConnectionId,
    /// Stateless reset token of that connection ID.
    pub reset_token: [u8; 16],
}

/// Transport parameters that cannot be accepted. They close the connection with TRANSPORT_PARAMETER_ERROR.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct TransportParameterError {
    /// ID of the parameter at fault; `None` if not even the ID could be read.
    pub id: Option<u64>,
    /// What is wrong, for people to read.
    pub reason: &'static str,
}

impl TransportParameterError {
    /// How to close the connection: TRANSPORT_PARAMETER_ERROR.
    pub const CODE: ErrorCode = ErrorCode::TRANSPORT_PARAMETER_ERROR;
}

impl fmt::Display for TransportParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "transport parameter {id:#x}: {}", self.reason),
            None => write!(f, "transport parameters: {}", self.reason),
        }
    }
}

impl std::error::Error for TransportParameterError {}
