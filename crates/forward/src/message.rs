//! The messages of the control stream, and the headers of forwarded streams.
//!
//! ```text
//!   version 1 (1) | type (1) | length of the body (2) | body
//! ```
//!
//! All numbers are big-endian. There is exactly one encoding of each message.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use units::text::printable;
use wire::quic::Reader;

use crate::address::{HostName, Protocol, Target, UNIX_CODE, UnixPath, decode_ip, encode_ip};
use crate::malformed::Malformed;
use crate::spec::{Bind, Listen};

/// Version, the first byte of each message.
pub const VERSION: u8 = 1;

/// Length of the header before the body.
pub const HEADER_LEN: usize = 4;

/// Length limit of a body: a failure with the longest detail.
pub const BODY_LEN_MAX: usize = 4 + 1 + DETAIL_LEN_MAX;

/// Length limit of the text about a failure, in bytes. Longer texts are truncated.
pub const DETAIL_LEN_MAX: usize = 512;

/// Limit on the addresses of a name. A name with more is answered with the first ones.
pub const ADDRESSES_MAX: usize = 16;

/// One message. Each comment names the side that sends it, and the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Client, first on the control stream. The run is random: a client that reconnects sends the
    /// same value. The proof is that of a ticket's secret.
    Hello {
        /// The client's run.
        run: [u8; 16],
        /// The proof, if the client has a ticket.
        proof: Option<[u8; 32]>,
    },
    /// Server, on the control stream: the client may forward.
    Accepted {
        /// The server's proof, if the client gave one.
        proof: Option<[u8; 32]>,
    },
    /// Server, on the control stream: the client may not forward. The code is that of a ticket's
    /// refusal.
    Refused {
        /// See `docs/spec/ticket.md`.
        code: u8,
    },
    /// Client, on the control stream, or first on a stream of its own: listen as long as that
    /// stream lasts, and send arriving connections with this number.
    Listen {
        /// Number that the client has chosen for the listener.
        id: u32,
        /// Address or path to listen on.
        listen: Listen,
    },
    /// Server, on the same stream: it listens.
    Listening {
        /// The listener.
        id: u32,
        /// Address or path, with the port that the system chose.
        listen: Listen,
    },
    /// Server, on the same stream: it does not listen.
    NotListening {
        /// The listener.
        id: u32,
        /// Reason.
        failure: Failure,
    },
    /// Client, first on a stream: connect to this target.
    Open {
        /// The target.
        target: Target,
    },
    /// Server, first on a stream: a connection or a flow has arrived at a listener.
    Arrived {
        /// The listener.
        id: u32,
        /// Address of its origin; `None` for a UNIX socket.
        origin: Option<SocketAddr>,
    },
    /// Either end of a tunnel, first on a stream: connect from one address to the other
    /// (`docs/spec/tunnel.md`).
    OpenFrom {
        /// Address that the target sees.
        source: SocketAddr,
        /// The target.
        target: SocketAddr,
        /// Further contents of the connection's SYN.
        class: SynClass,
    },
    /// Either end of a tunnel, first on a stream: packets of the connection that another stream
    /// carries have a new code point (`docs/spec/tunnel.md`).
    Class {
        /// Identifier of the stream that carries the connection.
        stream: u64,
        /// Code point of packets from the program on this side: six bits.
        dscp: u8,
    },
    /// Client, first on a stream: look up a name on the server's host.
    LookUp {
        /// The name.
        name: HostName,
    },
    /// Server, first on the same stream: the addresses of the name, at least one and at most
    /// [`ADDRESSES_MAX`]. The stream ends.
    Addresses(Vec<IpAddr>),
    /// The other side, first on the same stream: it is connected.
    Connected {
        /// Address of the socket used; `None` for a UNIX socket.
        local: Option<SocketAddr>,
    },
    /// The other side, first on the same stream: it is not connected, or the name has no addresses. The
    /// stream ends.
    Failed(Failure),
}

/// The differentiated services of a SYN (RFC 2474), and whether it offers explicit congestion
/// notification (RFC 3168, section 6.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SynClass {
    /// Code point: six bits.
    pub dscp: u8,
    /// Whether it offers ECN.
    pub asks_for_ecn: bool,
}

