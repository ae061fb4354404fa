//! The first entry: initial values of a connection.

use std::sync::Arc;

use ::journal::Side;
use ::journal::format::{Malformed, NANOS_MAX, Parsed, bytes, flag, put, put_bytes, put_word, short, word};
use recovery::Algorithm;
use units::{Duration, Instant, Seq32};
use wire::quic::Reader;

use super::format::{address, put_address};
use super::segment::LastSegment;
use crate::arrival::Arrival;
use crate::budget::BufferBudget;
use crate::config::{
    AckPolicy, AckThreshold, AckTimer, KeepAlive, LossRecovery, Nagle, RtoFormula, TcpConfig, WindowGrowth,
};
use crate::md5::Md5Key;
use crate::tuple::Tuple;

/// Buffer size limit of a replay, in bytes. A log whose configuration exceeds it is not replayed.
pub const BUFFER_MAX: usize = 1 << 30;

/// Initial values of a connection, from its log.
#[derive(Debug, Clone)]
pub struct JournalHead {
    /// Role: a client opened it, a server accepted it.
    pub side: Side,
    /// Start of the connection, since the run began.
    pub began_at: Instant,
    /// Addresses and ports.
    pub tuple: Tuple,
    /// Configuration. The log does not contain a TCP-MD5 key; another one takes its place. The
    /// budget is separate.
    pub config: TcpConfig,
}

/// Initial values of a connection.
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) config: Arc<TcpConfig>,
    pub(crate) tuple: Tuple,
    pub(crate) initial: Seq32,
    pub(crate) timestamp_offset: u32,
}

/// Writes the initial values. `syn` is the peer's, if the connection answers one.
pub(crate) fn put_begin(out: &mut Vec<u8>, now: Instant, seed: &Seed, syn: Option<&Arrival>) {
    put_word(out, now.as_nanos());
    put_config(out, &seed.config);
    put_address(out, seed.tuple.local);
    put_address(out, seed.tuple.remote);
    put(out, seed.initial.get().into());
    put(out, seed.timestamp_offset.into());
    out.push(u8::from(syn.is_some()));
    if let Some(syn) = syn {
        LastSegment::default().put(out, syn);
    }
}

/// Reads the values written by [`put_begin`].
pub(crate) fn begin(reader: &mut Reader<'_>) -> Parsed<(JournalHead, Seed, Option<Arrival>)> {
    let began_at = Instant::from_nanos(word(reader)?.min(NANOS_MAX));
    let config = config(reader)?;
    let tuple = Tuple { local: address(reader)?, remote: address(reader)? };
    if tuple.local.is_ipv4() != tuple.remote.is_ipv4() {
        return Err(Malformed("addresses of different families"));
    }
    let (initial, timestamp_offset) = (Seq32::new(short(reader)?), short(reader)?);
    let syn = if flag(reader)? { Some(LastSegment::default().read(reader, &tuple)?) } else { None };
    let side = if syn.is_some() { Side::Server } else { Side::Client };
    let replayed = TcpConfig { budget: Arc::new(BufferBudget::replayed()), ..config.clone() };
    let seed = Seed { config: Arc::new(replayed), tuple, initial, timestamp_offset };
    Ok((JournalHead { side, began_at, tuple, config }, seed, syn))
}

/// Returns the index of `wanted` in a list of all values of an enumeration.
fn index_of<T: PartialEq>(all: &[T], wanted: &T) -> u8 {
    all.iter().position(|known| known == wanted).expect("all are listed") as u8
}

fn one_of<T: Copy>(all: &[T], reader: &mut Reader<'_>) -> Parsed<T> {
    all.get(usize::from(reader.u8()?)).copied().ok_or(Malformed("an unknown choice"))
}

const NAGLE: [Nagle; 3] = [Nagle::Off, Nagle::Rfc896, Nagle::Minshall];
const TIMERS: [AckTimer; 2] = [AckTimer::FromSegment, AckTimer::Periodic];
const GROWTH: [WindowGrowth; 2] = [WindowGrowth::Segment, WindowGrowth::Any];
const RECOVERY: [LossRecovery; 2] = [LossRecovery::Selective, LossRecovery::GoBackN];

fn put_config(out: &mut Vec<u8>, config: &TcpConfig) {
    let TcpConfig {
        congestion,
        mtu,
        send_buffer,
        receive_buffer,
        buffers_initial,
        // Every grant is recorded.
        budget: _,
        // Recorders do not affect the behaviour.
        journal: _,
        timestamps,
        sack,
        window_scaling,
        ecn,
        accurate_ecn,
        path_probing,
        nagle,
        acks: AckPolicy { threshold, delay_max, timer },
        window_growth,
        recovery,
        rto_formula,
        rto_min,
        syn_attempts_max,
        timeouts_max,
        time_wait,
        md5,
        keep_alive,
    } = config;
    put_bytes(out, congestion.map_or("", Algorithm::name).as_bytes());
    for bytes in [mtu, send_buffer, receive_buffer, buffers_initial] {
        put_word(out, *bytes as u64);
    }
    let flags = [*timestamps, *sack, *window_scaling, *ecn, *accurate_ecn, *path_probing, md5.is_some()];
    out.push(flags.into_iter().enumerate().fold(0, |bits, (at, is_on)| bits | u8::from(is_on) << at));
    let (kind, number) = match threshold {
        AckThreshold::Segments(count) => (0, *count),
        AckThreshold::BufferPercent(percent) => (1, *percent),
        AckThreshold::Read => (2, 0),
    };
    out.extend_from_slice(&[index_of(&NAGLE, nagle), index_of(&TIMERS, timer), kind]);
    put(out, number.into());
    put_word(out, delay_max.as_nanos());
    out.extend_from_slice(&[index_of(&GROWTH, window_growth), index_of(&RECOVERY, recovery)]);
    match rto_formula {
        RtoFormula::Rfc6298 => out.push(0),
        RtoFormula::Rfc793 { alpha_percent, beta_percent } => {
            out.push(1);
            put(out, (*alpha_percent).into());
            put(out, (*beta_percent).into());
        }
    }
    put_word(out, rto_min.as_nanos());
    put(out, (*syn_attempts_max).into());
    put(out, (*timeouts_max).into());
    put_word(out, time_wait.as_nanos());
    put_keep_alive(out, keep_alive.as_ref());
}

