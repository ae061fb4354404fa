//! Constants and basic elements of the format, which `docs/spec/replay.md` describes. What does not
//! depend on the protocol is in [`::journal::format`].

use std::net::SocketAddr;

use ::journal::format::{
    Format, Malformed, Parsed, bytes, flag, ip_of, port, put, put_bytes, put_ip, put_word, short, word,
};
use units::Rate;
use wire::quic::{ConnectionId, PathId, Reader, Version};

use crate::addresses::Addresses;
use crate::class::{PATH_SET_MAX, PathSet, RateLimit};

/// The first bytes of a log.
pub const MAGIC: [u8; 8] = *b"LITZJRNL";

/// The version that is written, and the only one that is read.
pub const VERSION: u64 = 6;

/// The head of a log.
pub(crate) const FORMAT: Format = Format { magic: MAGIC, version: VERSION };

/// Addresses that a log numbers. Each belongs to a path, so few logs need more than a handful.
/// Further ones are written in full each time.
pub(crate) const ADDRESSES_NUMBERED_MAX: usize = 64;

/// The longest form of [`put_addresses`], bytes: two of IPv6, ports, socket, scope and flow label.
pub(crate) const ADDRESSES_LEN_MAX: usize = 64;

/// The tag of an entry, its first byte: those of [`::journal::format::tag`] and these.
pub(crate) mod tag {
    pub(crate) const TIMEOUT: u8 = 8;
    pub(crate) const EMITTED: u8 = 9;
    pub(crate) const NOT_EMITTED: u8 = 10;
    pub(crate) const PLAN_ASKED: u8 = 11;
    pub(crate) const TAIL_ASKED: u8 = 12;

    pub(crate) const ARRIVAL: u8 = 16;
    pub(crate) const OPENED: u8 = 17;
    pub(crate) const SINGLE: u8 = 18;
    pub(crate) const SETTLE: u8 = 19;
    pub(crate) const OTHER_VERSION: u8 = 20;
    pub(crate) const TRAILER: u8 = 21;
    pub(crate) const RETRY: u8 = 22;
    pub(crate) const TOKEN: u8 = 23;

    pub(crate) const OPEN: u8 = 24;
    pub(crate) const ACCEPT: u8 = 25;
    pub(crate) const WRITE: u8 = 26;
    pub(crate) const WRITE_SOME: u8 = 27;
    pub(crate) const FINISH: u8 = 28;
    pub(crate) const RESET: u8 = 29;
    pub(crate) const PRIORITY: u8 = 30;
    pub(crate) const READ: u8 = 31;
    pub(crate) const STOP: u8 = 32;
    pub(crate) const SEND_DATAGRAM: u8 = 33;
    pub(crate) const RECV_DATAGRAM: u8 = 34;
    pub(crate) const CLOSE: u8 = 35;
    pub(crate) const OPEN_PATH: u8 = 36;
    pub(crate) const ABANDON_PATH: u8 = 37;
    pub(crate) const SET_BACKUP: u8 = 38;
    pub(crate) const TOO_LARGE: u8 = 39;
    pub(crate) const REFUSED: u8 = 40;
    pub(crate) const SET_RATE: u8 = 41;
    pub(crate) const SET_STREAM_RATE: u8 = 42;
    pub(crate) const SET_STREAM_PATHS: u8 = 43;
    pub(crate) const SET_BACKGROUND: u8 = 44;
    pub(crate) const MIGRATE: u8 = 45;
    pub(crate) const OPEN_EARLY: u8 = 46;
    pub(crate) const SEND_DATAGRAM_ON: u8 = 47;

    pub(crate) const SESSION_INPUT: u8 = 48;
    pub(crate) const SESSION_OUTPUT: u8 = 49;
    pub(crate) const SESSION_SUMMARY: u8 = 50;
    pub(crate) const RESET_TOKEN: u8 = 51;
    pub(crate) const SESSION_EARLY: u8 = 52;
    pub(crate) const SESSION_VERDICT: u8 = 53;
    pub(crate) const ADDRESS_TOKEN: u8 = 54;

    pub(crate) const ANSWER: u8 = 56;
    pub(crate) const PLANNED: u8 = 57;
    pub(crate) const EVENT: u8 = 58;
    pub(crate) const ROUTE: u8 = 59;
}

