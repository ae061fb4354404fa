//! Transport parameters and frames as bytes.

use quic::{ConnectionId, PathId};
use wire::quic::{Frame, TransportParameters, emit_ack, put_varint};

/// Ordinary transport parameters of a client with connection ID `id`.
pub fn client_parameters(id: ConnectionId) -> TransportParameters {
    TransportParameters {
        initial_max_data: 1 << 20,
        initial_max_stream_data_bidi_local: 1 << 18,
        initial_max_stream_data_bidi_remote: 1 << 18,
        initial_max_stream_data_uni: 1 << 18,
        initial_max_streams_bidi: 100,
        initial_max_streams_uni: 100,
        initial_source_connection_id: Some(id),
        max_datagram_frame_size: 65_535,
        ..TransportParameters::default()
    }
}

/// The same, with path IDs up to `max`.
pub fn multipath(mut parameters: TransportParameters, max: u32) -> TransportParameters {
    parameters.initial_max_path_id = Some(PathId(max));
    parameters
}

/// Parameters as bytes.
pub fn encode(parameters: &TransportParameters) -> Vec<u8> {
    let mut out = Vec::new();
    parameters.emit(&mut out, None);
    out
}

/// One parameter as bytes.
pub fn parameter(id: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, id);
    put_varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

/// A number as the value of a parameter.
pub fn number(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

/// Frames as a payload.
pub fn payload(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| frame.emit(&mut out));
    out
}

/// An ACK or PATH_ACK frame for these packet numbers.
pub fn ack_of(path: Option<PathId>, mut numbers: Vec<u64>) -> Vec<u8> {
    numbers.sort_unstable();
    numbers.dedup();
    let mut ranges: Vec<std::ops::RangeInclusive<u64>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if *last.end() + 1 == number => *last = *last.start()..=number,
            _ => ranges.push(number..=number),
        }
    }
    let mut out = Vec::new();
    emit_ack(path, 0, ranges.into_iter().rev().take(200), None, &mut out);
    out
}
