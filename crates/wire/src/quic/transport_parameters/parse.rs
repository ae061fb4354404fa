//! Parsing of transport parameters.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use super::version_information::Refused;
use super::{PreferredAddress, TransportParameterError, TransportParameters, VersionInformation, id};
use crate::quic::id::{ConnectionId, PathId, Side, StreamId};
use crate::quic::packet::MIN_INITIAL_SIZE;
use crate::quic::reader::{Reader, UnexpectedEnd};

/// An error in the parameter being parsed.
struct Fault(&'static str);

impl From<UnexpectedEnd> for Fault {
    fn from(_: UnexpectedEnd) -> Self {
        Self("value too short")
    }
}

impl TransportParameters {
    /// Parses the parameters sent by the peer, whose role is `from`. Unknown parameters are ignored
    /// (RFC 9000 §7.4.2), including repeated ones: detecting the repetition would need memory in
    /// proportion to the peer's input.
    ///
    /// The caller must check the connection IDs (RFC 9000 §7.3), and that multipath was not
    /// negotiated together with zero-length connection IDs.
    ///
    /// # Errors
    ///
    /// If a parameter appears twice, has a value out of range or of the wrong length, or is
    /// permitted from servers only.
    pub fn parse(bytes: &[u8], from: Side) -> Result<Self, TransportParameterError> {
        let mut parameters = Self::default();
        let mut seen = 0_u32;
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let truncated = |id| TransportParameterError { id, reason: "the parameters end inside one" };
            let id = reader.varint().map_err(|_| truncated(None))?;
            let value = reader.prefixed().map_err(|_| truncated(Some(id)))?;
            let Some(index) = KNOWN.iter().position(|known| *known == id) else { continue };
            let fault = |reason| TransportParameterError { id: Some(id), reason };
            if seen & 1 << index != 0 {
                return Err(fault("sent twice"));
            }
            seen |= 1 << index;
            if from == Side::Client && SERVER_ONLY.contains(&id) {
                return Err(fault("sent by a client"));
            }
            let mut value = Reader::new(value);
            parameters.set(id, &mut value).map_err(|Fault(reason)| fault(reason))?;
            if !value.is_empty() {
                return Err(fault("value too long"));
            }
        }
        parameters.check_together()?;
        Ok(parameters)
    }

    /// Sets one parameter. Bytes that do not belong to its value stay in the reader.
    fn set(&mut self, id: u64, value: &mut Reader<'_>) -> Result<(), Fault> {
        match id {
            id::ORIGINAL_DESTINATION_CONNECTION_ID => {
                self.original_destination_connection_id = Some(connection_id(value)?);
            }
            id::MAX_IDLE_TIMEOUT => self.max_idle_timeout_ms = value.varint()?,
            id::STATELESS_RESET_TOKEN => self.stateless_reset_token = Some(value.array()?),
            id::MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size = at_least(MIN_INITIAL_SIZE as u64, value, "below 1200")?;
            }
            id::INITIAL_MAX_DATA => self.initial_max_data = value.varint()?,
            id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => self.initial_max_stream_data_bidi_local = value.varint()?,
            id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => self.initial_max_stream_data_bidi_remote = value.varint()?,
            id::INITIAL_MAX_STREAM_DATA_UNI => self.initial_max_stream_data_uni = value.varint()?,
            id::INITIAL_MAX_STREAMS_BIDI => self.initial_max_streams_bidi = stream_count(value)?,
            id::INITIAL_MAX_STREAMS_UNI => self.initial_max_streams_uni = stream_count(value)?,
            // At most 20, so the cast is lossless.
            id::ACK_DELAY_EXPONENT => self.ack_delay_exponent = at_most(20, value, "above 20")? as u8,
            id::MAX_ACK_DELAY => self.max_ack_delay_ms = at_most((1 << 14) - 1, value, "not below 2^14")?,
            id::DISABLE_ACTIVE_MIGRATION => self.disable_active_migration = true,
            id::PREFERRED_ADDRESS => self.preferred_address = Some(preferred_address(value)?),
            id::ACTIVE_CONNECTION_ID_LIMIT => self.active_connection_id_limit = at_least(2, value, "below 2")?,
            id::INITIAL_SOURCE_CONNECTION_ID => self.initial_source_connection_id = Some(connection_id(value)?),
            id::RETRY_SOURCE_CONNECTION_ID => self.retry_source_connection_id = Some(connection_id(value)?),
            id::VERSION_INFORMATION => self.version_information = Some(version_information(value)?),
            id::MAX_DATAGRAM_FRAME_SIZE => self.max_datagram_frame_size = value.varint()?,
            id::INITIAL_MAX_PATH_ID => {
                let max = at_most(u64::from(u32::MAX), value, "above 2^32-1")?;
                self.initial_max_path_id = Some(PathId(max as u32));
            }
            id::GREASE_QUIC_BIT => self.grease_quic_bit = true,
            id::MIN_ACK_DELAY => self.min_ack_delay_us = Some(value.varint()?),
            _ => unreachable!("every ID in KNOWN has a match arm"),
        }
        Ok(())
    }

    /// Checks rules between parameters, after all were parsed in any order.
    fn check_together(&self) -> Result<(), TransportParameterError> {
        // "Endpoints that support this extension MUST treat receipt of a min_ack_delay that is
        // greater than the max_ack_delay as a connection error of type TRANSPORT_PARAMETER_ERROR"
        // (draft-14 §3).
        if self.min_ack_delay_us.is_some_and(|min| min > self.max_ack_delay_ms * 1000) {
            return Err(TransportParameterError { id: Some(id::MIN_ACK_DELAY), reason: "above max_ack_delay" });
        }
        Ok(())
    }
}

