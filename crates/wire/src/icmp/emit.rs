//! Encoding of both versions.

use std::net::IpAddr;

use super::unreachable::Unreachable;
use super::{HEADER_LEN, Message, v4, v6};
use crate::checksum;
use crate::ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, Protocol};

/// Maximum length of a packet with an ICMP error (RFC 1812, section 4.3.2.3). The error SHOULD
/// quote as much as fits.
const IPV4_ERROR_LEN_MAX: usize = 576;

/// Minimum MTU of IPv6, which errors must not exceed (RFC 4443, section 2.4, (c)).
const IPV6_ERROR_LEN_MAX: usize = 1280;

/// Returns the part of a packet that an error message may quote. [`Message::emit`] shortens longer
/// quotations to it.
#[inline]
pub fn quotable(packet: &[u8], is_ipv6: bool) -> &[u8] {
    let max = if is_ipv6 {
        IPV6_ERROR_LEN_MAX - IPV6_HEADER_LEN - HEADER_LEN
    } else {
        IPV4_ERROR_LEN_MAX - IPV4_HEADER_LEN - HEADER_LEN
    };
    packet.get(..max).unwrap_or(packet)
}

/// Encoding of a message in one version, except for neighbor discovery.
struct Form<'a> {
    ty: u8,
    code: u8,
    /// The bytes after the checksum, in two parts.
    word: [u8; 4],
    rest: &'a [u8],
}

impl Message<'_> {
    /// Returns the length of the message in a packet of the version.
    pub fn len(&self, is_ipv6: bool) -> usize {
        match self {
            Self::Ndp(message) => 4 + message.body_len(),
            Self::Other { body, .. } => 4 + body.len(),
            message => HEADER_LEN + message.form(is_ipv6).rest.len(),
        }
    }

    /// Returns false: a message is never empty.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Appends the message as the payload of a packet between the two addresses, with its checksum.
    ///
    /// A message that the version does not have is written as the one with the same meaning (RFC
    /// 7915, sections 4.2 and 5.2): as Packet Too Big, if a packet for IPv6 had to be fragmented;
    /// as Parameter Problem with code 1, if an IPv6 host does not know the protocol after the IPv6
    /// header; and the reverse of the former.
    ///
    /// # Panics
    ///
    /// If a message of neighbor discovery is written for IPv4.
    pub fn emit(&self, source: IpAddr, destination: IpAddr, out: &mut Vec<u8>) {
        let is_ipv6 = source.is_ipv6();
        let start = out.len();
        match self {
            Self::Ndp(message) => {
                assert!(is_ipv6, "neighbor discovery is a part of ICMPv6");
                out.extend_from_slice(&[message.ty(), 0, 0, 0]);
                message.emit_body(out);
            }
            Self::Other { ty, code, body } => {
                out.extend_from_slice(&[*ty, *code, 0, 0]);
                out.extend_from_slice(body);
            }
            message => {
                let Form { ty, code, word: [a, b, c, d], rest } = message.form(is_ipv6);
                out.extend_from_slice(&[ty, code, 0, 0, a, b, c, d]);
                out.extend_from_slice(rest);
            }
        }
        let message = &mut out[start..];
        let pseudo = if is_ipv6 {
            checksum::pseudo_header(source, destination, Protocol::ICMPV6, message.len() as u32)
        } else {
            0
        };
        checksum::fill(message, 2, pseudo);
    }

    fn form(&self, is_ipv6: bool) -> Form<'_> {
        if is_ipv6 { self.form_v6() } else { self.form_v4() }
    }

    /// Returns the ICMP form (RFC 792).
    fn form_v4(&self) -> Form<'_> {
        let too_big = |mtu: u32, quoted| {
            let [high, low] = u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes();
            let code = Unreachable::FragmentationNeeded.to_v4();
            Form { ty: v4::UNREACHABLE, code, word: [0, 0, high, low], rest: quotable(quoted, false) }
        };
        match *self {
            Self::EchoRequest { id, seq, data } => echo(v4::ECHO_REQUEST, id, seq, data),
            Self::EchoReply { id, seq, data } => echo(v4::ECHO_REPLY, id, seq, data),
            Self::Unreachable { code: Unreachable::FragmentationNeeded, mtu, quoted } => {
                too_big(mtu.unwrap_or(0), quoted)
            }
            Self::PacketTooBig { mtu, quoted } => too_big(mtu, quoted),
            Self::Unreachable { code, quoted, .. } => {
                Form { ty: v4::UNREACHABLE, code: code.to_v4(), word: [0; 4], rest: quotable(quoted, false) }
            }
            Self::TimeExceeded { code, quoted } => {
                Form { ty: v4::TIME_EXCEEDED, code, word: [0; 4], rest: quotable(quoted, false) }
            }
            Self::ParameterProblem { code, pointer, quoted } => {
                let word = [u8::try_from(pointer).unwrap_or(u8::MAX), 0, 0, 0];
                Form { ty: v4::PARAMETER_PROBLEM, code, word, rest: quotable(quoted, false) }
            }
            Self::Ndp(_) | Self::Other { .. } => unreachable!("written without a form"),
        }
    }

    /// Returns the ICMPv6 form (RFC 4443).
    fn form_v6(&self) -> Form<'_> {
        let error =
            |ty, code, word: u32, quoted| Form { ty, code, word: word.to_be_bytes(), rest: quotable(quoted, true) };
        match *self {
            Self::EchoRequest { id, seq, data } => echo(v6::ECHO_REQUEST, id, seq, data),
            Self::EchoReply { id, seq, data } => echo(v6::ECHO_REPLY, id, seq, data),
            Self::Unreachable { code, mtu, quoted } => match code.to_v6() {
                Some(code) => error(v6::UNREACHABLE, code, 0, quoted),
                None if code == Unreachable::FragmentationNeeded => {
                    error(v6::PACKET_TOO_BIG, 0, mtu.unwrap_or(IPV6_ERROR_LEN_MAX as u32), quoted)
                }
                None => error(v6::PARAMETER_PROBLEM, UNRECOGNIZED_NEXT_HEADER, NEXT_HEADER_OFFSET, quoted),
            },
            Self::PacketTooBig { mtu, quoted } => error(v6::PACKET_TOO_BIG, 0, mtu, quoted),
            Self::TimeExceeded { code, quoted } => error(v6::TIME_EXCEEDED, code, 0, quoted),
            Self::ParameterProblem { code, pointer, quoted } => error(v6::PARAMETER_PROBLEM, code, pointer, quoted),
            Self::Ndp(_) | Self::Other { .. } => unreachable!("written without a form"),
        }
    }
}

/// Parameter Problem code of RFC 4443, section 3.4.
const UNRECOGNIZED_NEXT_HEADER: u8 = 1;

/// Offset of the Next Header field (RFC 8200, section 3).
const NEXT_HEADER_OFFSET: u32 = 6;

fn echo(ty: u8, id: u16, seq: u16, data: &[u8]) -> Form<'_> {
    let ([a, b], [c, d]) = (id.to_be_bytes(), seq.to_be_bytes());
    Form { ty, code: 0, word: [a, b, c, d], rest: data }
}
