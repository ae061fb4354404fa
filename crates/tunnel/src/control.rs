//! The messages of the control stream.
//!
//! A frame is a length (2 bytes, of what follows), a type (1 byte) and a body. Numbers are in network
//! byte order. No frame exceeds [`FRAME_BYTES_MAX`].

use std::fmt;
use std::net::IpAddr;

use units::text::printable;

use crate::prefix::Prefix;

/// The ALPN protocol of version 1.
pub const PROTOCOL: &[u8] = b"litz-tunnel/1";

/// The version of the protocol. Version 2 has streams of terminated connections, version 3 items of flows that
/// keep to one path, version 4 the class of an answer on such a stream, and version 5 filling; the messages are those
/// of version 1, and those that a reader may pass over.
pub const VERSION: u16 = 5;

/// The first version whose peers take streams of terminated connections.
pub const VERSION_TERMINATES: u16 = 2;

/// The first version whose peers know flows that keep to one path.
pub const VERSION_PINS: u16 = 3;

/// The first version whose peers take the class of a target's answer before they are told that it is connected.
pub const VERSION_ANSWER_CLASS: u16 = 4;

/// The first version whose peers pass over filling, with which a path is measured.
pub const VERSION_FILLING: u16 = 5;

/// The application error code of a server that closes a connection because a later one has taken its
/// addresses: its client must not connect again. Other reasons have code 0.
pub const CLOSED_TAKEN_OVER: u64 = 1;

/// The longest frame, without its length field.
pub const FRAME_BYTES_MAX: usize = 8 << 10;

/// Addresses, networks and name servers in a message, at most of each.
pub const ENTRIES_MAX: usize = 128;

/// The longest text in a message, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Length of a proof.
pub const PROOF_BYTES: usize = 32;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Client: the first message.
    Hello {
        /// The highest version that it knows.
        version: u16,
        /// The proof of a ticket's secret; none if the server knows its key.
        proof: Option<[u8; PROOF_BYTES]>,
        /// The largest inner packet that it takes, in bytes.
        mtu: u16,
    },
    /// Server: the answer, if the client may use the tunnel.
    Accepted(Box<Accepted>),
    /// Server, before [`Accepted`](Self::Accepted): whether its host forwards packets. Earlier servers do not tell, and
    /// earlier clients pass it over.
    Forwarding(Forwarding),
    /// Server: the client may not use the tunnel.
    Refused {
        /// Why.
        reason: Refusal,
        /// The same in words.
        text: String,
    },
}

/// The IP versions whose packets the server's host forwards between its interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarding {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

/// What the server assigns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accepted {
    /// The version that is used.
    pub version: u16,
    /// The server's proof of the ticket's secret, if the client proved it.
    pub proof: Option<[u8; PROOF_BYTES]>,
    /// The largest inner packet, in bytes: what both ends take.
    pub mtu: u16,
    /// The most bits a second in each direction; 0 for any number.
    pub rate_bps: u64,
    /// The client's addresses, each with the length of its network.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The server's addresses in the tunnel.
    pub server: Vec<IpAddr>,
    /// The networks behind the server.
    pub routes: Vec<Prefix>,
    /// Name servers behind the server.
    pub name_servers: Vec<IpAddr>,
}

/// Why a server refuses a client. Unknown codes are read as [`Refusal::Other`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// For another reason.
    Other = 0,
    /// The key is not on the list, and no valid ticket was proven.
    NotAllowed = 1,
    /// All addresses of the pool are taken.
    PoolExhausted = 2,
    /// The server does not speak the client's version.
    Version = 3,
}

/// The bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedMessage(pub &'static str);

const HELLO: u8 = 0x01;
const ACCEPTED: u8 = 0x41;
const REFUSED: u8 = 0x42;
const FORWARDING: u8 = 0x43;

