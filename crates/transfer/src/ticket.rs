//! The ticket: all information that a sender needs to reach one receiver and be accepted, as one
//! word to copy and paste.
//!
//! The text is `litz1` (the format's version) and base32 of the bytes below; a checksum detects
//! typing errors. Full layout: `docs/spec/ticket.md`.
//!
//! ```text
//!   expiry 5 | fingerprint 32 | secret 16 | addresses n (1) | n x address | checksum 4
//!   address:  4 | IPv4 4 | port 2       6 | IPv6 16 | port 2       0 | length 1 | name | port 2
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use credentials::base32::{self, Base32Error};
use quic_endpoint::identity::Fingerprint;
use zeroize::{Zeroize, Zeroizing};

/// An invitation to send. Its text ([`Ticket::to_text`]) contains the secret, so read access to it
/// permits sending.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ticket {
    /// The receiver's addresses, best first: 1 to [`ADDRESSES_MAX`].
    pub addresses: Vec<TicketAddress>,
    /// The receiver's key.
    pub receiver: Fingerprint,
    /// Secret that the sender proves to know.
    pub secret: Secret,
    /// Time in seconds since 1970 (UTC) from which the receiver refuses the ticket. Below 2^40.
    pub expires_unix: u64,
}

/// 128 random bits. `Debug` does not show them, and they are erased on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_LEN]);

/// One address of the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TicketAddress {
    /// An address and a port. An IPv6 scope is not included, because it has no meaning on another
    /// host.
    Socket(SocketAddr),
    /// A host name to look up, and a port.
    Name(String, u16),
}

/// Errors of reading a ticket, with messages for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TicketError {
    /// The text does not begin like a ticket.
    NotATicket,
    /// A ticket of another format version.
    Version(u32),
    /// A character that no ticket contains, at `index` (in characters, from 0).
    Character {
        /// Its place in the text.
        index: usize,
        /// The character.
        character: char,
    },
    /// Shorter than any ticket.
    CutOff,
    /// Longer than any ticket.
    TooLong,
    /// The checksum does not match: the text is mistyped or truncated.
    Checksum,
    /// The checksum matches but the content is invalid, which a correct program does not produce.
    Content(&'static str),
}

impl Ticket {
    /// Creates a ticket from these parts: see the fields. [`to_text`](Self::to_text) checks them.
    #[must_use]
    pub fn new(addresses: Vec<TicketAddress>, receiver: Fingerprint, secret: Secret, expires_unix: u64) -> Self {
        Self { addresses, receiver, secret, expires_unix }
    }

    /// Returns the ticket as one word of lower-case letters and digits.
    ///
    /// # Errors
    /// [`TicketError::Content`] if a field is outside the bounds its documentation names.
    pub fn to_text(&self) -> Result<String, TicketError> {
        let mut bytes = self.encode()?;
        let check = checksum(&bytes);
        bytes.extend_from_slice(&check);
        Ok(format!("{PREFIX}{VERSION}{}", base32::encode(&bytes)))
    }

    /// Returns whether the receiver will refuse the ticket at `now_unix` (seconds since 1970).
    #[must_use]
    pub fn is_expired(&self, now_unix: u64) -> bool {
        now_unix >= self.expires_unix
    }

