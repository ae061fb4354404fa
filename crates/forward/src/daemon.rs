//! The messages between `litz daemon` and the programs that use it, on a UNIX socket that preserves
//! message boundaries (SOCK_SEQPACKET). The format is specified in `docs/spec/daemon.md`.
//!
//! ```text
//!   version 1 (1) | type 1 (1) | body
//! ```
//!
//! All numbers are big-endian. There is exactly one encoding of each message.

mod status;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use units::text::printable;
use wire::quic::Reader;

use crate::address::{HostName, Target};
use crate::malformed::Malformed;
use crate::message::{
    DETAIL_LEN_MAX, Failure, addresses, place, put_addresses, put_place, put_socket_address, socket_address,
};
use crate::spec::Listen;
use status::PART_LEN_MAX;

pub use status::{STATUS_LEN_MAX, StatusParts};

/// Version, the first byte of each message.
pub const VERSION: u8 = 1;

/// Length limit of a message: a part of a status.
pub const MESSAGE_LEN_MAX: usize = 32 << 10;

/// Length limit of a request: one that declines an arrival, with the longest text.
pub const REQUEST_LEN_MAX: usize = 2 + 4 + 1 + DETAIL_LEN_MAX;

/// Bit that marks numbers chosen by the daemon: those of arrivals. A program chooses numbers
/// without it.
pub const FROM_DAEMON: u32 = 1 << 31;

/// Length limit of the name of a program, in bytes. Longer names are truncated.
pub const NAME_LEN_MAX: usize = 64;

/// A message of a program to the daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The first message.
    Hello {
        /// Name of the program, for people.
        program: ProgramName,
    },
    /// Connect to a target.
    Connect {
        /// Number that the program has chosen for the connection; not in use for anything else.
        number: u32,
        /// Source of the socket.
        socket: SocketFrom,
        /// The target.
        target: Target,
    },
    /// Pass the socket, with this message, for a connection or an arrival whose request had
    /// [`SocketFrom::Program`].
    Carry {
        /// The connection, or the arrival.
        number: u32,
    },
    /// Cancel a connection, name lookup, publication or arrival. It has no effect after
    /// [`Carry`](Self::Carry).
    Cancel {
        /// Its number.
        number: u32,
    },
    /// Make the far host listen, and report each connection that arrives there.
    Publish {
        /// Number that the program has chosen for the publication, like that of a connection.
        number: u32,
        /// Source of the sockets for arrivals.
        socket: SocketFrom,
        /// Address or path to listen on.
        listen: Listen,
    },
    /// Decline an arrival.
    Decline {
        /// The arrival.
        number: u32,
        /// Reason.
        failure: Failure,
    },
    /// Look up a name on the far host.
    LookUp {
        /// Number that the program has chosen for the request, like that of a connection.
        number: u32,
        /// The name.
        name: HostName,
    },
    /// Report the daemon's status.
    Status,
    /// End the daemon.
    Stop,
}

