//! Encoding of transport parameters.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use super::{PreferredAddress, TransportParameters, id};
use crate::quic::varint::{put_varint, varint_len};

impl TransportParameters {
    /// Appends the parameters that differ from their defaults, in the format of
    /// [`TransportParameters::parse`].
    ///
    /// `grease` is the ID and value of a reserved parameter, sent so that peers keep ignoring
    /// unknown parameters. Its ID has the form `31 * n + 27` (RFC 9000 §18.1).
    ///
    /// # Panics
    ///
    /// If a number is above 2^62-1, or the ID of `grease` is not reserved.
    pub fn emit(&self, out: &mut Vec<u8>, grease: Option<(u64, &[u8])>) {
        let default = Self::default();
        let numbers = [
            (id::MAX_IDLE_TIMEOUT, self.max_idle_timeout_ms, default.max_idle_timeout_ms),
            (id::MAX_UDP_PAYLOAD_SIZE, self.max_udp_payload_size, default.max_udp_payload_size),
            (id::INITIAL_MAX_DATA, self.initial_max_data, 0),
            (id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL, self.initial_max_stream_data_bidi_local, 0),
            (id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE, self.initial_max_stream_data_bidi_remote, 0),
            (id::INITIAL_MAX_STREAM_DATA_UNI, self.initial_max_stream_data_uni, 0),
            (id::INITIAL_MAX_STREAMS_BIDI, self.initial_max_streams_bidi, 0),
            (id::INITIAL_MAX_STREAMS_UNI, self.initial_max_streams_uni, 0),
            (id::ACK_DELAY_EXPONENT, u64::from(self.ack_delay_exponent), u64::from(default.ack_delay_exponent)),
            (id::MAX_ACK_DELAY, self.max_ack_delay_ms, default.max_ack_delay_ms),
            (id::ACTIVE_CONNECTION_ID_LIMIT, self.active_connection_id_limit, default.active_connection_id_limit),
            (id::MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size, 0),
        ];
        for (id, value, _) in numbers.into_iter().filter(|(_, value, default)| value != default) {
            put_number(id, value, out);
        }
        // Their presence is the signal, so they are sent even if the value is 0.
        let extensions = [
            (id::INITIAL_MAX_PATH_ID, self.initial_max_path_id.map(|path| u64::from(path.0))),
            (id::MIN_ACK_DELAY, self.min_ack_delay_us),
        ];
        for (id, value) in extensions {
            if let Some(value) = value {
                put_number(id, value, out);
            }
        }
        let flags = [
            (id::DISABLE_ACTIVE_MIGRATION, self.disable_active_migration),
            (id::GREASE_QUIC_BIT, self.grease_quic_bit),
        ];
        for (id, _) in flags.into_iter().filter(|(_, set)| *set) {
            put_value(id, &[], out);
        }
        let connection_ids = [
            (id::ORIGINAL_DESTINATION_CONNECTION_ID, &self.original_destination_connection_id),
            (id::INITIAL_SOURCE_CONNECTION_ID, &self.initial_source_connection_id),
            (id::RETRY_SOURCE_CONNECTION_ID, &self.retry_source_connection_id),
        ];
        for (id, value) in connection_ids {
            if let Some(value) = value {
                put_value(id, value.as_slice(), out);
            }
        }
        if let Some(versions) = &self.version_information {
            put_value(id::VERSION_INFORMATION, &versions.value(), out);
        }
        if let Some(token) = &self.stateless_reset_token {
            put_value(id::STATELESS_RESET_TOKEN, token, out);
        }
        if let Some(preferred) = &self.preferred_address {
            put_preferred_address(preferred, out);
        }
        if let Some((id, value)) = grease {
            assert!(id % 31 == 27, "{id:#x} is not an ID reserved for greasing");
            put_value(id, value, out);
        }
    }
}

fn put_number(id: u64, value: u64, out: &mut Vec<u8>) {
    put_varint(out, id);
    put_varint(out, varint_len(value) as u64);
    put_varint(out, value);
}

fn put_value(id: u64, value: &[u8], out: &mut Vec<u8>) {
    put_varint(out, id);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends the preferred address (RFC 9000 §18.2, figure 22).
fn put_preferred_address(preferred: &PreferredAddress, out: &mut Vec<u8>) {
    let v4 = preferred.ipv4.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
    let v6 = preferred.ipv6.unwrap_or(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
    put_varint(out, id::PREFERRED_ADDRESS);
    put_varint(out, (4 + 2 + 16 + 2 + 1 + preferred.id.len() + preferred.reset_token.len()) as u64);
    out.extend_from_slice(&v4.ip().octets());
    out.extend_from_slice(&v4.port().to_be_bytes());
    out.extend_from_slice(&v6.ip().octets());
    out.extend_from_slice(&v6.port().to_be_bytes());
    out.push(preferred.id.len() as u8);
    out.extend_from_slice(preferred.id.as_slice());
    out.extend_from_slice(&preferred.reset_token);
}
