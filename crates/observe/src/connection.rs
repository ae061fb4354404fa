//! The events of a connection's start, handshake, keys and end.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quic::journal::{JournalHead, PacketSummary};
use quic::session::SessionSummary;
use quic::{ConnectionError, Event};
use serde_json::{Value, json};
use units::Instant;
use wire::quic::{PathId, Side, Space, TransportParameters};

use crate::events::Events;

/// Writes the first events.
pub(crate) fn started<W: Write>(events: &mut Events<W>, head: &JournalHead) -> io::Result<()> {
    let (at, remote) = (head.began_at, head.addresses.remote);
    let unspecified: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let data = json!({
        "ip_version": if remote.is_ipv4() { "v4" } else { "v6" }, "protocol": "QUIC",
        "src_ip": head.addresses.local_ip.unwrap_or(unspecified).to_string(),
        "dst_ip": remote.ip().to_string(), "dst_port": remote.port(), "src_cid": head.local_id.to_string(),
        "dst_cid": head.original_destination.to_string(),
    });
    events.put(at, PathId::ZERO, "connectivity:connection_started", &data)?;
    parameters(events, at, "local", &head.parameters())?;
    let config = &head.config;
    let recovery = json!({
        "initial_rtt": config.initial_rtt.as_nanos() as f64 / 1e6, "max_datagram_size": config.datagram_size,
        "congestion": config.congestion.to_string(), "scheduler": config.scheduler.to_string(),
        "policy": config.policy.to_string(),
    });
    events.put(at, PathId::ZERO, "recovery:parameters_set", &recovery)
}