/// The known parameters. The index is the bit that marks a parameter as seen.
const KNOWN: [u64; 22] = [
    id::ORIGINAL_DESTINATION_CONNECTION_ID,
    id::MAX_IDLE_TIMEOUT,
    id::STATELESS_RESET_TOKEN,
    id::MAX_UDP_PAYLOAD_SIZE,
    id::INITIAL_MAX_DATA,
    id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
    id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
    id::INITIAL_MAX_STREAM_DATA_UNI,
    id::INITIAL_MAX_STREAMS_BIDI,
    id::INITIAL_MAX_STREAMS_UNI,
    id::ACK_DELAY_EXPONENT,
    id::MAX_ACK_DELAY,
    id::DISABLE_ACTIVE_MIGRATION,
    id::PREFERRED_ADDRESS,
    id::ACTIVE_CONNECTION_ID_LIMIT,
    id::INITIAL_SOURCE_CONNECTION_ID,
    id::RETRY_SOURCE_CONNECTION_ID,
    id::VERSION_INFORMATION,
    id::MAX_DATAGRAM_FRAME_SIZE,
    id::INITIAL_MAX_PATH_ID,
    id::GREASE_QUIC_BIT,
    id::MIN_ACK_DELAY,
];

const _: () = assert!(KNOWN.len() <= u32::BITS as usize, "one bit each");

/// "A client MUST NOT include any server-only transport parameter" (RFC 9000 §18.2).
const SERVER_ONLY: [u64; 4] = [
    id::ORIGINAL_DESTINATION_CONNECTION_ID,
    id::PREFERRED_ADDRESS,
    id::RETRY_SOURCE_CONNECTION_ID,
    id::STATELESS_RESET_TOKEN,
];

fn at_least(min: u64, value: &mut Reader<'_>, reason: &'static str) -> Result<u64, Fault> {
    let number = value.varint()?;
    if number < min { Err(Fault(reason)) } else { Ok(number) }
}

fn at_most(max: u64, value: &mut Reader<'_>, reason: &'static str) -> Result<u64, Fault> {
    let number = value.varint()?;
    if number > max { Err(Fault(reason)) } else { Ok(number) }
}

/// Parses a number of streams: as in MAX_STREAMS, at most 2^60 (RFC 9000 §4.6).
fn stream_count(value: &mut Reader<'_>) -> Result<u64, Fault> {
    at_most(StreamId::COUNT_MAX, value, "more than 2^60 streams")
}

fn connection_id(value: &mut Reader<'_>) -> Result<ConnectionId, Fault> {
    ConnectionId::new(value.rest()).ok_or(Fault("connection ID longer than 20 bytes"))
}

fn version_information(value: &mut Reader<'_>) -> Result<VersionInformation, Fault> {
    VersionInformation::parse(value).map_err(|refused| match refused {
        Refused::Length => Fault("not of four bytes for each version"),
        Refused::Zero => Fault("a version of zero"),
    })
}

/// Parses a preferred address (RFC 9000 §18.2, figure 22).
fn preferred_address(value: &mut Reader<'_>) -> Result<PreferredAddress, Fault> {
    let v4 = SocketAddrV4::new(Ipv4Addr::from(value.array::<4>()?), value.u16()?);
    let v6 = SocketAddrV6::new(Ipv6Addr::from(value.array::<16>()?), value.u16()?, 0, 0);
    let len = value.u8()?;
    let id = match ConnectionId::new(value.bytes(usize::from(len))?) {
        // "A server that chooses a zero-length connection ID MUST NOT provide a preferred address."
        Some(id) if !id.is_empty() => id,
        _ => return Err(Fault("connection ID not of 1 to 20 bytes")),
    };
    // An address family that the server lacks is sent as zeros.
    Ok(PreferredAddress {
        ipv4: (!v4.ip().is_unspecified() || v4.port() != 0).then_some(v4),
        ipv6: (!v6.ip().is_unspecified() || v6.port() != 0).then_some(v6),
        id,
        reset_token: value.array()?,
    })
}
