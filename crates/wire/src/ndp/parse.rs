//! Parsing of messages and their options.

use std::net::Ipv6Addr;

use super::prefix::{Prefix, Prefixes};
use super::{Message, ParseError, RouterAdvertisement, UNIT, option, solicited_node, ty};
use crate::ethernet::MacAddress;

/// Options of any message. If an option occurs twice, the last one counts; of prefixes all count.
#[derive(Default)]
struct Options {
    source_link: Option<MacAddress>,
    target_link: Option<MacAddress>,
    mtu: Option<u32>,
    prefixes: Prefixes,
}

impl Message {
    /// Parses a message; `body` follows the checksum. Returns `None` for other types.
    pub(crate) fn parse(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        ty: u8,
        code: u8,
        body: &[u8],
    ) -> Option<Result<Self, ParseError>> {
        let message = match ty {
            ty::ROUTER_SOLICITATION => router_solicitation(source, body),
            ty::ROUTER_ADVERTISEMENT => router_advertisement(source, body),
            ty::NEIGHBOR_SOLICITATION => neighbor_solicitation(source, destination, body),
            ty::NEIGHBOR_ADVERTISEMENT => neighbor_advertisement(destination, body),
            _ => return None,
        };
        Some(if code == 0 { message } else { Err(ParseError::Code) })
    }
}

/// Parses a router solicitation (RFC 4861, section 6.1.1).
fn router_solicitation(source: Ipv6Addr, body: &[u8]) -> Result<Message, ParseError> {
    let (_, options) = fields::<4>(body)?;
    if source.is_unspecified() && options.source_link.is_some() {
        return Err(ParseError::Unspecified);
    }
    Ok(Message::RouterSolicitation { source_link: options.source_link })
}

/// Parses a router advertisement (RFC 4861, section 6.1.2).
fn router_advertisement(source: Ipv6Addr, body: &[u8]) -> Result<Message, ParseError> {
    let (&[hop_limit, flags, l0, l1, a0, a1, a2, a3, b0, b1, b2, b3], options) = fields::<12>(body)?;
    if !source.is_unicast_link_local() {
        return Err(ParseError::Source);
    }
    Ok(Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit,
        is_managed: flags & 0x80 != 0,
        has_other_configuration: flags & 0x40 != 0,
        router_lifetime_s: u16::from_be_bytes([l0, l1]),
        reachable_time_ms: u32::from_be_bytes([a0, a1, a2, a3]),
        retransmit_timer_ms: u32::from_be_bytes([b0, b1, b2, b3]),
        source_link: options.source_link,
        mtu: options.mtu,
        prefixes: options.prefixes,
    }))
}

/// Parses a neighbor solicitation (RFC 4861, section 7.1.1).
fn neighbor_solicitation(source: Ipv6Addr, destination: Ipv6Addr, body: &[u8]) -> Result<Message, ParseError> {
    let (fields, options) = fields::<20>(body)?;
    let target = target(fields)?;
    let is_solicited_node = destination == solicited_node(destination);
    if source.is_unspecified() && (options.source_link.is_some() || !is_solicited_node) {
        return Err(ParseError::Unspecified);
    }
    Ok(Message::NeighborSolicitation { target, source_link: options.source_link })
}

/// Parses a neighbor advertisement (RFC 4861, section 7.1.2).
fn neighbor_advertisement(destination: Ipv6Addr, body: &[u8]) -> Result<Message, ParseError> {
    let (fields, options) = fields::<20>(body)?;
    let target = target(fields)?;
    let is_solicited = fields[0] & 0x40 != 0;
    if is_solicited && destination.is_multicast() {
        return Err(ParseError::Solicited);
    }
    Ok(Message::NeighborAdvertisement {
        target,
        is_router: fields[0] & 0x80 != 0,
        is_solicited,
        is_override: fields[0] & 0x20 != 0,
        target_link: options.target_link,
    })
}

/// Returns the fixed fields and the options.
fn fields<const LEN: usize>(body: &[u8]) -> Result<(&[u8; LEN], Options), ParseError> {
    let (fields, options) = body.split_first_chunk().ok_or(ParseError::Truncated)?;
    Ok((fields, self::options(options)?))
}

fn target(fields: &[u8; 20]) -> Result<Ipv6Addr, ParseError> {
    let target = address(fields, 4);
    if target.is_multicast() { Err(ParseError::Target) } else { Ok(target) }
}

/// Parses the options (RFC 4861, section 4.6). Options of an unexpected length are ignored, because
/// their meaning is unknown.
fn options(mut bytes: &[u8]) -> Result<Options, ParseError> {
    let mut options = Options::default();
    while let [ty, units, ..] = *bytes {
        let len = usize::from(units) * UNIT;
        // An option of length zero would never end.
        if len == 0 {
            return Err(ParseError::OptionLength);
        }
        let (option, rest) = bytes.split_at_checked(len).ok_or(ParseError::OptionLength)?;
        bytes = rest;
        match (ty, option) {
            (option::SOURCE_LINK_LAYER, &[_, _, a, b, c, d, e, f]) => {
                options.source_link = Some(MacAddress([a, b, c, d, e, f]));
            }
            (option::TARGET_LINK_LAYER, &[_, _, a, b, c, d, e, f]) => {
                options.target_link = Some(MacAddress([a, b, c, d, e, f]));
            }
            (option::MTU, &[_, _, _, _, a, b, c, d]) => options.mtu = Some(u32::from_be_bytes([a, b, c, d])),
            (option::PREFIX, option) => {
                if let Ok(option) = option.try_into()
                    && let Some(prefix) = prefix(option)
                {
                    options.prefixes.push(prefix);
                }
            }
            _ => {}
        }
    }
    if bytes.is_empty() { Ok(options) } else { Err(ParseError::OptionLength) }
}

/// Parses a prefix option (RFC 4861, section 4.6.2). Returns `None` for a prefix that is longer
/// than an address.
fn prefix(option: &[u8; 32]) -> Option<Prefix> {
    let u32_at = |at| u32::from_be_bytes([option[at], option[at + 1], option[at + 2], option[at + 3]]);
    let prefix = Prefix {
        address: address(option, 16),
        len: option[2],
        is_on_link: option[3] & 0x80 != 0,
        is_autonomous: option[3] & 0x40 != 0,
        valid_s: u32_at(4),
        preferred_s: u32_at(8),
    };
    (prefix.len <= 128).then_some(prefix)
}

/// Returns the address at `at`, which must lie within `bytes`.
fn address(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    octets.into()
}
