//! The head of a log, and the tags of entries, described in `docs/spec/replay.md`.

use std::net::SocketAddr;

use ::journal::format::{Format, Parsed, ip_of, port, put, put_ip};
use units::Ecn;
use wire::quic::Reader;

/// The first bytes of a log.
pub const MAGIC: [u8; 8] = *b"LITZJTCP";

/// The only version that is written and read.
pub const VERSION: u64 = 1;

/// The head of a log.
pub(crate) const FORMAT: Format = Format { magic: MAGIC, version: VERSION };

/// Tags of entries, their first bytes: those of [`::journal::format::tag`] and these.
pub(crate) mod tag {
    pub(crate) const TIMEOUT: u8 = 8;
    pub(crate) const EMITTED: u8 = 9;
    pub(crate) const NOT_EMITTED: u8 = 10;
    pub(crate) const PLAN_ASKED: u8 = 11;

    pub(crate) const SEGMENT: u8 = 16;
    pub(crate) const ICMP: u8 = 17;
    pub(crate) const PASS_OVER_SYN: u8 = 18;

    pub(crate) const WRITE: u8 = 24;
    pub(crate) const FINISH: u8 = 25;
    pub(crate) const READ: u8 = 26;
    pub(crate) const ABORT: u8 = 27;
    pub(crate) const ORPHAN: u8 = 28;
    pub(crate) const SET_NAGLE: u8 = 29;
    pub(crate) const SET_KEEP_ALIVE: u8 = 30;
    pub(crate) const SET_DSCP: u8 = 31;

    pub(crate) const GRANT: u8 = 48;

    pub(crate) const ANSWER: u8 = 56;
    pub(crate) const PLANNED: u8 = 57;
    pub(crate) const EVENT: u8 = 58;
}

pub(crate) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    put_ip(out, &address.ip());
    put(out, address.port().into());
}

pub(crate) fn address(reader: &mut Reader<'_>) -> Parsed<SocketAddr> {
    let family = reader.u8()?;
    Ok(SocketAddr::new(ip_of(family, reader)?, port(reader)?))
}

/// Encodes the codepoint of the IP header in bits (RFC 3168, section 5).
pub(crate) const fn bits_of(ecn: Option<Ecn>) -> u8 {
    match ecn {
        None => 0,
        Some(Ecn::Ect1) => 1,
        Some(Ecn::Ect0) => 2,
        Some(Ecn::Ce) => 3,
    }
}

/// Decodes the codepoint in the lowest two bits.
pub(crate) const fn ecn_of(bits: u64) -> Option<Ecn> {
    match bits & 3 {
        0 => None,
        1 => Some(Ecn::Ect1),
        2 => Some(Ecn::Ect0),
        _ => Some(Ecn::Ce),
    }
}
