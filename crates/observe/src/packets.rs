//! Packets and frames.

use std::io::{self, Write};

use quic::journal::{FrameSummary, LossTrigger, LostPackets, PacketSummary};
use serde_json::{Map, Value, json};
use units::{Ecn, Instant};
use wire::quic::{Dir, PathId, Space};

use crate::events::Events;

const fn packet_type(space: Space) -> &'static str {
    match space {
        Space::Initial => "initial",
        Space::Handshake => "handshake",
        Space::Data => "1RTT",
    }
}

/// Writes a packet that was sent or received. `delay_exponent` is that of its sender.
pub(crate) fn packet<W: Write>(
    events: &mut Events<W>,
    at: Instant,
    name: &str,
    packet: &PacketSummary,
    delay_exponent: u8,
) -> io::Result<()> {
    let frames = packet.frames.iter().map(|frame| frame_json(frame, packet.path, delay_exponent));
    let mut data = json!({
        "header": { "packet_type": packet_type(packet.space), "packet_number": packet.number },
        "path_id": packet.path.0, "frames": frames.collect::<Vec<_>>(),
    });
    if let Some(length) = packet.size_bytes {
        data["raw"] = json!({ "length": length });
    }
    if let Some(ecn) = packet.ecn {
        data["ecn"] = match ecn {
            Ecn::Ect0 => "ECT(0)",
            Ecn::Ect1 => "ECT(1)",
            Ecn::Ce => "CE",
        }
        .into();
    }
    events.put(at, packet.path, name, &data)
}

/// Writes datagrams of one path that arrived together.
pub(crate) fn arrived<W: Write>(
    events: &mut Events<W>,
    at: Instant,
    path: PathId,
    datagrams: u64,
    bytes: u64,
) -> io::Result<()> {
    // `raw` has an entry for each datagram; of several, the individual lengths are unknown.
    let mut data = json!({ "path_id": path.0, "count": datagrams, "total_length": bytes });
    if datagrams == 1 {
        data["raw"] = json!([{ "length": bytes }]);
    }
    events.put(at, path, "transport:datagrams_received", &data)
}

/// Writes packets that were not read.
pub(crate) fn dropped<W: Write>(
    events: &mut Events<W>,
    at: Instant,
    path: PathId,
    unauthentic: u64,
    unexpected: u64,
) -> io::Result<()> {
    for (count, trigger) in [(unauthentic, "decryption_failure"), (unexpected, "general")] {
        if count > 0 {
            let data = json!({ "path_id": path.0, "count": count, "trigger": trigger });
            events.put(at, path, "transport:packet_dropped", &data)?;
        }
    }
    Ok(())
}