/// A message of the daemon to a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The answer to [`Request::Hello`]: the program may send requests.
    Accepted,
    /// The answer to [`Request::Hello`]: the program may not send requests. The connection ends.
    Refused(Failure),
    /// The target is connected. With [`SocketFrom::Daemon`], one end of a TCP connection inside this host
    /// comes with this message, whose other end leads to the target; with [`SocketFrom::Rings`], shared
    /// memory and its sockets do; otherwise the daemon waits for [`Request::Carry`].
    Connected {
        /// The connection.
        number: u32,
        /// Address of the far host's socket; `None` for a UNIX socket.
        local: Option<SocketAddr>,
    },
    /// The addresses of a name, at least one. The number is free again.
    Found {
        /// The request.
        number: u32,
        /// The addresses.
        addresses: Vec<IpAddr>,
    },
    /// The far host listens.
    Published {
        /// The publication.
        number: u32,
        /// Address or path, with the port that the far system chose.
        listen: Listen,
    },
    /// A connection has arrived at a publication. With [`SocketFrom::Daemon`], one end of a TCP connection
    /// inside this host comes with this message, whose other end leads to the far program; with
    /// [`SocketFrom::Rings`], shared memory and its sockets do; otherwise the daemon waits for
    /// [`Request::Carry`] or [`Request::Decline`].
    Arrived {
        /// The publication.
        publication: u32,
        /// Number that the daemon has chosen for the arrival, with [`FROM_DAEMON`]. It is in use
        /// like one of a connection.
        number: u32,
        /// Address of its origin; `None` for a UNIX socket.
        origin: Option<SocketAddr>,
    },
    /// The target is not connected, the name has no addresses, the publication has ended, or the arrival is
    /// gone. The number is free again.
    Failed {
        /// Its number.
        number: u32,
        /// Reason.
        failure: Failure,
    },
    /// The data of a connection were delivered, or lost. The number is free again.
    Ended {
        /// The connection.
        number: u32,
        /// Number of bytes from the program.
        sent: u64,
        /// Number of bytes to the program.
        received: u64,
        /// Reason for lost data, if the connection did not end in order.
        failure: Option<Failure>,
    },
    /// A part of the answer to [`Request::Status`], of at least one character. Others follow.
    StatusPart(String),
    /// The answer to [`Request::Status`], or its last part: all parts together are a JSON object of
    /// at most [`STATUS_LEN_MAX`] bytes. [`Reply::status`] creates them.
    Status(String),
    /// The answer to [`Request::Stop`].
    Stopping,
}

/// Source of the socket of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SocketFrom {
    /// The program passes it when the target is connected, or a connection has arrived.
    Program = 0,
    /// The daemon passes one end of a TCP connection inside this host.
    Daemon = 1,
    /// The daemon passes memory that it shares with the program, and the sockets that wake them.
    Rings = 2,
}

/// The name of a program: at most [`NAME_LEN_MAX`] bytes, without control characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramName(String);

impl ProgramName {
    /// Creates a name from `text`, which is sanitised and truncated.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(printable(text, NAME_LEN_MAX))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProgramName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

mod ty {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const CONNECT: u8 = 0x02;
    pub(super) const CARRY: u8 = 0x03;
    pub(super) const CANCEL: u8 = 0x04;
    pub(super) const STATUS: u8 = 0x05;
    pub(super) const STOP: u8 = 0x06;
    pub(super) const LOOK_UP: u8 = 0x07;
    pub(super) const PUBLISH: u8 = 0x08;
    pub(super) const DECLINE: u8 = 0x09;
    pub(super) const ACCEPTED: u8 = 0x81;
    pub(super) const REFUSED: u8 = 0x82;
    pub(super) const CONNECTED: u8 = 0x83;
    pub(super) const FAILED: u8 = 0x84;
    pub(super) const ENDED: u8 = 0x85;
    pub(super) const STATUS_IS: u8 = 0x86;
    pub(super) const STOPPING: u8 = 0x87;
    pub(super) const FOUND: u8 = 0x88;
    pub(super) const PUBLISHED: u8 = 0x89;
    pub(super) const ARRIVED: u8 = 0x8a;
    pub(super) const STATUS_PART: u8 = 0x8b;
}

impl Request {
    /// Encodes the whole message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.ty()];
        match self {
            Self::Hello { program } => out.extend_from_slice(program.0.as_bytes()),
            Self::Connect { number, socket, target } => {
                out.extend_from_slice(&number.to_be_bytes());
                out.push(*socket as u8);
                target.encode(&mut out);
            }
            Self::Carry { number } | Self::Cancel { number } => out.extend_from_slice(&number.to_be_bytes()),
            Self::LookUp { number, name } => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(name.as_str().as_bytes());
            }
            Self::Publish { number, socket, listen } => {
                out.extend_from_slice(&number.to_be_bytes());
                out.push(*socket as u8);
                put_place(listen, &mut out);
            }
            Self::Decline { number, failure } => {
                out.extend_from_slice(&number.to_be_bytes());
                failure.encode(&mut out);
            }
            Self::Status | Self::Stop => {}
        }
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// Fails if the bytes are not a valid message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (ty, mut reader) = begin(bytes, REQUEST_LEN_MAX)?;
        let request = match ty {
            ty::HELLO => Self::Hello { program: program(&mut reader)? },
            ty::CONNECT => Self::Connect {
                number: programs_number(&mut reader)?,
                socket: socket_from(&mut reader)?,
                target: Target::decode(&mut reader)?,
            },
            ty::CARRY => Self::Carry { number: reader.u32()? },
            ty::CANCEL => Self::Cancel { number: reader.u32()? },
            ty::LOOK_UP => {
                Self::LookUp { number: programs_number(&mut reader)?, name: HostName::decode(reader.rest())? }
            }
            ty::PUBLISH => Self::Publish {
                number: programs_number(&mut reader)?,
                socket: socket_from(&mut reader)?,
                listen: place(&mut reader)?,
            },
            ty::DECLINE => {
                Self::Decline { number: daemons_number(&mut reader)?, failure: Failure::decode(&mut reader)? }
            }
            ty::STATUS => Self::Status,
            ty::STOP => Self::Stop,
            _ => return Err(Malformed("a message is of unknown type")),
        };
        end(&reader, request)
    }

    const fn ty(&self) -> u8 {
        match self {
            Self::Hello { .. } => ty::HELLO,
            Self::Connect { .. } => ty::CONNECT,
            Self::Carry { .. } => ty::CARRY,
            Self::Cancel { .. } => ty::CANCEL,
            Self::LookUp { .. } => ty::LOOK_UP,
            Self::Publish { .. } => ty::PUBLISH,
            Self::Decline { .. } => ty::DECLINE,
            Self::Status => ty::STATUS,
            Self::Stop => ty::STOP,
        }
    }
}