    fn encode(&self) -> Result<Zeroizing<Vec<u8>>, TicketError> {
        if self.addresses.is_empty() || self.addresses.len() > ADDRESSES_MAX {
            return Err(TicketError::Content("a ticket names 1 to 16 addresses"));
        }
        if self.expires_unix >> (8 * EXPIRY_LEN) != 0 {
            return Err(TicketError::Content("the expiry time is too far away"));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_LEN_MAX));
        bytes.extend_from_slice(&self.expires_unix.to_be_bytes()[8 - EXPIRY_LEN..]);
        bytes.extend_from_slice(self.receiver.as_bytes());
        bytes.extend_from_slice(&self.secret.0);
        bytes.push(self.addresses.len() as u8);
        for address in &self.addresses {
            address.encode(&mut bytes)?;
        }
        Ok(bytes)
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    /// Parses a ticket; surrounding white space and case are ignored.
    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let body = body_of(text)?;
        if body.len() > TEXT_LEN_MAX {
            return Err(TicketError::TooLong);
        }
        let prefix_len = text.len() - body.len();
        let bytes = base32::decode(body).map(Zeroizing::new).map_err(|error| match error {
            Base32Error::Character { index, character } => {
                TicketError::Character { index: prefix_len + index, character }
            }
            _ => TicketError::Checksum,
        })?;
        if bytes.len() < BYTES_MIN {
            return Err(TicketError::CutOff);
        }
        let (content, check) = bytes.split_at(bytes.len() - CHECKSUM_LEN);
        if checksum(content) != check {
            return Err(TicketError::Checksum);
        }
        decode(content)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Secret {
    /// Creates a secret from the system's randomness.
    ///
    /// # Errors
    /// [`TicketError::Content`] if the system provides none.
    pub fn generate() -> Result<Self, TicketError> {
        let mut secret = Self([0; SECRET_LEN]);
        #[expect(clippy::disallowed_methods, reason = "a secret is the system's randomness, not a seed's")]
        aws_lc_rs::rand::fill(&mut secret.0).map_err(|_| TicketError::Content("the system provided no randomness"))?;
        Ok(secret)
    }

    /// Creates a secret from these bytes.
    pub const fn from_bytes(bytes: [u8; SECRET_LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }
}

impl TicketAddress {
    fn encode(&self, bytes: &mut Vec<u8>) -> Result<(), TicketError> {
        let port = match self {
            Self::Socket(SocketAddr::V4(address)) => {
                bytes.push(KIND_IPV4);
                bytes.extend_from_slice(&address.ip().octets());
                address.port()
            }
            Self::Socket(SocketAddr::V6(address)) => {
                bytes.push(KIND_IPV6);
                bytes.extend_from_slice(&address.ip().octets());
                address.port()
            }
            Self::Name(name, port) => {
                if !is_host_name(name.as_bytes()) {
                    return Err(TicketError::Content("an address is not a host name"));
                }
                bytes.push(KIND_NAME);
                bytes.push(name.len() as u8);
                bytes.extend_from_slice(name.as_bytes());
                *port
            }
        };
        if port == 0 {
            return Err(TicketError::Content("an address has port 0"));
        }
        bytes.extend_from_slice(&port.to_be_bytes());
        Ok(())
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, TicketError> {
        let [kind] = reader.take()?;
        let ip = match kind {
            KIND_IPV4 => IpAddr::V4(Ipv4Addr::from(reader.take::<4>()?)),
            KIND_IPV6 => IpAddr::V6(Ipv6Addr::from(reader.take::<16>()?)),
            KIND_NAME => {
                let [len] = reader.take()?;
                let name = reader.take_slice(usize::from(len))?;
                if !is_host_name(name) {
                    return Err(TicketError::Content("an address is not a host name"));
                }
                return Ok(Self::Name(String::from_utf8_lossy(name).into_owned(), reader.port()?));
            }
            _ => return Err(TicketError::Content("an address is of unknown kind")),
        };
        Ok(Self::Socket(SocketAddr::new(ip, reader.port()?)))
    }
}

impl fmt::Display for TicketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("addresses", &self.addresses)
            .field("receiver", &self.receiver)
            .field("secret", &self.secret)
            .field("expires_unix", &self.expires_unix)
            .finish()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATicket => {
                write!(f, "this is not a ticket: a ticket is one word that begins with `{PREFIX}{VERSION}`")
            }
            Self::Version(version) => write!(
                f,
                "the ticket has format {version}, this program knows {VERSION}: use the same litz on both hosts"
            ),
            Self::Character { index, character } => write!(
                f,
                "character {} of the ticket is {character:?}, which no ticket contains: copy it again",
                index + 1
            ),
            Self::CutOff => write!(f, "the ticket is cut off: copy all of it"),
            Self::TooLong => write!(f, "the ticket is too long: copy the ticket alone"),
            Self::Checksum => {
                write!(f, "the ticket is mistyped or cut off (its checksum does not match): copy it again")
            }
            Self::Content(what) => write!(f, "the ticket is not valid: {what}"),
        }
    }
}