/// Reason for a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Reason for programs.
    pub reason: Reason,
    /// Text for people: without control characters, at most [`DETAIL_LEN_MAX`] bytes.
    detail: String,
}

/// The reasons of failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// Another reason; the detail states it.
    Other = 1,
    /// No rule of the server permits it.
    NotAllowed = 2,
    /// The target refused the connection.
    Refused = 3,
    /// The host is unreachable.
    HostUnreachable = 4,
    /// The network is unreachable.
    NetworkUnreachable = 5,
    /// The target did not answer in time.
    TimedOut = 6,
    /// The name does not exist, or cannot be looked up.
    NameNotFound = 7,
    /// A limit is reached.
    Busy = 8,
    /// The listener, or its kind, is unknown.
    Unknown = 9,
}

/// The first bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    ty: u8,
    /// Length of the following body.
    pub body_len: usize,
}

mod ty {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const ACCEPTED: u8 = 0x02;
    pub(super) const REFUSED: u8 = 0x03;
    pub(super) const LISTEN: u8 = 0x04;
    pub(super) const LISTENING: u8 = 0x05;
    pub(super) const NOT_LISTENING: u8 = 0x06;
    pub(super) const OPEN: u8 = 0x10;
    pub(super) const ARRIVED: u8 = 0x11;
    pub(super) const CONNECTED: u8 = 0x12;
    pub(super) const FAILED: u8 = 0x13;
    pub(super) const OPEN_FROM: u8 = 0x14;
    pub(super) const LOOK_UP: u8 = 0x15;
    pub(super) const ADDRESSES: u8 = 0x16;
    pub(super) const CLASS: u8 = 0x17;
}

impl Failure {
    /// Creates a failure with a text for people, which is sanitised and truncated.
    pub fn new(reason: Reason, detail: &str) -> Self {
        Self { reason, detail: printable(detail, DETAIL_LEN_MAX) }
    }

    /// Returns the text for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.reason as u8);
        out.extend_from_slice(self.detail.as_bytes());
    }

    /// Decodes the rest of the body. The detail is sanitised again, because it comes from another
    /// program.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let reason = Reason::from_code(reader.u8()?)?;
        let detail = reader.rest();
        if detail.len() > DETAIL_LEN_MAX {
            return Err(Malformed("a detail is too long"));
        }
        let detail = std::str::from_utf8(detail).map_err(|_| Malformed("a detail is not UTF-8"))?;
        Ok(Self::new(reason, detail))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { f.write_str(self.reason.name()) } else { f.write_str(&self.detail) }
    }
}

impl Reason {
    const ALL: [Self; 9] = [
        Self::Other,
        Self::NotAllowed,
        Self::Refused,
        Self::HostUnreachable,
        Self::NetworkUnreachable,
        Self::TimedOut,
        Self::NameNotFound,
        Self::Busy,
        Self::Unknown,
    ];

    fn from_code(code: u8) -> Result<Self, Malformed> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code).ok_or(Malformed("a reason is unknown"))
    }

    /// Returns a stable identifier for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::NotAllowed => "not_allowed",
            Self::Refused => "refused",
            Self::HostUnreachable => "host_unreachable",
            Self::NetworkUnreachable => "network_unreachable",
            Self::TimedOut => "timed_out",
            Self::NameNotFound => "name_not_found",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }
}

impl Header {
    /// Parses the first bytes of a message.
    ///
    /// # Errors
    /// Fails if the version differs, or the announced body is too long.
    pub fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, Malformed> {
        let [version, ty, high, low] = bytes;
        if version != VERSION {
            return Err(Malformed("a message is of another version"));
        }
        let body_len = usize::from(u16::from_be_bytes([high, low]));
        if body_len > BODY_LEN_MAX {
            return Err(Malformed("a message is too long"));
        }
        Ok(Self { ty, body_len })
    }
}