impl Message {
    /// Appends the whole frame to `out`.
    ///
    /// # Panics
    /// If the message has more than [`ENTRIES_MAX`] entries of a kind.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 2]);
        match self {
            Self::Hello { version, proof, mtu } => {
                out.push(HELLO);
                out.extend_from_slice(&version.to_be_bytes());
                put_proof(proof.as_ref(), out);
                out.extend_from_slice(&mtu.to_be_bytes());
            }
            Self::Accepted(accepted) => {
                out.push(ACCEPTED);
                accepted.encode(out);
            }
            Self::Forwarding(Forwarding { ipv4, ipv6 }) => {
                out.extend_from_slice(&[FORWARDING, u8::from(*ipv4) | u8::from(*ipv6) << 1]);
            }
            Self::Refused { reason, text } => {
                out.extend_from_slice(&[REFUSED, *reason as u8]);
                put_text(text, out);
            }
        }
        let len = out.len() - start - 2;
        assert!(len <= FRAME_BYTES_MAX, "a frame of {len} bytes");
        out[start..start + 2].copy_from_slice(&(len as u16).to_be_bytes());
    }

    /// The message in `frame`, which is a frame without its length; none if its type is not known.
    ///
    /// # Errors
    /// If the bytes are not a message.
    pub fn decode(frame: &[u8]) -> Result<Option<Self>, MalformedMessage> {
        let mut reader = Reader(frame);
        let message = match reader.u8()? {
            HELLO => Self::Hello { version: reader.u16()?, proof: reader.proof()?, mtu: reader.u16()? },
            ACCEPTED => Self::Accepted(Box::new(Accepted::decode(&mut reader)?)),
            FORWARDING => {
                // Bits that are not defined have no meaning yet.
                let flags = reader.u8()?;
                Self::Forwarding(Forwarding { ipv4: flags & 1 != 0, ipv6: flags & 2 != 0 })
            }
            REFUSED => {
                let reason = match reader.u8()? {
                    1 => Refusal::NotAllowed,
                    2 => Refusal::PoolExhausted,
                    3 => Refusal::Version,
                    _ => Refusal::Other,
                };
                Self::Refused { reason, text: reader.text()? }
            }
            _ => return Ok(None),
        };
        if !reader.0.is_empty() {
            return Err(MalformedMessage("bytes follow a message"));
        }
        Ok(Some(message))
    }
}

impl Accepted {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        put_proof(self.proof.as_ref(), out);
        out.extend_from_slice(&self.mtu.to_be_bytes());
        out.extend_from_slice(&self.rate_bps.to_be_bytes());
        put_list(&self.addresses, out, |(address, bits), out| {
            put_address(*address, out);
            out.push(*bits);
        });
        put_list(&self.server, out, |address, out| put_address(*address, out));
        put_list(&self.routes, out, |prefix, out| {
            put_address(prefix.address(), out);
            out.push(prefix.bits());
        });
        put_list(&self.name_servers, out, |address, out| put_address(*address, out));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        Ok(Self {
            version: reader.u16()?,
            proof: reader.proof()?,
            mtu: reader.u16()?,
            rate_bps: reader.u64()?,
            addresses: reader.list(|reader| {
                let (address, bits) = (reader.address()?, reader.u8()?);
                Prefix::new(address, bits).map_err(|_| MalformedMessage("a network has too many bits"))?;
                Ok((address, bits))
            })?,
            server: reader.list(Reader::address)?,
            routes: reader.list(Reader::prefix)?,
            name_servers: reader.list(Reader::address)?,
        })
    }
}

fn put_proof(proof: Option<&[u8; PROOF_BYTES]>, out: &mut Vec<u8>) {
    out.push(u8::from(proof.is_some()));
    out.extend(proof.into_iter().flatten());
}

/// Longer texts are cut.
fn put_text(text: &str, out: &mut Vec<u8>) {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    let text = &text[..end.unwrap_or(0)];
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_list<T>(list: &[T], out: &mut Vec<u8>, put: impl Fn(&T, &mut Vec<u8>)) {
    assert!(list.len() <= ENTRIES_MAX, "a list of {}", list.len());
    out.push(list.len() as u8);
    list.iter().for_each(|entry| put(entry, out));
}

fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(6);
            out.extend_from_slice(&address.octets());
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedMessage> {
        let (array, rest) = self.0.split_first_chunk().ok_or(MalformedMessage("a message is cut off"))?;
        self.0 = rest;
        Ok(*array)
    }

    fn u8(&mut self) -> Result<u8, MalformedMessage> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, MalformedMessage> {
        self.array().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, MalformedMessage> {
        self.array().map(u64::from_be_bytes)
    }

    fn proof(&mut self) -> Result<Option<[u8; PROOF_BYTES]>, MalformedMessage> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.array().map(Some),
            _ => Err(MalformedMessage("a flag is neither 0 nor 1")),
        }
    }

    fn text(&mut self) -> Result<String, MalformedMessage> {
        let len = usize::from(self.u16()?);
        if len > TEXT_BYTES_MAX || len > self.0.len() {
            return Err(MalformedMessage("a text is too long"));
        }
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        let text = std::str::from_utf8(text).map_err(|_| MalformedMessage("a text is not UTF-8"))?;
        // It is shown to a person: control characters could forge output.
        Ok(printable(text, TEXT_BYTES_MAX))
    }

    fn list<T>(
        &mut self,
        mut entry: impl FnMut(&mut Self) -> Result<T, MalformedMessage>,
    ) -> Result<Vec<T>, MalformedMessage> {
        let count = usize::from(self.u8()?);
        if count > ENTRIES_MAX {
            return Err(MalformedMessage("a list is too long"));
        }
        (0..count).map(|_| entry(self)).collect()
    }

    fn address(&mut self) -> Result<IpAddr, MalformedMessage> {
        match self.u8()? {
            4 => self.array::<4>().map(IpAddr::from),
            6 => self.array::<16>().map(IpAddr::from),
            _ => Err(MalformedMessage("an address of an unknown version")),
        }
    }

    fn prefix(&mut self) -> Result<Prefix, MalformedMessage> {
        let (address, bits) = (self.address()?, self.u8()?);
        let prefix = Prefix::new(address, bits).map_err(|_| MalformedMessage("a network has too many bits"))?;
        if prefix.address() != address {
            return Err(MalformedMessage("a network has bits after its length"));
        }
        Ok(prefix)
    }
}

