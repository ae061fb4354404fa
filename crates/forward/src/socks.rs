//! The part of SOCKS5 (RFC 1928) needed by a server without authentication: CONNECT and UDP
//! ASSOCIATE.
//!
//! Parsing takes the bytes received so far, and returns how many of them belong to the message, or
//! that more are needed.

use std::net::SocketAddr;

use wire::quic::{Reader, UnexpectedEnd};

use crate::address::{Address, Host};
use crate::malformed::Malformed;
use crate::message::Reason;

/// Length limit of a client's message: 255 methods after two bytes, or a name of 255 bytes after
/// five with a port.
pub const MESSAGE_LEN_MAX: usize = 2 + 256 + 6;

/// Length limit of the header of a UDP packet: a name of 255 bytes.
pub const UDP_HEADER_LEN_MAX: usize = 4 + 1 + 255 + 2;

const VERSION: u8 = 5;
const METHOD_NONE: u8 = 0;
const COMMAND_CONNECT: u8 = 1;
const COMMAND_UDP: u8 = 3;
const KIND_IPV4: u8 = 1;
const KIND_NAME: u8 = 3;
const KIND_IPV6: u8 = 4;

/// The answer to a client whose methods all require authentication, which this server does not
/// support.
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// The answer to a client that may continue without authentication.
pub const METHOD_CHOSEN: [u8; 2] = [VERSION, METHOD_NONE];

/// A complete message and its length; `None` if more bytes are needed.
pub type Parsed<T> = Result<Option<(T, usize)>, Malformed>;

/// Request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A connection to this address.
    Connect(Address),
    /// A relay for UDP packets.
    Associate,
    /// A command that this server does not support.
    Unsupported,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reply {
    /// Success.
    Succeeded = 0,
    /// General failure.
    Failed = 1,
    /// No rule permits it.
    NotAllowed = 2,
    /// The network is unreachable.
    NetworkUnreachable = 3,
    /// The host is unreachable.
    HostUnreachable = 4,
    /// The target refused the connection.
    Refused = 5,
    /// The target did not answer in time.
    TimedOut = 6,
    /// This server does not support the command.
    UnsupportedCommand = 7,
    /// This server does not support the kind of address.
    UnsupportedAddress = 8,
}

impl From<Reason> for Reply {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::NotAllowed => Self::NotAllowed,
            Reason::Refused => Self::Refused,
            Reason::HostUnreachable | Reason::NameNotFound => Self::HostUnreachable,
            Reason::NetworkUnreachable => Self::NetworkUnreachable,
            Reason::TimedOut => Self::TimedOut,
            Reason::Other | Reason::Busy | Reason::Unknown => Self::Failed,
        }
    }
}

/// Progress of a client before it sent a message that cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// No message yet.
    Greeting,
    /// A greeting, which was answered.
    Request,
}

/// SOCKS4 answer that rejects a request. Only version 5 is supported.
const REJECTED_V4: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// The answer to a program that takes this for an HTTP proxy.
const NOT_HTTP: &[u8] = b"HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This is a SOCKS5 proxy, not an HTTP proxy: set it as a SOCKS host, for instance socks5h://HOST:PORT.\n";

/// Returns the last bytes for a client that has sent `bytes`, which are malformed, too few, or a
/// greeting that cannot be served: an error in the protocol that it uses.
#[must_use]
pub fn refusal(stage: Stage, bytes: &[u8]) -> Vec<u8> {
    match (stage, bytes) {
        (Stage::Greeting, [4, ..]) => REJECTED_V4.into(),
        (Stage::Greeting, [b'A'..=b'Z', ..]) => NOT_HTTP.into(),
        (Stage::Greeting, _) => NO_METHOD.into(),
        (Stage::Request, bytes) => {
            let is_kind_known = bytes.get(3).is_none_or(|kind| [KIND_IPV4, KIND_NAME, KIND_IPV6].contains(kind));
            let reply = if is_kind_known { Reply::Failed } else { Reply::UnsupportedAddress };
            let mut answer = Vec::new();
            put_reply(reply, SocketAddr::from(([0, 0, 0, 0], 0)), &mut answer);
            answer
        }
    }
}

/// Parses the first message of a client; returns whether it can continue without authentication.
///
/// # Errors
/// Fails if it is not a message of SOCKS5.
pub fn parse_greeting(bytes: &[u8]) -> Parsed<bool> {
    parse(bytes, |reader| {
        check_version(reader.u8()?)?;
        let count = reader.u8()?;
        Ok(reader.bytes(usize::from(count))?.contains(&METHOD_NONE))
    })
}

