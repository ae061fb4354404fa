//! Parsing of both versions.

use std::net::{IpAddr, Ipv6Addr};

use super::unreachable::Unreachable;
use super::{HEADER_LEN, Message, ParseError, v4, v6};
use crate::ip::Protocol;
use crate::{checksum, ndp};

impl<'a> Message<'a> {
    /// Parses the message that is the payload of a packet between the two addresses.
    pub fn parse(source: IpAddr, destination: IpAddr, bytes: &'a [u8]) -> Result<Self, ParseError> {
        match (source, destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => icmpv6(source, destination, bytes),
            _ => icmp(bytes),
        }
    }
}

/// Parses an ICMP message (RFC 792). Codes of echo messages have no meaning.
fn icmp(bytes: &[u8]) -> Result<Message<'_>, ParseError> {
    let (ty, code, body) = split(bytes, 0)?;
    let known =
        matches!(ty, v4::ECHO_REPLY | v4::UNREACHABLE | v4::ECHO_REQUEST | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM);
    if !known {
        return Ok(Message::Other { ty, code, body });
    }
    let (&word, rest) = body.split_first_chunk().ok_or(ParseError::Truncated)?;
    // RFC 4884, section 4.1: the length of the quotation in words of 32 bits.
    let quoted = || without_extensions(rest, usize::from(word[1]) * 4);
    Ok(match ty {
        v4::ECHO_REQUEST | v4::ECHO_REPLY => echo(ty == v4::ECHO_REQUEST, word, rest),
        v4::UNREACHABLE => {
            let code = Unreachable::from_v4(code);
            let mtu = u32::from(u16::from_be_bytes([word[2], word[3]]));
            // RFC 1191, section 4.
            let mtu = (code == Unreachable::FragmentationNeeded && mtu > 0).then_some(mtu);
            Message::Unreachable { code, mtu, quoted: quoted() }
        }
        v4::TIME_EXCEEDED => Message::TimeExceeded { code, quoted: quoted() },
        _ => Message::ParameterProblem { code, pointer: u32::from(word[0]), quoted: quoted() },
    })
}

/// Parses an ICMPv6 message (RFC 4443).
fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, bytes: &[u8]) -> Result<Message<'_>, ParseError> {
    // RFC 4443, section 2.3.
    let pseudo = checksum::pseudo_header(source.into(), destination.into(), Protocol::ICMPV6, bytes.len() as u32);
    let (ty, code, body) = split(bytes, pseudo)?;
    if let Some(message) = ndp::Message::parse(source, destination, ty, code, body) {
        return message.map(Message::Ndp).map_err(ParseError::Ndp);
    }
    let known = matches!(
        ty,
        v6::UNREACHABLE
            | v6::PACKET_TOO_BIG
            | v6::TIME_EXCEEDED
            | v6::PARAMETER_PROBLEM
            | v6::ECHO_REQUEST
            | v6::ECHO_REPLY
    );
    if !known {
        return Ok(Message::Other { ty, code, body });
    }
    let (&word, rest) = body.split_first_chunk().ok_or(ParseError::Truncated)?;
    // RFC 4884, section 4.4: the length of the quotation in words of 64 bits.
    let quoted = || without_extensions(rest, usize::from(word[0]) * 8);
    Ok(match ty {
        v6::ECHO_REQUEST | v6::ECHO_REPLY => echo(ty == v6::ECHO_REQUEST, word, rest),
        v6::UNREACHABLE => Message::Unreachable { code: Unreachable::from_v6(code), mtu: None, quoted: quoted() },
        // The other two have no extensions (RFC 4884, section 4).
        v6::PACKET_TOO_BIG => Message::PacketTooBig { mtu: u32::from_be_bytes(word), quoted: rest },
        v6::TIME_EXCEEDED => Message::TimeExceeded { code, quoted: quoted() },
        _ => Message::ParameterProblem { code, pointer: u32::from_be_bytes(word), quoted: rest },
    })
}

/// Returns type, code and the bytes after the checksum.
fn split(bytes: &[u8], pseudo: u16) -> Result<(u8, u8, &[u8]), ParseError> {
    let &[ty, code, _, _, ref body @ ..] = bytes else { return Err(ParseError::Truncated) };
    if checksum::sum(bytes, pseudo) != 0xffff {
        return Err(ParseError::Checksum);
    }
    Ok((ty, code, body))
}

fn echo(is_request: bool, word: [u8; HEADER_LEN - 4], data: &[u8]) -> Message<'_> {
    let (id, seq) = (u16::from_be_bytes([word[0], word[1]]), u16::from_be_bytes([word[2], word[3]]));
    if is_request { Message::EchoRequest { id, seq, data } } else { Message::EchoReply { id, seq, data } }
}

/// Returns the quotation without the extensions that follow it. A length of zero means that there
/// are none (RFC 4884, section 4); an impossible one is not a length, but bytes of a router that
/// does not support extensions.
fn without_extensions(bytes: &[u8], len: usize) -> &[u8] {
    if len == 0 { bytes } else { bytes.get(..len).unwrap_or(bytes) }
}