/// Writes an event for each packet that was declared lost.
pub(crate) fn lost<W: Write>(events: &mut Events<W>, at: Instant, lost: &LostPackets) -> io::Result<()> {
    let trigger = match lost.trigger {
        LossTrigger::PacketThreshold => "reordering_threshold",
        LossTrigger::TimeThreshold => "time_threshold",
    };
    for number in lost.first..lost.first + u64::from(lost.count) {
        let data = json!({
            "header": { "packet_type": packet_type(lost.space), "packet_number": number },
            "path_id": lost.path.0, "raw": { "length": lost.size_bytes }, "trigger": trigger,
        });
        events.put(at, lost.path, "recovery:packet_lost", &data)?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stream_type(dir: Dir) -> &'static str {
    match dir {
        Dir::Bi => "bidirectional",
        Dir::Uni => "unidirectional",
    }
}

/// Returns a frame in a packet of the path `of`. Frames unknown to qlog 0.3 have the type
/// `unknown`, their name, and their fields.
fn frame_json(frame: &FrameSummary, of: PathId, delay_exponent: u8) -> Value {
    let mut value = match frame {
        FrameSummary::Ack { path, delay, ranges, ecn } => {
            let delay_ms = (*delay as f64) * f64::from(1_u32 << delay_exponent.min(20)) / 1e3;
            let mut value = json!({ "frame_type": "ack", "ack_delay": delay_ms, "acked_ranges": ranges });
            if let Some(counts) = ecn {
                value["ect0"] = counts.ect0.into();
                value["ect1"] = counts.ect1.into();
                value["ce"] = counts.ce.into();
            }
            value["path_id"] = path.0.into();
            value
        }
        FrameSummary::Stream { id, offset, len_bytes, fin } => json!({
            "frame_type": "stream", "stream_id": id.raw(), "offset": offset, "length": len_bytes, "fin": fin,
        }),
        FrameSummary::Padding { len_bytes } => {
            json!({ "frame_type": "padding", "length": len_bytes, "payload_length": len_bytes })
        }
        FrameSummary::Crypto { offset, len_bytes } => {
            json!({ "frame_type": "crypto", "offset": offset, "length": len_bytes })
        }
        FrameSummary::Datagram { len_bytes } => json!({ "frame_type": "datagram", "length": len_bytes }),
        FrameSummary::Close { code, frame_type, reason } => {
            let space = if frame_type.is_some() { "transport_error" } else { "application_error" };
            json!({
                "frame_type": "connection_close", "error_space": space, "error_code": code, "reason": reason,
                "trigger_frame_type": frame_type,
            })
        }
        FrameSummary::Ping => json!({ "frame_type": "ping" }),
        FrameSummary::HandshakeDone => json!({ "frame_type": "handshake_done" }),
        // The token is a secret.
        FrameSummary::NewToken { len_bytes } => {
            json!({ "frame_type": "new_token", "token": { "type": "resumption" }, "length": len_bytes })
        }
        FrameSummary::PathChallenge(data) => json!({ "frame_type": "path_challenge", "data": hex(data) }),
        FrameSummary::PathResponse(data) => json!({ "frame_type": "path_response", "data": hex(data) }),
        FrameSummary::NewConnectionId { path, sequence, retire_prior_to, id } => json!({
            "frame_type": "new_connection_id", "path_id": path.0, "sequence_number": sequence,
            "retire_prior_to": retire_prior_to, "connection_id_length": id.len(), "connection_id": id.to_string(),
        }),
        FrameSummary::RetireConnectionId { path, sequence } => {
            json!({ "frame_type": "retire_connection_id", "path_id": path.0, "sequence_number": sequence })
        }
        other => credit_json(other).unwrap_or_else(|| extension_json(other)),
    };
    if let Some((name, type_number)) = frame.extension(of) {
        value["frame_type"] = "unknown".into();
        value["frame_name"] = name.into();
        value["raw_frame_type"] = type_number.into();
    }
    value
}

/// Returns frames of flow control and about streams.
fn credit_json(frame: &FrameSummary) -> Option<Value> {
    Some(match frame {
        FrameSummary::MaxData(max) => json!({ "frame_type": "max_data", "maximum": max }),
        FrameSummary::MaxStreamData { id, max } => {
            json!({ "frame_type": "max_stream_data", "stream_id": id.raw(), "maximum": max })
        }
        FrameSummary::MaxStreams { dir, max } => {
            json!({ "frame_type": "max_streams", "stream_type": stream_type(*dir), "maximum": max })
        }
        FrameSummary::DataBlocked(limit) => json!({ "frame_type": "data_blocked", "limit": limit }),
        FrameSummary::StreamDataBlocked { id, limit } => {
            json!({ "frame_type": "stream_data_blocked", "stream_id": id.raw(), "limit": limit })
        }
        FrameSummary::StreamsBlocked { dir, limit } => {
            json!({ "frame_type": "streams_blocked", "stream_type": stream_type(*dir), "limit": limit })
        }
        FrameSummary::ResetStream { id, code, final_size } => json!({
            "frame_type": "reset_stream", "stream_id": id.raw(), "error_code": code, "final_size": final_size,
        }),
        FrameSummary::StopSending { id, code } => {
            json!({ "frame_type": "stop_sending", "stream_id": id.raw(), "error_code": code })
        }
        _ => return None,
    })
}

/// Returns the fields of frames unknown to qlog 0.3.
fn extension_json(frame: &FrameSummary) -> Value {
    match frame {
        FrameSummary::AckFrequency { sequence, threshold, max_delay_us, reordering } => json!({
            "sequence_number": sequence, "ack_eliciting_threshold": threshold,
            "requested_max_ack_delay_us": max_delay_us, "reordering_threshold": reordering,
        }),
        FrameSummary::PathAbandon { path, code } => json!({ "path_id": path.0, "error_code": code }),
        FrameSummary::PathStatus { path, sequence, .. } => json!({ "path_id": path.0, "sequence_number": sequence }),
        FrameSummary::MaxPathId(path) | FrameSummary::PathsBlocked(path) => json!({ "maximum_path_id": path.0 }),
        FrameSummary::PathCidsBlocked { path, next_sequence } => {
            json!({ "path_id": path.0, "next_sequence_number": next_sequence })
        }
        _ => Value::Object(Map::new()),
    }
}
