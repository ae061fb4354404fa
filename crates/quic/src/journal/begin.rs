//! The first entry: the initial values of a connection.

use std::net::SocketAddr;

use ::journal::format::{
    Malformed, NANOS_MAX, Parsed, bytes, flag, ip_of, port, put, put_bytes, put_ip, put_span, put_word, short, span,
    text, word,
};
use recovery::RateCap;
use units::{Duration, Instant, Rate};
use wire::quic::{ConnectionId, Reader, Side, TransportParameters};

use super::format::{addresses, id, put_addresses, put_id, put_version, version};
use super::session::{AnySession, ReplayedSession, no_level_keys};
use crate::addresses::Addresses;
use crate::config::{PreferredAddresses, TransportConfig};
use crate::secret::SecretSource;
use crate::seed::ConnectionSeed;
use crate::seed::ControlSeed;
use crate::session::Versions;

/// The most bytes of received and unread data in a replay. A log whose configuration allows more is
/// not replayed.
pub const UNREAD_MAX: u64 = 1 << 30;

/// The initial values of a connection, from its log.
#[derive(Debug, Clone)]
pub struct JournalHead {
    /// Its role.
    pub side: Side,
    /// When it began, since the run began.
    pub began_at: Instant,
    /// The addresses of its first path.
    pub addresses: Addresses,
    /// Its connection ID at the beginning of the handshake.
    pub local_id: ConnectionId,
    /// The destination of the client's first packet, which the logs of both sides have in common.
    pub original_destination: ConnectionId,
    /// Its configuration, without the sinks of traces and journals.
    pub config: TransportConfig,
}

impl JournalHead {
    /// The transport parameters of this side that follow from its configuration: all but connection
    /// IDs and tokens.
    pub fn parameters(&self) -> TransportParameters {
        self.config.parameters()
    }
}

pub(crate) fn put_begin(out: &mut Vec<u8>, now: Instant, seed: &ConnectionSeed) {
    let control = &seed.control;
    put_word(out, now.as_nanos());
    out.push(u8::from(control.side == Side::Server));
    put_config(out, &seed.config);
    put_addresses(out, &seed.addresses);
    out.push(u8::from(seed.is_validated));
    put_id(out, &control.local_id);
    out.push(u8::from(control.preferred_id.is_some()));
    control.preferred_id.iter().for_each(|id| put_id(out, id));
    put_id(out, &control.remote_id);
    put_id(out, &control.original_destination);
    put_version(out, control.version);
    out.push(u8::from(control.other_initial.is_some()));
    control.secrets.put(out);
    put_word(out, seed.seed);
    put_word(out, seed.seal.packet.confidentiality_limit());
    put_word(out, control.initial.packet.integrity_limit());
}

/// Reads the entry that [`put_begin`] has written, and makes a seed to begin the connection again.
pub(crate) fn begin(reader: &mut Reader<'_>) -> Parsed<(JournalHead, ConnectionSeed)> {
    let began_at = Instant::from_nanos(word(reader)?.min(NANOS_MAX));
    let side = if flag(reader)? { Side::Server } else { Side::Client };
    let config = config(reader)?;
    let addresses = addresses(reader)?;
    let is_validated = flag(reader)?;
    let local_id = id(reader)?;
    let preferred_id = if flag(reader)? { Some(id(reader)?) } else { None };
    let (remote_id, original_destination) = (id(reader)?, id(reader)?);
    let version = version(reader)?;
    let other_initial = flag(reader)?.then(|| no_level_keys(u64::MAX, u64::MAX).open);
    let secrets = SecretSource::read(reader)?;
    let seed = word(reader)?;
    let keys = no_level_keys(word(reader)?, word(reader)?);
    let control = ControlSeed {
        side,
        session: AnySession::Replayed(Box::new(ReplayedSession::new())),
        version,
        initial: keys.open,
        other_initial,
        local_id,
        preferred_id,
        remote_id,
        original_destination,
        secrets,
    };
    let head = JournalHead { side, began_at, addresses, local_id, original_destination, config: config.clone() };
    let seed = ConnectionSeed { config: config.into(), addresses, is_validated, control, seal: keys.seal, seed };
    Ok((head, seed))
}