fn config(reader: &mut Reader<'_>) -> Parsed<TcpConfig> {
    let congestion = match bytes(reader)? {
        [] => None,
        name => {
            let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            Some(name.ok_or(Malformed("an unknown congestion controller"))?)
        }
    };
    let mut size = || word(reader).map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    let (mtu, send_buffer, receive_buffer, buffers_initial) = (size()?, size()?, size()?, size()?);
    if send_buffer.max(receive_buffer) > BUFFER_MAX {
        return Err(Malformed("buffers of more than 2^30 bytes"));
    }
    let flags = reader.u8()?;
    let flag = |at: u8| flags >> at & 1 != 0;
    let (nagle, timer, kind) = (one_of(&NAGLE, reader)?, one_of(&TIMERS, reader)?, reader.u8()?);
    let threshold = match (kind, short(reader)?) {
        (0, count) => AckThreshold::Segments(count),
        (1, percent) => AckThreshold::BufferPercent(percent),
        (2, _) => AckThreshold::Read,
        _ => return Err(Malformed("an unknown threshold of acknowledgements")),
    };
    let acks = AckPolicy { threshold, delay_max: span(reader)?, timer };
    let (window_growth, recovery) = (one_of(&GROWTH, reader)?, one_of(&RECOVERY, reader)?);
    let rto_formula = match reader.u8()? {
        0 => RtoFormula::Rfc6298,
        1 => RtoFormula::Rfc793 { alpha_percent: short(reader)?, beta_percent: short(reader)? },
        _ => return Err(Malformed("an unknown formula of timeouts")),
    };
    let md5 = flag(6).then(|| Md5Key::new(&[0]).expect("one byte is a key"));
    Ok(TcpConfig {
        congestion,
        mtu,
        send_buffer,
        receive_buffer,
        buffers_initial,
        budget: Arc::default(),
        journal: None,
        timestamps: flag(0),
        sack: flag(1),
        window_scaling: flag(2),
        ecn: flag(3),
        accurate_ecn: flag(4),
        path_probing: flag(5),
        nagle,
        acks,
        window_growth,
        recovery,
        rto_formula,
        rto_min: span(reader)?,
        syn_attempts_max: short(reader)?,
        timeouts_max: short(reader)?,
        time_wait: span(reader)?,
        md5,
        keep_alive: keep_alive(reader)?,
    })
}

/// Reads a duration in nanoseconds, at most as long as a log may be.
fn span(reader: &mut Reader<'_>) -> Parsed<Duration> {
    let nanos = word(reader)?;
    if nanos > NANOS_MAX { Err(Malformed("an impossible span")) } else { Ok(Duration::from_nanos(nanos)) }
}

pub(crate) fn put_keep_alive(out: &mut Vec<u8>, keep_alive: Option<&KeepAlive>) {
    out.push(u8::from(keep_alive.is_some()));
    if let Some(KeepAlive { after, interval, probes_max }) = keep_alive {
        put_word(out, after.as_nanos());
        put_word(out, interval.as_nanos());
        put(out, (*probes_max).into());
    }
}

pub(crate) fn keep_alive(reader: &mut Reader<'_>) -> Parsed<Option<KeepAlive>> {
    if !flag(reader)? {
        return Ok(None);
    }
    Ok(Some(KeepAlive { after: span(reader)?, interval: span(reader)?, probes_max: short(reader)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_comes_back() {
        let key = Md5Key::new(b"secret").expect("a valid key");
        let keep_alive = KeepAlive { after: Duration::from_secs(3), interval: Duration::from_millis(7), probes_max: 4 };
        let all = [
            TcpConfig::default(),
            TcpConfig::classic(),
            TcpConfig { md5: Some(key), keep_alive: Some(keep_alive), accurate_ecn: true, ..TcpConfig::default() },
            TcpConfig { congestion: Some(Algorithm::Bbr), mtu: 9000, ..TcpConfig::classic() },
        ];
        for config in all {
            let mut out = Vec::new();
            put_config(&mut out, &config);
            let mut reader = Reader::new(&out);
            let read = super::config(&mut reader).expect("what was written is valid");
            assert!(reader.is_empty());
            let text = |config: &TcpConfig| {
                // Each value has a separate budget.
                format!("{:?}", TcpConfig { budget: Arc::default(), ..config.clone() })
            };
            assert_eq!(text(&read), text(&config));
            assert!(!out.windows(6).any(|window| window == b"secret"));
        }
    }
}
