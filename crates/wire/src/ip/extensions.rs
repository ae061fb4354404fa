//! IPv6 extension headers (RFC 8200, section 4).

use super::error::{OptionReport, ParseError};
use super::packet::{Fragment, IPV6_HEADER_LEN};
use super::protocol::Protocol;

#[cfg(test)]
mod tests;

/// Maximum number of extension headers that are skipped in one packet. Senders use one or two. A
/// limit bounds the work for packets of tiny headers (RFC 8504, section 5.3, permits one).
pub const EXTENSIONS_MAX: usize = 8;

/// Length of a fragment header (RFC 8200, section 4.5).
pub(super) const FRAGMENT_HEADER_LEN: usize = 8;

/// The end of a chain of extension headers.
pub(super) struct Chain {
    pub(super) protocol: Protocol,
    /// Length of all extension headers.
    pub(super) len: usize,
    /// Position of an incomplete payload, if the chain ends with its fragment header.
    pub(super) fragment: Option<Fragment>,
}

/// Skips the extension headers with which an IPv6 payload begins after reassembly. Returns the
/// protocol of the bytes after them, and their offset.
///
/// Offsets in errors count from the start of a packet whose only header before `payload` is the
/// fixed one.
pub fn skip_extensions(protocol: Protocol, payload: &[u8]) -> Result<(Protocol, usize), ParseError> {
    // Hop-by-hop options may not follow a fragment header.
    if protocol == Protocol::HOP_BY_HOP {
        return Ok((protocol, 0));
    }
    // A fragment is rejected, so its headers need no check.
    let chain = walk(protocol, payload, true)?;
    match chain.fragment {
        // Fragments of fragments do not exist.
        Some(_) => Err(ParseError::IncompleteHeaders),
        None => Ok((chain.protocol, chain.len)),
    }
}

/// Walks over the headers of `bytes`, which follows the IPv6 header.
#[inline]
pub(super) fn walk(first: Protocol, bytes: &[u8], is_quoted: bool) -> Result<Chain, ParseError> {
    if !is_extension(first) {
        return Ok(Chain { protocol: first, len: 0, fragment: None });
    }
    walk_chain(first, bytes, is_quoted)
}

fn walk_chain(first: Protocol, bytes: &[u8], is_quoted: bool) -> Result<Chain, ParseError> {
    let (mut protocol, mut len) = (first, 0);
    for _ in 0..EXTENSIONS_MAX {
        // Elsewhere, hop-by-hop options count as an unrecognized header (RFC 8200, section 4).
        if !is_extension(protocol) || protocol == Protocol::HOP_BY_HOP && len > 0 {
            return Ok(Chain { protocol, len, fragment: None });
        }
        let header = header(protocol, &bytes[len..])?;
        check(protocol, header, len)?;
        let fragment = if protocol == Protocol::FRAGMENT { fragment(header) } else { None };
        protocol = Protocol(header[0]);
        len += header.len();
        if fragment.is_some() {
            if !is_quoted && fragment.is_some_and(|fragment| fragment.offset == 0) {
                check_first_fragment(protocol, &bytes[len..])?;
            }
            return Ok(Chain { protocol, len, fragment });
        }
    }
    if is_extension(protocol) {
        return Err(ParseError::TooManyExtensions);
    }
    Ok(Chain { protocol, len, fragment: None })
}

const fn is_extension(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::FRAGMENT | Protocol::DESTINATION_OPTIONS)
}

/// Returns the extension header at the start of `bytes`, of at least 8 bytes.
fn header(protocol: Protocol, bytes: &[u8]) -> Result<&[u8], ParseError> {
    let [_, units, ..] = bytes else { return Err(ParseError::Truncated) };
    let len = if protocol == Protocol::FRAGMENT { FRAGMENT_HEADER_LEN } else { (usize::from(*units) + 1) * 8 };
    bytes.get(..len).ok_or(ParseError::Truncated)
}

/// Checks whether a host accepts the header, which is `at` bytes after the IPv6 header.
fn check(protocol: Protocol, header: &[u8], at: usize) -> Result<(), ParseError> {
    match protocol {
        Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => check_options(header, at),
        // RFC 8200, section 4.4: a header without segments left is ignored. With segments left, any
        // type is unrecognized here.
        Protocol::ROUTING if header[3] > 0 => Err(ParseError::Routing { pointer: IPV6_HEADER_LEN + at + 2 }),
        _ => Ok(()),
    }
}

/// Checks whether a host that supports no option but padding accepts the options (RFC 8200, section
/// 4.2).
fn check_options(header: &[u8], at: usize) -> Result<(), ParseError> {
    // Pad1 is the only option without a length.
    const PAD1: u8 = 0;
    let mut next = 2;
    while let Some(&ty) = header.get(next) {
        if ty == PAD1 {
            next += 1;
            continue;
        }
        let pointer = IPV6_HEADER_LEN + at + next;
        let report = match ty >> 6 {
            // PadN, Router Alert (RFC 2711) and all other options that a host may skip.
            0b00 => None,
            0b01 => Some(OptionReport::Never),
            0b10 => Some(OptionReport::Always),
            _ => Some(OptionReport::Unicast),
        };
        if let Some(report) = report {
            return Err(ParseError::UnknownOption { pointer, report });
        }
        let len = header.get(next + 1).ok_or(ParseError::HeaderLength)?;
        next += 2 + usize::from(*len);
    }
    if next == header.len() { Ok(()) } else { Err(ParseError::HeaderLength) }
}

/// Parses a fragment header (RFC 8200, section 4.5). Returns `None` if the header surrounds a whole
/// payload, which is then handled as if the header did not exist (RFC 6946, section 4).
fn fragment(header: &[u8]) -> Option<Fragment> {
    let field = u16::from_be_bytes([header[2], header[3]]);
    let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let (offset, more) = (usize::from(field & 0xfff8), field & 1 != 0);
    (offset != 0 || more).then_some(Fragment { id, offset, more })
}

/// Checks that the first fragment has all headers, including the transport header (RFC 7112,
/// section 5). Filters that see only the first fragment therefore see the ports.
fn check_first_fragment(protocol: Protocol, payload: &[u8]) -> Result<(), ParseError> {
    let incomplete = |error| if error == ParseError::Truncated { ParseError::IncompleteHeaders } else { error };
    let (protocol, at) = skip_extensions(protocol, payload).map_err(incomplete)?;
    let transport = &payload[at..];
    let len = match protocol {
        Protocol::TCP => transport.get(12).map_or(20, |byte| usize::from(byte >> 4) * 4).max(20),
        Protocol::UDP | Protocol::ICMPV6 => 8,
        _ => 0,
    };
    if transport.len() < len { Err(ParseError::IncompleteHeaders) } else { Ok(()) }
}