fn put_config(out: &mut Vec<u8>, config: &TransportConfig) {
    let TransportConfig {
        idle_timeout,
        handshake_timeout,
        keep_alive,
        stream_window,
        stream_window_max,
        connection_window,
        connection_window_max,
        send_buffer_max,
        max_concurrent_bidi_streams,
        max_concurrent_uni_streams,
        datagram_send_buffer,
        datagram_receive_buffer,
        datagram_size,
        datagram_size_max,
        initial_rtt,
        congestion,
        max_paths,
        scheduler,
        policy,
        // Sinks do not change the behaviour.
        scheduler_trace: _,
        journal: _,
        rate_cap,
        key_update_interval,
        park_after,
        ecn,
        grease,
        versions,
        preferred_addresses,
    } = config;
    put_word(out, idle_timeout.as_nanos());
    put_word(out, handshake_timeout.as_nanos());
    put_span(out, *keep_alive);
    let numbers = [
        *stream_window,
        *stream_window_max,
        *connection_window,
        *connection_window_max,
        *send_buffer_max,
        *max_concurrent_bidi_streams,
        *max_concurrent_uni_streams,
        *datagram_send_buffer,
        *datagram_receive_buffer,
        *datagram_size as u64,
        *datagram_size_max as u64,
        *key_update_interval,
    ];
    numbers.into_iter().for_each(|number| put_word(out, number));
    put_word(out, initial_rtt.as_nanos());
    put(out, u64::from(*max_paths));
    for name in [congestion.to_string(), scheduler.to_string(), policy.to_string()] {
        put_bytes(out, name.as_bytes());
    }
    out.push(u8::from(rate_cap.is_some()));
    if let Some(cap) = rate_cap {
        put_word(out, cap.rate.as_bps());
        put_word(out, cap.burst);
    }
    put_span(out, *park_after);
    out.push(u8::from(*ecn));
    out.push(u8::from(*grease));
    let number = Versions::ALL.iter().position(|known| known == versions).expect("all are listed");
    out.push(number as u8);
    put_preferred(out, preferred_addresses);
}

fn put_preferred(out: &mut Vec<u8>, preferred: &PreferredAddresses) {
    for address in [preferred.ipv4.map(SocketAddr::V4), preferred.ipv6.map(SocketAddr::V6)] {
        match address {
            None => out.push(0),
            Some(address) => {
                put_ip(out, &address.ip());
                put(out, u64::from(address.port()));
            }
        }
    }
}

fn preferred(reader: &mut Reader<'_>) -> Parsed<PreferredAddresses> {
    let mut preferred = PreferredAddresses::default();
    for expected in [4, 6] {
        match reader.u8()? {
            0 => {}
            family if family != expected => return Err(Malformed("an address of another family")),
            family => match SocketAddr::new(ip_of(family, reader)?, port(reader)?) {
                SocketAddr::V4(address) => preferred.ipv4 = Some(address),
                SocketAddr::V6(address) => preferred.ipv6 = Some(address),
            },
        }
    }
    Ok(preferred)
}

fn config(reader: &mut Reader<'_>) -> Parsed<TransportConfig> {
    let idle_timeout = Duration::from_nanos(word(reader)?);
    let handshake_timeout = Duration::from_nanos(word(reader)?);
    let keep_alive = span(reader)?;
    let mut numbers = [0; 12];
    for number in &mut numbers {
        *number = word(reader)?;
    }
    let [
        stream_window,
        stream_window_max,
        connection_window,
        connection_window_max,
        send_buffer_max,
        max_concurrent_bidi_streams,
        max_concurrent_uni_streams,
        datagram_send_buffer,
        datagram_receive_buffer,
        datagram_size,
        datagram_size_max,
        key_update_interval,
    ] = numbers;
    let initial_rtt = Duration::from_nanos(word(reader)?);
    let max_paths = short(reader)?;
    let unknown = Malformed("a name in its configuration is unknown to this version");
    let congestion = text(reader)?.parse().map_err(|_| unknown)?;
    let scheduler = text(reader)?.parse().map_err(|_| unknown)?;
    let policy = text(reader)?.parse().map_err(|_| unknown)?;
    let cap =
        if flag(reader)? { Some(RateCap { rate: Rate::from_bps(word(reader)?), burst: word(reader)? }) } else { None };
    let config = TransportConfig {
        idle_timeout,
        handshake_timeout,
        keep_alive,
        stream_window,
        stream_window_max,
        connection_window,
        connection_window_max,
        send_buffer_max,
        max_concurrent_bidi_streams,
        max_concurrent_uni_streams,
        datagram_send_buffer,
        datagram_receive_buffer,
        datagram_size: usize::try_from(datagram_size).unwrap_or(usize::MAX),
        datagram_size_max: usize::try_from(datagram_size_max).unwrap_or(usize::MAX),
        initial_rtt,
        congestion,
        max_paths,
        scheduler,
        policy,
        scheduler_trace: None,
        journal: None,
        rate_cap: cap,
        key_update_interval,
        park_after: span(reader)?,
        ecn: flag(reader)?,
        grease: flag(reader)?,
        versions: *Versions::ALL.get(usize::from(reader.u8()?)).ok_or(unknown)?,
        preferred_addresses: preferred(reader)?,
    };
    config.validate().map_err(|_| Malformed("its configuration cannot be"))?;
    if config.connection_window_max.max(config.connection_window) > UNREAD_MAX
        || config.stream_window.max(config.datagram_receive_buffer) > UNREAD_MAX
    {
        return Err(Malformed("its windows let a connection hold more than 1 GiB, which is not replayed"));
    }
    Ok(config)
}

impl SecretSource {
    fn put(&self, out: &mut Vec<u8>) {
        let (key, counter, index, count) = self.parts();
        put_bytes(out, key);
        put_word(out, counter);
        out.extend_from_slice(&[index, count]);
    }

    fn read(reader: &mut Reader<'_>) -> Parsed<Self> {
        let key = bytes(reader)?.try_into().map_err(|_| Malformed("a key of another length"))?;
        let counter = word(reader)?;
        Self::from_parts(key, counter, reader.u8()?, reader.u8()?).ok_or(Malformed("impossible connection IDs"))
    }
}