/// Parses the second message of a client.
///
/// # Errors
/// Fails if it is not a message of SOCKS5.
pub fn parse_request(bytes: &[u8]) -> Parsed<Request> {
    parse(bytes, |reader| {
        check_version(reader.u8()?)?;
        let command = reader.u8()?;
        check_reserved(reader.u8()?)?;
        let (host, port) = address(reader)?;
        // The address of UDP ASSOCIATE is the client's source address, if it knows it; it may be 0.
        Ok(match command {
            COMMAND_CONNECT if port == 0 => return Err(Malformed("a target has port 0").into()),
            COMMAND_CONNECT => Request::Connect(Address { host, port }),
            COMMAND_UDP => Request::Associate,
            _ => Request::Unsupported,
        })
    })
}

/// Appends the reply to a request; `bound` is the address of the server's socket for it.
pub fn put_reply(reply: Reply, bound: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(&[VERSION, reply as u8, 0]);
    put_address(bound, out);
}

/// Returns the target of a UDP packet, and the offset of its payload (section 7).
///
/// # Errors
/// Fails if it is not a valid packet. Fragments are not supported, which the RFC allows.
pub fn parse_udp(packet: &[u8]) -> Result<(Address, usize), Malformed> {
    let mut reader = Reader::new(packet);
    let header = |reader: &mut Reader<'_>| -> Result<Address, Fault> {
        check_reserved(reader.u8()?)?;
        check_reserved(reader.u8()?)?;
        if reader.u8()? != 0 {
            return Err(Malformed("a fragment").into());
        }
        match address(reader)? {
            (_, 0) => Err(Malformed("a target has port 0").into()),
            (host, port) => Ok(Address { host, port }),
        }
    };
    match header(&mut reader) {
        Ok(address) => Ok((address, packet.len() - reader.remaining())),
        Err(Fault::Malformed(malformed)) => Err(malformed),
        Err(Fault::CutOff) => Err(Malformed("a packet is cut off")),
    }
}

/// Appends the header of a UDP packet from `origin`.
pub fn put_udp_header(origin: &Address, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, 0]);
    put_host(&origin.host, origin.port, out);
}

fn put_address(address: SocketAddr, out: &mut Vec<u8>) {
    put_host(&Host::ip(address.ip()), address.port(), out);
}

fn put_host(host: &Host, port: u16, out: &mut Vec<u8>) {
    match host {
        Host::Ip(std::net::IpAddr::V4(ip)) => {
            out.push(KIND_IPV4);
            out.extend_from_slice(&ip.octets());
        }
        Host::Ip(std::net::IpAddr::V6(ip)) => {
            out.push(KIND_IPV6);
            out.extend_from_slice(&ip.octets());
        }
        Host::Name(name) => {
            out.push(KIND_NAME);
            out.push(u8::try_from(name.as_str().len()).expect("a name is short"));
            out.extend_from_slice(name.as_str().as_bytes());
        }
    }
    out.extend_from_slice(&port.to_be_bytes());
}

/// Reason why a message cannot be read.
enum Fault {
    CutOff,
    Malformed(Malformed),
}

impl From<UnexpectedEnd> for Fault {
    fn from(_: UnexpectedEnd) -> Self {
        Self::CutOff
    }
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

fn parse<T>(bytes: &[u8], read: impl FnOnce(&mut Reader<'_>) -> Result<T, Fault>) -> Parsed<T> {
    let mut reader = Reader::new(bytes);
    match read(&mut reader) {
        Ok(value) => Ok(Some((value, bytes.len() - reader.remaining()))),
        Err(Fault::CutOff) => Ok(None),
        Err(Fault::Malformed(malformed)) => Err(malformed),
    }
}

fn check_version(version: u8) -> Result<(), Malformed> {
    if version == VERSION { Ok(()) } else { Err(Malformed("not SOCKS5")) }
}

fn check_reserved(byte: u8) -> Result<(), Malformed> {
    if byte == 0 { Ok(()) } else { Err(Malformed("a reserved byte is not 0")) }
}

fn address(reader: &mut Reader<'_>) -> Result<(Host, u16), Fault> {
    let host = match reader.u8()? {
        KIND_IPV4 => Host::Ip(std::net::Ipv4Addr::from(reader.array::<4>()?).into()),
        KIND_IPV6 => Host::ip(std::net::Ipv6Addr::from(reader.array::<16>()?).into()),
        KIND_NAME => {
            let len = reader.u8()?;
            let bytes = reader.bytes(usize::from(len))?;
            let text = std::str::from_utf8(bytes).map_err(|_| Malformed("a host name is not valid"))?;
            // Programs also send addresses as names.
            text.parse().map_err(|_| Malformed("a host name is not valid"))?
        }
        _ => return Err(Malformed("an address is of unknown kind").into()),
    };
    Ok((host, reader.u16()?))
}

#[cfg(test)]
mod tests;
