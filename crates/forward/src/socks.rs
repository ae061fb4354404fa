//! SOCKS5 (RFC 1928), as far as a server without authentication needs it: CONNECT and UDP ASSOCIATE.
//!
//! Parsing takes the bytes that have arrived so far, and says how many of them belong to the message,
//! or that more are needed.

use std::net::SocketAddr;

use wire::quic::{Reader, UnexpectedEnd};

use crate::address::{Address, Host};
use crate::malformed::Malformed;
use crate::message::Reason;

/// No message of a client is longer: 255 methods after two bytes, and a name of 255 bytes after five
/// with a port.
pub const MESSAGE_LEN_MAX: usize = 2 + 256 + 6;

/// Bytes before the payload of a packet of UDP at most: a name of 255 bytes.
pub const UDP_HEADER_LEN_MAX: usize = 4 + 1 + 255 + 2;

const VERSION: u8 = 5;
const METHOD_NONE: u8 = 0;
const COMMAND_CONNECT: u8 = 1;
const COMMAND_UDP: u8 = 3;
const KIND_IPV4: u8 = 1;
const KIND_NAME: u8 = 3;
const KIND_IPV6: u8 = 4;

/// The answer to a client whose methods all need authentication, which this server does not have.
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// The answer to a client that may go on without authentication.
pub const METHOD_CHOSEN: [u8; 2] = [VERSION, METHOD_NONE];

/// A message of which all bytes have arrived, and their number; or `None` if more are needed.
pub type Parsed<T> = Result<Option<(T, usize)>, Malformed>;

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A connection to this address.
    Connect(Address),
    /// A relay for UDP packets.
    Associate,
    /// Something that this server does not have.
    Unsupported,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reply {
    /// It is done.
    Succeeded = 0,
    /// Something failed.
    Failed = 1,
    /// No rule allows it.
    NotAllowed = 2,
    /// The network cannot be reached.
    NetworkUnreachable = 3,
    /// The host cannot be reached.
    HostUnreachable = 4,
    /// The target refused the connection.
    Refused = 5,
    /// The target did not answer in time.
    TimedOut = 6,
    /// This server does not have the command.
    UnsupportedCommand = 7,
    /// This server does not know the kind of address.
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

/// What a client has sent before it sent something that cannot be answered as it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nothing.
    Greeting,
    /// Its greeting, which was answered.
    Request,
}

/// The answer of SOCKS4 that a request is rejected. Version 5 alone is served.
const REJECTED_V4: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// The answer to a program that takes this for a proxy of HTTP.
const NOT_HTTP: &[u8] = b"HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This is a SOCKS5 proxy, not an HTTP proxy: set it as a SOCKS host, for instance socks5h://HOST:PORT.\n";

/// The last bytes for a client that has sent `bytes`, which are no message, too few, or no greeting that can be
/// served: the error of the protocol that it speaks.
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

/// The first message of a client: whether it goes on without authentication.
///
/// # Errors
/// If it is not a message of SOCKS5.
pub fn parse_greeting(bytes: &[u8]) -> Parsed<bool> {
    parse(bytes, |reader| {
        check_version(reader.u8()?)?;
        let count = reader.u8()?;
        Ok(reader.bytes(usize::from(count))?.contains(&METHOD_NONE))
    })
}

/// The second message of a client.
///
/// # Errors
/// If it is not a message of SOCKS5.
pub fn parse_request(bytes: &[u8]) -> Parsed<Request> {
    parse(bytes, |reader| {
        check_version(reader.u8()?)?;
        let command = reader.u8()?;
        check_reserved(reader.u8()?)?;
        let (host, port) = address(reader)?;
        // The address of UDP ASSOCIATE is where the client will send from, if it knows; it may be 0.
        Ok(match command {
            COMMAND_CONNECT if port == 0 => return Err(Malformed("a target has port 0").into()),
            COMMAND_CONNECT => Request::Connect(Address { host, port }),
            COMMAND_UDP => Request::Associate,
            _ => Request::Unsupported,
        })
    })
}

/// Appends the answer to a request; `bound` is the address of the server's socket for it.
pub fn put_reply(reply: Reply, bound: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(&[VERSION, reply as u8, 0]);
    put_address(bound, out);
}

/// The target of a UDP packet, and where its payload begins (section 7).
///
/// # Errors
/// If it is not one. Fragments are not supported, which the RFC allows.
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

/// Why a message cannot be read.
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