impl Message {
    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[VERSION, self.ty(), 0, 0]);
        self.encode_body(out);
        let len = out.len() - start - HEADER_LEN;
        assert!(len <= BODY_LEN_MAX, "a body of {len} bytes");
        out[start + 2..start + 4].copy_from_slice(&(len as u16).to_be_bytes());
    }

    /// Decodes the message with this header and body.
    ///
    /// # Errors
    /// Fails if they are not a valid message.
    pub fn decode(header: Header, body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let message = Self::decode_body(header.ty, &mut reader)?;
        if reader.remaining() == 0 { Ok(message) } else { Err(Malformed("bytes follow the last field")) }
    }

    const fn ty(&self) -> u8 {
        match self {
            Self::Hello { .. } => ty::HELLO,
            Self::Accepted { .. } => ty::ACCEPTED,
            Self::Refused { .. } => ty::REFUSED,
            Self::Listen { .. } => ty::LISTEN,
            Self::Listening { .. } => ty::LISTENING,
            Self::NotListening { .. } => ty::NOT_LISTENING,
            Self::Open { .. } => ty::OPEN,
            Self::Arrived { .. } => ty::ARRIVED,
            Self::OpenFrom { .. } => ty::OPEN_FROM,
            Self::Class { .. } => ty::CLASS,
            Self::LookUp { .. } => ty::LOOK_UP,
            Self::Addresses(_) => ty::ADDRESSES,
            Self::Connected { .. } => ty::CONNECTED,
            Self::Failed(_) => ty::FAILED,
        }
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { run, proof } => {
                out.extend_from_slice(run);
                put_proof(proof.as_ref(), out);
            }
            Self::Accepted { proof } => put_proof(proof.as_ref(), out),
            Self::Refused { code } => out.push(*code),
            Self::Listen { id, listen } | Self::Listening { id, listen } => {
                out.extend_from_slice(&id.to_be_bytes());
                put_place(listen, out);
            }
            Self::NotListening { id, failure } => {
                out.extend_from_slice(&id.to_be_bytes());
                failure.encode(out);
            }
            Self::Open { target } => target.encode(out),
            Self::Arrived { id, origin } => {
                out.extend_from_slice(&id.to_be_bytes());
                put_socket_address(*origin, out);
            }
            Self::OpenFrom { source, target, class } => {
                put_socket_address(Some(*source), out);
                put_socket_address(Some(*target), out);
                out.push(class.dscp << 2 | u8::from(class.asks_for_ecn));
            }
            Self::Class { stream, dscp } => {
                out.extend_from_slice(&stream.to_be_bytes());
                out.push(dscp << 2);
            }
            Self::LookUp { name } => out.extend_from_slice(name.as_str().as_bytes()),
            Self::Addresses(addresses) => put_addresses(addresses, out),
            Self::Connected { local } => put_socket_address(*local, out),
            Self::Failed(failure) => failure.encode(out),
        }
    }

    fn decode_body(ty: u8, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match ty {
            ty::HELLO => Self::Hello { run: reader.array()?, proof: proof(reader)? },
            ty::ACCEPTED => Self::Accepted { proof: proof(reader)? },
            ty::REFUSED => Self::Refused { code: reader.u8()? },
            ty::LISTEN => Self::Listen { id: reader.u32()?, listen: place(reader)? },
            ty::LISTENING => Self::Listening { id: reader.u32()?, listen: place(reader)? },
            ty::NOT_LISTENING => Self::NotListening { id: reader.u32()?, failure: Failure::decode(reader)? },
            ty::OPEN => Self::Open { target: Target::decode(reader)? },
            ty::ARRIVED => Self::Arrived { id: reader.u32()?, origin: socket_address(reader)? },
            ty::OPEN_FROM => {
                let mut end = || socket_address(reader)?.ok_or(Malformed("an address is missing"));
                let (source, target) = (end()?, end()?);
                if source.is_ipv4() != target.is_ipv4() {
                    return Err(Malformed("two addresses are of different versions"));
                }
                let class = reader.u8()?;
                if class & 2 != 0 {
                    return Err(Malformed("a flag is not defined"));
                }
                Self::OpenFrom { source, target, class: SynClass { dscp: class >> 2, asks_for_ecn: class & 1 != 0 } }
            }
            ty::CLASS => {
                let (stream, class) = (u64::from_be_bytes(reader.array()?), reader.u8()?);
                if class & 3 != 0 {
                    return Err(Malformed("a flag is not defined"));
                }
                Self::Class { stream, dscp: class >> 2 }
            }
            ty::LOOK_UP => Self::LookUp { name: HostName::decode(reader.rest())? },
            ty::ADDRESSES => Self::Addresses(addresses(reader)?),
            ty::CONNECTED => Self::Connected { local: socket_address(reader)? },
            ty::FAILED => Self::Failed(Failure::decode(reader)?),
            _ => return Err(Malformed("a message is of unknown type")),
        })
    }
}