impl Reply {
    /// Encodes the whole message.
    ///
    /// # Panics
    /// Panics if the text of a status is longer than a message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.ty()];
        match self {
            Self::Accepted | Self::Stopping => {}
            Self::Refused(failure) => failure.encode(&mut out),
            Self::Connected { number, local } => {
                out.extend_from_slice(&number.to_be_bytes());
                put_socket_address(*local, &mut out);
            }
            Self::Found { number, addresses } => {
                out.extend_from_slice(&number.to_be_bytes());
                put_addresses(addresses, &mut out);
            }
            Self::Published { number, listen } => {
                out.extend_from_slice(&number.to_be_bytes());
                put_place(listen, &mut out);
            }
            Self::Arrived { publication, number, origin } => {
                out.extend_from_slice(&publication.to_be_bytes());
                out.extend_from_slice(&number.to_be_bytes());
                put_socket_address(*origin, &mut out);
            }
            Self::Failed { number, failure } => {
                out.extend_from_slice(&number.to_be_bytes());
                failure.encode(&mut out);
            }
            Self::Ended { number, sent, received, failure } => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&sent.to_be_bytes());
                out.extend_from_slice(&received.to_be_bytes());
                if let Some(failure) = failure {
                    failure.encode(&mut out);
                }
            }
            Self::StatusPart(text) | Self::Status(text) => {
                assert!(text.len() <= PART_LEN_MAX, "a status of {} bytes is sent in parts", text.len());
                out.extend_from_slice(text.as_bytes());
            }
        }
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// Fails if the bytes are not a valid message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (ty, mut reader) = begin(bytes, MESSAGE_LEN_MAX)?;
        let reply = match ty {
            ty::ACCEPTED => Self::Accepted,
            ty::REFUSED => Self::Refused(Failure::decode(&mut reader)?),
            ty::CONNECTED => Self::Connected { number: reader.u32()?, local: socket_address(&mut reader)? },
            ty::FOUND => Self::Found { number: reader.u32()?, addresses: addresses(&mut reader)? },
            ty::PUBLISHED => Self::Published { number: programs_number(&mut reader)?, listen: place(&mut reader)? },
            ty::ARRIVED => Self::Arrived {
                publication: programs_number(&mut reader)?,
                number: daemons_number(&mut reader)?,
                origin: socket_address(&mut reader)?,
            },
            ty::FAILED => Self::Failed { number: reader.u32()?, failure: Failure::decode(&mut reader)? },
            ty::ENDED => Self::Ended {
                number: reader.u32()?,
                sent: u64::from_be_bytes(reader.array()?),
                received: u64::from_be_bytes(reader.array()?),
                failure: (!reader.is_empty()).then(|| Failure::decode(&mut reader)).transpose()?,
            },
            ty::STATUS_PART => match text(&mut reader)? {
                // Otherwise a sender of empty parts would never end.
                "" => return Err(Malformed("a part of a status is empty")),
                part => Self::StatusPart(part.to_owned()),
            },
            ty::STATUS_IS => Self::Status(text(&mut reader)?.to_owned()),
            ty::STOPPING => Self::Stopping,
            _ => return Err(Malformed("a message is of unknown type")),
        };
        end(&reader, reply)
    }

    const fn ty(&self) -> u8 {
        match self {
            Self::Accepted => ty::ACCEPTED,
            Self::Refused(_) => ty::REFUSED,
            Self::Connected { .. } => ty::CONNECTED,
            Self::Found { .. } => ty::FOUND,
            Self::Published { .. } => ty::PUBLISHED,
            Self::Arrived { .. } => ty::ARRIVED,
            Self::Failed { .. } => ty::FAILED,
            Self::Ended { .. } => ty::ENDED,
            Self::StatusPart(_) => ty::STATUS_PART,
            Self::Status(_) => ty::STATUS_IS,
            Self::Stopping => ty::STOPPING,
        }
    }
}