impl std::error::Error for TicketError {}

/// Returns the text after the prefix and the version.
fn body_of(text: &str) -> Result<&str, TicketError> {
    let prefix = text.get(..PREFIX.len()).ok_or(TicketError::NotATicket)?;
    if !prefix.eq_ignore_ascii_case(PREFIX) {
        return Err(TicketError::NotATicket);
    }
    // Exactly one digit, so that the following text may also begin with a digit.
    let rest = &text[PREFIX.len()..];
    match rest.chars().next().and_then(|digit| digit.to_digit(10)) {
        Some(VERSION) => Ok(&rest[1..]),
        Some(version) => Err(TicketError::Version(version)),
        None => Err(TicketError::NotATicket),
    }
}

fn decode(content: &[u8]) -> Result<Ticket, TicketError> {
    let mut reader = Reader(content);
    let mut expiry = [0; 8];
    expiry[8 - EXPIRY_LEN..].copy_from_slice(&reader.take::<EXPIRY_LEN>()?);
    let receiver = Fingerprint::from_bytes(reader.take()?);
    let secret = Secret(reader.take()?);
    let [count] = reader.take()?;
    if count == 0 || usize::from(count) > ADDRESSES_MAX {
        return Err(TicketError::Content("a ticket names 1 to 16 addresses"));
    }
    let addresses = (0..count).map(|_| TicketAddress::decode(&mut reader)).collect::<Result<_, _>>()?;
    if !reader.0.is_empty() {
        return Err(TicketError::Content("bytes follow the last address"));
    }
    Ok(Ticket { addresses, receiver, secret, expires_unix: u64::from_be_bytes(expiry) })
}

/// Detects typing errors only. It does not authenticate the ticket.
fn checksum(content: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(PREFIX.as_bytes()).update(&[b'0' + VERSION as u8]).update(content);
    let mut check = [0; CHECKSUM_LEN];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM_LEN]);
    check
}

/// Returns whether a name has only letters, digits, hyphens and dots (RFC 1123, section 2.1): a
/// name from a ticket may reach a log or a terminal.
fn is_host_name(name: &[u8]) -> bool {
    (1..=HOST_NAME_LEN_MAX).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        && name[0] != b'-'
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TicketError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take_slice(N)?);
        Ok(bytes)
    }

    fn take_slice(&mut self, len: usize) -> Result<&'a [u8], TicketError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(TicketError::Content("its content is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn port(&mut self) -> Result<u16, TicketError> {
        match u16::from_be_bytes(self.take()?) {
            0 => Err(TicketError::Content("an address has port 0")),
            port => Ok(port),
        }
    }
}

/// Limit on the addresses in one ticket.
pub const ADDRESSES_MAX: usize = 16;

// A ticket can name every address that a receiver listens at.
const _: () = assert!(quic_endpoint::paths::listen::PLACES_MAX <= ADDRESSES_MAX);

/// Length of a secret: 128 bits. Every guess needs a connection, so guessing is infeasible.
const SECRET_LEN: usize = 16;

const PREFIX: &str = "litz";
const VERSION: u32 = 1;
const EXPIRY_LEN: usize = 5;
const CHECKSUM_LEN: usize = 4;
const HOST_NAME_LEN_MAX: usize = 253;
const KIND_NAME: u8 = 0;
const KIND_IPV4: u8 = 4;
const KIND_IPV6: u8 = 6;

/// Length with the shortest address: a name of one letter.
const BYTES_MIN: usize = EXPIRY_LEN + 32 + SECRET_LEN + 1 + (1 + 1 + 1 + 2) + CHECKSUM_LEN;

/// Length limit of the text, with sixteen of the longest names.
const TEXT_LEN_MAX: usize =
    (EXPIRY_LEN + 32 + SECRET_LEN + 1 + ADDRESSES_MAX * (1 + 1 + HOST_NAME_LEN_MAX + 2) + CHECKSUM_LEN) * 8 / 5 + 8;

#[cfg(test)]
mod tests;