fn put_proof(proof: Option<&[u8; 32]>, out: &mut Vec<u8>) {
    out.push(u8::from(proof.is_some()));
    out.extend(proof.into_iter().flatten());
}

fn proof(reader: &mut Reader<'_>) -> Result<Option<[u8; 32]>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(reader.array()?)),
        _ => Err(Malformed("a flag is neither 0 nor 1")),
    }
}

/// Kind for an absent address.
const KIND_NONE: u8 = 0;

pub(crate) fn put_socket_address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    match address {
        None => out.push(KIND_NONE),
        Some(address) => {
            encode_ip(address.ip().to_canonical(), out);
            out.extend_from_slice(&address.port().to_be_bytes());
        }
    }
}

pub(crate) fn socket_address(reader: &mut Reader<'_>) -> Result<Option<SocketAddr>, Malformed> {
    match reader.u8()? {
        KIND_NONE => Ok(None),
        kind => Ok(Some(SocketAddr::new(decode_ip(kind, reader)?, reader.u16()?))),
    }
}

/// Appends the addresses of a name.
///
/// # Panics
/// Panics if there is none, or there are more than [`ADDRESSES_MAX`].
pub(crate) fn put_addresses(addresses: &[IpAddr], out: &mut Vec<u8>) {
    assert!((1..=ADDRESSES_MAX).contains(&addresses.len()), "{} addresses", addresses.len());
    addresses.iter().for_each(|ip| encode_ip(ip.to_canonical(), out));
}

/// Decodes addresses, the rest of a body.
pub(crate) fn addresses(reader: &mut Reader<'_>) -> Result<Vec<IpAddr>, Malformed> {
    let mut found = Vec::new();
    while !reader.is_empty() {
        if found.len() == ADDRESSES_MAX {
            return Err(Malformed("a name has too many addresses"));
        }
        let kind = reader.u8()?;
        found.push(decode_ip(kind, reader)?);
    }
    if found.is_empty() { Err(Malformed("a name has no addresses")) } else { Ok(found) }
}

const BIND_LOOPBACK: u8 = 0;
const BIND_ANY: u8 = 1;

pub(crate) fn put_place(listen: &Listen, out: &mut Vec<u8>) {
    match listen {
        Listen::Port { protocol, bind, port } => {
            out.push(protocol.code());
            match bind {
                Bind::Loopback => out.push(BIND_LOOPBACK),
                Bind::Any => out.push(BIND_ANY),
                Bind::Ip(ip) => encode_ip(ip.to_canonical(), out),
            }
            out.extend_from_slice(&port.to_be_bytes());
        }
        Listen::Unix(path) => {
            out.push(UNIX_CODE);
            path.encode(out);
        }
    }
}

pub(crate) fn place(reader: &mut Reader<'_>) -> Result<Listen, Malformed> {
    let code = reader.u8()?;
    if code == UNIX_CODE {
        return Ok(Listen::Unix(UnixPath::decode(reader)?));
    }
    let protocol = Protocol::from_code(code)?;
    let bind = match reader.u8()? {
        BIND_LOOPBACK => Bind::Loopback,
        BIND_ANY => Bind::Any,
        kind => Bind::Ip(decode_ip(kind, reader)?),
    };
    Ok(Listen::Port { protocol, bind, port: reader.u16()? })
}

#[cfg(test)]
mod tests;
