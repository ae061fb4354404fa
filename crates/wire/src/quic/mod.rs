//! QUIC version 1 on the wire: RFC 9000 sections 16 to 20, and extensions.
//!
//! | module | holds | source |
//! |---|---|---|
//! | [`varint`] | variable-length integers | RFC 9000 §16 |
//! | [`reader`] | the cursor used by all parsers | - |
//! | [`id`] | connection IDs, stream IDs, path IDs, packet number spaces | RFC 9000 §2.1, §5.1, §12.3 |
//! | [`error`] | transport error codes | RFC 9000 §20.1 |
//! | [`packet`] | packet headers and packet numbers | RFC 9000 §17, RFC 9287 |
//! | [`frame`] | frames | RFC 9000 §19, RFC 9221 and the two drafts below |
//! | [`transport_parameters`] | transport parameters | RFC 9000 §18 |
//!
//! Multipath follows draft-ietf-quic-multipath-21; acknowledgement frequency follows
//! draft-ietf-quic-ack-frequency-14. Frames of both are always parsed. The connection checks with
//! [`Frame::frame_type`] whether the extension was negotiated.

pub mod error;
pub mod frame;
pub mod id;
pub mod packet;
pub mod reader;
pub mod transport_parameters;
pub mod varint;

pub use error::ErrorCode;
pub use frame::{
    Ack, AckRanges, Close, CloseOrigin, EcnCounts, Frame, FrameError, Stream, ack_len, ack_len_max, close_len_min,
    crypto_header_len, datagram_header_len, emit_ack, emit_close, emit_crypto_header, emit_datagram_header,
    emit_stream_header, stream_header_len,
};
pub use id::{ConnectionId, Dir, PathId, Side, Space, StreamId};
pub use packet::{
    Destination, LongHeader, MAX_CID_LEN, MIN_INITIAL_SIZE, PacketError, PacketType, Parsed, ProtectedHeader,
    SAMPLE_LEN, Unprotected, Version, decode_number, destination, emit_long, emit_retry, emit_short,
    emit_version_negotiation, long_header_len, number_len, parse_packet, read_unprotected, sample_offset, versions,
};
pub use reader::{Reader, UnexpectedEnd};
pub use transport_parameters::{PreferredAddress, TransportParameterError, TransportParameters, VersionInformation};
pub use varint::{VARINT_MAX, put_varint, put_varint_2, varint_len};
