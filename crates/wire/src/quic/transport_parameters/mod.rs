//! Transport parameters (RFC 9000 §18), which the endpoints exchange in the TLS handshake.

mod emit;
mod parse;
#[cfg(test)]
mod tests;
mod version_information;

use std::fmt;
use std::net::{SocketAddrV4, SocketAddrV6};

use super::error::ErrorCode;
use super::id::{ConnectionId, PathId};
pub use version_information::VersionInformation;

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
    /// RFC 9368 §3.
    pub(super) const VERSION_INFORMATION: u64 = 0x11;
    /// RFC 9221 §3.
    pub(super) const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
    /// Multipath draft-21 §2.1.
    pub(super) const INITIAL_MAX_PATH_ID: u64 = 0x3e;
    /// RFC 9287 §3.
    pub(super) const GREASE_QUIC_BIT: u64 = 0x2ab2;
    /// Acknowledgement frequency draft-14 §3.
    pub(super) const MIN_ACK_DELAY: u64 = 0xff04_de1b;
}

/// The transport parameters of one endpoint. A parameter that was not sent has the default value of
/// the RFC.
#[derive(Debug, Clone, Eq, PartialEq)]
pub struct TransportParameters {
    /// Server only: the destination connection ID of the client's first Initial packet.
    pub original_destination_connection_id: Option<ConnectionId>,
    /// Idle timeout in milliseconds; 0 disables it.
    pub max_idle_timeout_ms: u64,
    /// Server only: the stateless reset token of the handshake's connection ID.
    pub stateless_reset_token: Option<[u8; 16]>,
    /// Size in bytes of the largest UDP payload that the endpoint accepts, at least 1200. Default
    /// 65527.
    pub max_udp_payload_size: u64,
    /// Bytes that may be sent on the connection. Default 0, as for the following limits.
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
    /// Exponent of the unit of delays in ACK frames: 2^this microseconds. At most 20. Default 3.
    pub ack_delay_exponent: u8,
    /// Longest time in milliseconds by which the endpoint delays acknowledgements, below 2^14.
    /// Default 25.
    pub max_ack_delay_ms: u64,
    /// Whether the receiver of the parameters must not migrate to another local address.
    pub disable_active_migration: bool,
    /// Server only: the address to which the client should migrate after the handshake.
    pub preferred_address: Option<PreferredAddress>,
    /// Number of connection IDs that the endpoint stores (per path with multipath), at least 2.
    /// Default 2.
    pub active_connection_id_limit: u64,
    /// The source connection ID of the endpoint's first Initial packet. Required (RFC 9000 §7.3).
    pub initial_source_connection_id: Option<ConnectionId>,
    /// Server only: the source connection ID of its Retry packet.
    pub retry_source_connection_id: Option<ConnectionId>,
    /// The versions of QUIC that the endpoint uses and offers (RFC 9368 §3).
    pub version_information: Option<VersionInformation>,
    /// Size in bytes of the largest DATAGRAM frame that is accepted, including type and length; 0
    /// if none is accepted (RFC 9221 §3).
    pub max_datagram_frame_size: u64,
    /// Whether packets whose fixed bit is 0 are accepted (RFC 9287).
    pub grease_quic_bit: bool,
    /// The highest permitted path ID, `Some` if the endpoint supports multipath (draft-21 §2.1).
    pub initial_max_path_id: Option<PathId>,
    /// `Some` if the endpoint supports ACK_FREQUENCY and IMMEDIATE_ACK: the shortest time in
    /// microseconds by which it can delay an acknowledgement, at most `max_ack_delay_ms` (draft-14
    /// §3).
    pub min_ack_delay_us: Option<u64>,
}

impl Default for TransportParameters {
    /// Returns the values that apply to a peer that sends no parameters (RFC 9000 §18.2).
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
            version_information: None,
            max_datagram_frame_size: 0,
            grease_quic_bit: false,
            initial_max_path_id: None,
            min_ack_delay_us: None,
        }
    }
}

/// An address that the server prefers after the handshake (RFC 9000 §9.6).
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct PreferredAddress {
    /// The IPv4 address, if there is one.
    pub ipv4: Option<SocketAddrV4>,
    /// The IPv6 address, if there is one. Flow label and scope are not sent.
    pub ipv6: Option<SocketAddrV6>,
    /// Connection ID with sequence number 1, of 1 to 20 bytes.
    pub id: ConnectionId,
    /// Stateless reset token of that connection ID.
    pub reset_token: [u8; 16],
}

/// Invalid transport parameters. The peer is at fault; the connection is closed with
/// TRANSPORT_PARAMETER_ERROR.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct TransportParameterError {
    /// ID of the invalid parameter; `None` if the ID could not be read.
    pub id: Option<u64>,
    /// A human-readable description of the error. It is sent in the CONNECTION_CLOSE frame.
    pub reason: &'static str,
}

impl TransportParameterError {
    /// The error code to close the connection with.
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