/// Returns the type of a message, and its body.
fn begin(bytes: &[u8], len_max: usize) -> Result<(u8, Reader<'_>), Malformed> {
    if bytes.len() > len_max {
        return Err(Malformed("a message is too long"));
    }
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        VERSION => Ok((reader.u8()?, reader)),
        _ => Err(Malformed("a message is of another version")),
    }
}

fn end<T>(reader: &Reader<'_>, message: T) -> Result<T, Malformed> {
    if reader.is_empty() { Ok(message) } else { Err(Malformed("bytes follow the last field")) }
}

/// Reads a number chosen by a program.
fn programs_number(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let number = reader.u32()?;
    if number & FROM_DAEMON == 0 { Ok(number) } else { Err(Malformed("a number is one that the daemon chooses")) }
}

/// Reads a number chosen by the daemon.
fn daemons_number(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let number = reader.u32()?;
    if number & FROM_DAEMON == 0 { Err(Malformed("a number is one that programs choose")) } else { Ok(number) }
}

fn socket_from(reader: &mut Reader<'_>) -> Result<SocketFrom, Malformed> {
    match reader.u8()? {
        0 => Ok(SocketFrom::Program),
        1 => Ok(SocketFrom::Daemon),
        2 => Ok(SocketFrom::Rings),
        _ => Err(Malformed("the kind of a socket is unknown")),
    }
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(reader.rest()).map_err(|_| Malformed("a text is not UTF-8"))
}