impl fmt::Display for MalformedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer sent a malformed message: {}", self.0)
    }
}

impl std::error::Error for MalformedMessage {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accepted() -> Message {
        Message::Accepted(Box::new(Accepted {
            version: 1,
            proof: Some([7; PROOF_BYTES]),
            mtu: 1400,
            rate_bps: 20_000_000,
            addresses: vec![("10.8.0.2".parse().unwrap(), 24), ("fd08::2".parse().unwrap(), 64)],
            server: vec!["10.8.0.1".parse().unwrap()],
            routes: vec!["0.0.0.0/0".parse().unwrap(), "fd09::/48".parse().unwrap()],
            name_servers: vec!["10.8.0.1".parse().unwrap()],
        }))
    }

    fn samples() -> Vec<Message> {
        vec![
            Message::Hello { version: 1, proof: None, mtu: 1400 },
            Message::Hello { version: 9, proof: Some([1; PROOF_BYTES]), mtu: 9000 },
            accepted(),
            Message::Forwarding(Forwarding { ipv4: false, ipv6: true }),
            Message::Refused { reason: Refusal::PoolExhausted, text: "full".to_owned() },
        ]
    }

    #[test]
    fn messages_are_read_as_they_were_written_and_no_shorter_frame_is_one() {
        for message in samples() {
            let mut frame = Vec::new();
            message.encode(&mut frame);
            assert_eq!(usize::from(u16::from_be_bytes([frame[0], frame[1]])), frame.len() - 2);
            assert_eq!(Message::decode(&frame[2..]), Ok(Some(message.clone())));
            for end in 2..frame.len() {
                assert!(Message::decode(&frame[2..end]).is_err(), "{message:?} without its end");
            }
            frame.push(0);
            assert!(Message::decode(&frame[2..]).is_err(), "{message:?} with a byte after it");
        }
    }

    #[test]
    fn the_bytes_of_messages_are_those_of_the_specification() {
        let mut frame = Vec::new();
        Message::Hello { version: 1, proof: None, mtu: 1400 }.encode(&mut frame);
        assert_eq!(frame, [0, 6, 0x01, 0, 1, 0, 0x05, 0x78]);
        frame.clear();
        Message::Forwarding(Forwarding { ipv4: true, ipv6: false }).encode(&mut frame);
        assert_eq!(frame, [0, 2, 0x43, 1]);
    }

    #[test]
    fn a_message_of_an_unknown_type_is_passed_over() {
        assert_eq!(Message::decode(&[0x33, 1, 2, 3]), Ok(None));
    }

    #[test]
    fn a_text_for_the_user_has_no_control_characters_and_is_cut() {
        let long = "ä".repeat(TEXT_BYTES_MAX);
        for (text, expected) in [("a\u{1b}[2Jb", "a\u{fffd}[2Jb"), (&long, &long[..TEXT_BYTES_MAX])] {
            let mut frame = Vec::new();
            let refused = |text: &str| Message::Refused { reason: Refusal::Other, text: text.to_owned() };
            refused(text).encode(&mut frame);
            assert_eq!(Message::decode(&frame[2..]), Ok(Some(refused(expected))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(message)) = Message::decode(&bytes) {
                let mut frame = Vec::new();
                message.encode(&mut frame);
                prop_assert!(frame.len() - 2 <= FRAME_BYTES_MAX);
            }
        }

        #[test]
        fn a_changed_message_does_not_panic(at in 0..400_usize, value in any::<u8>(), which in 0..5_usize) {
            let mut frame = Vec::new();
            samples()[which].encode(&mut frame);
            let at = 2 + at % (frame.len() - 2);
            frame[at] = value;
            let _any = Message::decode(&frame[2..]);
        }
    }
}