/// Writes the transport parameters of one side. Reset tokens are secrets.
pub(crate) fn parameters<W: Write>(
    events: &mut Events<W>,
    at: Instant,
    owner: &str,
    parameters: &TransportParameters,
) -> io::Result<()> {
    let id = |id: Option<wire::quic::ConnectionId>| id.map(|id| id.to_string());
    let data = json!({
        "owner": owner,
        "original_destination_connection_id": id(parameters.original_destination_connection_id),
        "initial_source_connection_id": id(parameters.initial_source_connection_id),
        "retry_source_connection_id": id(parameters.retry_source_connection_id),
        "disable_active_migration": parameters.disable_active_migration,
        "max_idle_timeout": parameters.max_idle_timeout_ms,
        "max_udp_payload_size": parameters.max_udp_payload_size,
        "ack_delay_exponent": parameters.ack_delay_exponent,
        "max_ack_delay": parameters.max_ack_delay_ms,
        "active_connection_id_limit": parameters.active_connection_id_limit,
        "initial_max_data": parameters.initial_max_data,
        "initial_max_stream_data_bidi_local": parameters.initial_max_stream_data_bidi_local,
        "initial_max_stream_data_bidi_remote": parameters.initial_max_stream_data_bidi_remote,
        "initial_max_stream_data_uni": parameters.initial_max_stream_data_uni,
        "initial_max_streams_bidi": parameters.initial_max_streams_bidi,
        "initial_max_streams_uni": parameters.initial_max_streams_uni,
        "max_datagram_frame_size": parameters.max_datagram_frame_size,
        "grease_quic_bit": parameters.grease_quic_bit,
        "initial_max_path_id": parameters.initial_max_path_id.map(|path| path.0),
        "min_ack_delay_us": parameters.min_ack_delay_us,
        "unknown_parameters": [],
    });
    events.put(at, PathId::ZERO, "transport:parameters_set", &without_nulls(data))
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

/// Writes the result of the handshake.
pub(crate) fn session<W: Write>(events: &mut Events<W>, at: Instant, summary: &SessionSummary) -> io::Result<()> {
    let version = json!({ "chosen_version": format!("{:08x}", summary.version.number()) });
    events.put(at, PathId::ZERO, "transport:version_information", &version)?;
    if let Some(protocol) = &summary.protocol {
        let data = json!({ "chosen_alpn": String::from_utf8_lossy(protocol) });
        events.put(at, PathId::ZERO, "transport:alpn_information", &data)?;
    }
    let Some(cipher) = &summary.cipher_suite else { return Ok(()) };
    let data = json!({
        "owner": "local", "tls_cipher": cipher, "key_exchange": summary.key_exchange,
        "is_resumed": summary.is_resumed, "unknown_parameters": [],
    });
    events.put(at, PathId::ZERO, "transport:parameters_set", &without_nulls(data))
}

/// Writes that keys of both directions were installed. A journal has no keys, so `new` is empty.
pub(crate) fn keys_installed<W: Write>(events: &mut Events<W>, at: Instant, space: Space) -> io::Result<()> {
    for side in [Side::Client, Side::Server] {
        let secret = match space {
            Space::Initial => "initial",
            Space::Handshake => "handshake",
            Space::Data => "1rtt",
        };
        let data =
            json!({ "key_type": format!("{side}_{secret}_secret"), "new": "", "generation": 0, "trigger": "tls" });
        events.put(at, PathId::ZERO, "security:key_updated", &data)?;
    }
    Ok(())
}

/// Key phases of both directions (RFC 9001, section 6).
#[derive(Debug, Default)]
pub(crate) struct KeyPhases {
    sent: u64,
    received: u64,
}

impl KeyPhases {
    pub(crate) fn on_sent<W: Write>(
        &mut self,
        events: &mut Events<W>,
        at: Instant,
        side: Side,
        packet: &PacketSummary,
    ) -> io::Result<()> {
        if !packet.begins_key_phase {
            return Ok(());
        }
        let trigger = if self.received > self.sent { "remote_update" } else { "local_update" };
        self.sent += 1;
        put_update(events, at, side, self.sent, trigger)
    }

    pub(crate) fn on_received<W: Write>(
        &mut self,
        events: &mut Events<W>,
        at: Instant,
        side: Side,
        packet: &PacketSummary,
    ) -> io::Result<()> {
        if !packet.begins_key_phase {
            return Ok(());
        }
        let trigger = if self.sent > self.received { "local_update" } else { "remote_update" };
        self.received += 1;
        put_update(events, at, side.peer(), self.received, trigger)
    }
}

/// Writes that the keys of packets sent by `side` were updated.
fn put_update<W: Write>(
    events: &mut Events<W>,
    at: Instant,
    side: Side,
    generation: u64,
    trigger: &str,
) -> io::Result<()> {
    let key_type = format!("{side}_1rtt_secret");
    let data = json!({ "key_type": key_type, "new": "", "generation": generation, "trigger": trigger });
    events.put(at, PathId::ZERO, "security:key_updated", &data)
}

/// Writes events for the application that concern the connection or a path as a whole.
pub(crate) fn event<W: Write>(events: &mut Events<W>, at: Instant, event: &Event) -> io::Result<()> {
    let state = |state: &str| json!({ "new": state });
    match event {
        Event::Connected => {
            events.put(at, PathId::ZERO, "connectivity:connection_state_updated", &state("handshake_completed"))
        }
        Event::Confirmed => {
            events.put(at, PathId::ZERO, "connectivity:connection_state_updated", &state("handshake_confirmed"))
        }
        Event::Migrated(path) => events.put(at, *path, "connectivity:path_migrated", &json!({ "path_id": path.0 })),
        Event::Closed(error) => events.put(at, PathId::ZERO, "connectivity:connection_closed", &closed(error)),
        _ => Ok(()),
    }
}

fn closed(error: &ConnectionError) -> Value {
    let reason = error.to_string();
    match error {
        ConnectionError::PeerMisbehaved(cause) => {
            json!({ "owner": "local", "connection_code": cause.code.0, "reason": reason, "trigger": "error" })
        }
        ConnectionError::ClosedByPeerTransport(cause) => {
            json!({ "owner": "remote", "connection_code": cause.code.0, "reason": reason, "trigger": "error" })
        }
        ConnectionError::ClosedByPeer { code, .. } => {
            json!({ "owner": "remote", "application_code": code, "reason": reason, "trigger": "application" })
        }
        ConnectionError::ClosedLocally => json!({ "owner": "local", "reason": reason, "trigger": "application" }),
        ConnectionError::TimedOut => json!({ "owner": "local", "reason": reason, "trigger": "idle_timeout" }),
        ConnectionError::HandshakeTimedOut => {
            json!({ "owner": "local", "reason": reason, "trigger": "handshake_timeout" })
        }
        ConnectionError::VersionMismatch => {
            json!({ "owner": "local", "reason": reason, "trigger": "version_mismatch" })
        }
        ConnectionError::Reset => json!({ "owner": "remote", "reason": reason, "trigger": "stateless_reset" }),
        // A later version may close for other reasons.
        _ => json!({ "reason": reason }),
    }
}