/// Reads a program's name, the rest of a message. It is sanitised again, because it comes from
/// another program.
fn program(reader: &mut Reader<'_>) -> Result<ProgramName, Malformed> {
    let name = text(reader)?;
    if name.len() > NAME_LEN_MAX {
        return Err(Malformed("the name of a program is too long"));
    }
    Ok(ProgramName::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Address, Protocol, UnixPath};
    use crate::message::Reason;
    use crate::spec::{Bind, Forward};

    const PORT: Listen = Listen::Port { protocol: Protocol::Tcp, bind: Bind::Loopback, port: 8080 };

    fn requests() -> Vec<Request> {
        let tcp = Target::Host(Protocol::Tcp, Address::of("192.0.2.1:80".parse().unwrap()));
        let unix = Target::Unix(UnixPath::new("/run/x".as_ref()).unwrap());
        vec![
            Request::Hello { program: ProgramName::new("curl") },
            Request::Hello { program: ProgramName::new("") },
            Request::Connect { number: 7, socket: SocketFrom::Program, target: tcp },
            Request::Connect { number: FROM_DAEMON - 1, socket: SocketFrom::Daemon, target: unix.clone() },
            Request::Connect { number: 8, socket: SocketFrom::Rings, target: unix },
            Request::Carry { number: 7 },
            Request::Carry { number: FROM_DAEMON | 7 },
            Request::Cancel { number: 7 },
            Request::Publish { number: 9, socket: SocketFrom::Program, listen: PORT },
            Request::Publish {
                number: 10,
                socket: SocketFrom::Daemon,
                listen: "/run/x:a:1".parse::<Forward>().unwrap().listen,
            },
            Request::Decline { number: FROM_DAEMON, failure: Failure::new(Reason::Refused, "no one listens") },
            Request::LookUp { number: 8, name: HostName::new("db.example").unwrap() },
            Request::Status,
            Request::Stop,
        ]
    }

    fn replies() -> Vec<Reply> {
        let failure = || Failure::new(Reason::Refused, "the target refused");
        vec![
            Reply::Accepted,
            Reply::Refused(failure()),
            Reply::Connected { number: 1, local: None },
            Reply::Connected { number: 1, local: Some("[2001:db8::1]:9".parse().unwrap()) },
            Reply::Found { number: 8, addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()] },
            Reply::Published { number: 9, listen: PORT },
            Reply::Arrived { publication: 9, number: FROM_DAEMON, origin: None },
            Reply::Arrived { publication: 9, number: u32::MAX, origin: Some("192.0.2.1:9".parse().unwrap()) },
            Reply::Failed { number: 2, failure: failure() },
            Reply::Ended { number: 3, sent: 1, received: u64::MAX, failure: None },
            Reply::Ended { number: 3, sent: 1, received: 0, failure: Some(failure()) },
            Reply::StatusPart("{".to_owned()),
            Reply::Status("{}".to_owned()),
            Reply::Stopping,
        ]
    }

    #[test]
    fn each_message_has_one_encoding() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request.clone()), "{request:?}");
            assert!(Reply::decode(&bytes).is_err(), "{request:?}");
        }
        for reply in replies() {
            let bytes = reply.encode();
            assert_eq!(Reply::decode(&bytes), Ok(reply.clone()), "{reply:?}");
            assert!(Request::decode(&bytes).is_err(), "{reply:?}");
        }
    }

    #[test]
    fn what_is_cut_long_or_of_another_version_is_malformed() {
        for request in requests() {
            let mut bytes = request.encode();
            let is_text = matches!(request, Request::Hello { .. } | Request::LookUp { .. } | Request::Decline { .. });
            for len in 0..bytes.len() {
                assert!(Request::decode(&bytes[..len]).is_err() || is_text, "{request:?} {len}");
            }
            bytes.push(0);
            assert!(Request::decode(&bytes).is_err() || is_text, "{request:?}");
            bytes[0] = VERSION + 1;
            assert_eq!(Request::decode(&bytes), Err(Malformed("a message is of another version")));
        }
        let long = [&[VERSION, ty::HELLO][..], &[b'a'; NAME_LEN_MAX + 1]].concat();
        assert!(Request::decode(&long).is_err());
        assert!(Reply::decode(&[&[VERSION, ty::STATUS_IS][..], &[b'a'; MESSAGE_LEN_MAX]].concat()).is_err());
        let mut unknown = requests()[2].encode();
        unknown[6] = 3;
        assert_eq!(Request::decode(&unknown), Err(Malformed("the kind of a socket is unknown")));
        assert!(Reply::decode(&[VERSION, ty::STATUS_PART]).is_err());
    }

    #[test]
    fn texts_are_cut_and_safe_to_print() {
        let name = ProgramName::new(&format!("\x1b[2J{}", "ü".repeat(NAME_LEN_MAX)));
        assert!(name.as_str().len() <= NAME_LEN_MAX && !name.as_str().contains(char::is_control));
        let hostile = [&[VERSION, ty::HELLO][..], b"a\x1bb"].concat();
        assert_eq!(Request::decode(&hostile), Ok(Request::Hello { program: ProgramName::new("a\u{fffd}b") }));
    }
}