/// A limit of rate and burst, or none.
pub(crate) fn put_limit(out: &mut Vec<u8>, limit: Option<RateLimit>) {
    out.push(u8::from(limit.is_some()));
    if let Some(limit) = limit {
        put_word(out, limit.rate().as_bps());
        put_word(out, limit.burst_bytes());
    }
}

pub(crate) fn limit(reader: &mut Reader<'_>) -> Parsed<Option<RateLimit>> {
    if !flag(reader)? {
        return Ok(None);
    }
    let (rate, burst) = (Rate::from_bps(word(reader)?), word(reader)?);
    RateLimit::new(rate, burst).map(Some).map_err(|_| Malformed("a limit that lets nothing leave"))
}

/// The paths of a set after their number, which is zero for all of them.
pub(crate) fn put_path_set(out: &mut Vec<u8>, paths: &PathSet) {
    put(out, paths.named().len() as u64);
    paths.named().iter().for_each(|path| put(out, u64::from(path.0)));
}

pub(crate) fn path_set(reader: &mut Reader<'_>) -> Parsed<PathSet> {
    let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if count == 0 {
        return Ok(PathSet::ALL);
    }
    if count > PATH_SET_MAX {
        return Err(Malformed("more paths than one set may name"));
    }
    let named = (0..count).map(|_| short(reader).map(PathId)).collect::<Parsed<Vec<_>>>()?;
    PathSet::only(&named).map_err(|_| Malformed("an impossible set of paths"))
}

pub(crate) fn put_id(out: &mut Vec<u8>, id: &ConnectionId) {
    put_bytes(out, id.as_slice());
}

pub(crate) fn id(reader: &mut Reader<'_>) -> Parsed<ConnectionId> {
    ConnectionId::new(bytes(reader)?).ok_or(Malformed("a connection ID of more than 20 bytes"))
}

pub(crate) fn put_version(out: &mut Vec<u8>, version: Version) {
    put(out, u64::from(version.number()));
}

pub(crate) fn version(reader: &mut Reader<'_>) -> Parsed<Version> {
    Version::from_number(short(reader)?).ok_or(Malformed("an unknown version of QUIC"))
}

/// Both ends of a path, written out.
pub(crate) fn put_addresses(out: &mut Vec<u8>, addresses: &Addresses) {
    put_ip(out, &addresses.remote.ip());
    put(out, u64::from(addresses.remote.port()));
    if let SocketAddr::V6(remote) = &addresses.remote {
        put(out, u64::from(remote.flowinfo()));
        put(out, u64::from(remote.scope_id()));
    }
    match &addresses.local_ip {
        Some(ip) => put_ip(out, ip),
        None => out.push(0),
    }
    put(out, u64::from(addresses.socket));
}

pub(crate) fn addresses(reader: &mut Reader<'_>) -> Parsed<Addresses> {
    let family = reader.u8()?;
    let ip = ip_of(family, reader)?;
    let mut remote = SocketAddr::new(ip, port(reader)?);
    if let SocketAddr::V6(remote) = &mut remote {
        remote.set_flowinfo(short(reader)?);
        remote.set_scope_id(short(reader)?);
    }
    let local_ip = match reader.u8()? {
        0 => None,
        family => Some(ip_of(family, reader)?),
    };
    Ok(Addresses { remote, local_ip, socket: port(reader)? })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn addresses_come_back(remote: SocketAddr, local_ip: Option<IpAddr>, socket: u16) {
            let wanted = Addresses { remote, local_ip, socket };
            let mut out = Vec::new();
            put_addresses(&mut out, &wanted);
            prop_assert!(out.len() <= ADDRESSES_LEN_MAX);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(addresses(&mut reader), Ok(wanted));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn limits_and_sets_of_paths_come_back(
            rate in 1_u64.., burst in crate::class::BURST_MIN.., is_limited: bool,
            named in proptest::collection::vec(0_u32.., 0..=PATH_SET_MAX),
        ) {
            let wanted_limit = is_limited.then(|| RateLimit::new(Rate::from_bps(rate), burst).unwrap());
            let named: Vec<PathId> = named.into_iter().map(PathId).collect();
            let wanted_paths = PathSet::only(&named).unwrap_or(PathSet::ALL);
            let mut out = Vec::new();
            put_limit(&mut out, wanted_limit);
            put_path_set(&mut out, &wanted_paths);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(limit(&mut reader), Ok(wanted_limit));
            prop_assert_eq!(path_set(&mut reader), Ok(wanted_paths));
            prop_assert!(reader.is_empty());
        }
    }
}
