//! Hosts, ports and paths, as text and as bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use wire::quic::Reader;

use crate::malformed::Malformed;

/// Length limit of a host name (RFC 1035, section 2.3.4).
pub const NAME_LEN_MAX: usize = 253;

/// Length limit of the path of a UNIX socket: `sun_path` of Linux, without its final zero
/// (unix(7)).
pub const UNIX_PATH_LEN_MAX: usize = 107;

const KIND_NAME: u8 = 0;
const KIND_IPV4: u8 = 4;
const KIND_IPV6: u8 = 6;

/// A host: an address, or a name that the far host looks up.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Host {
    /// An address, never an IPv4 address in IPv6 form.
    Ip(IpAddr),
    /// A name.
    Name(HostName),
}

/// A host name in lower case: letters, digits, hyphens, dots and underscores (RFC 1123, section 2.1;
/// underscores occur), without a dot at its end. It is safe to print.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostName(String);

/// A host and a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

/// The path of a UNIX socket: absolute, without a zero byte, of at most [`UNIX_PATH_LEN_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UnixPath(PathBuf);

/// The transport protocol of an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Destination of a connection or a flow.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    /// A host's port.
    Host(Protocol, Address),
    /// A UNIX stream socket of the far host.
    Unix(UnixPath),
}

impl HostName {
    /// Parses a name; returns `None` if it is invalid.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_name = (1..=NAME_LEN_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
            && !text.starts_with(['-', '.'])
            && !text.ends_with('.');
        is_name.then(|| Self(text.to_ascii_lowercase()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let name = std::str::from_utf8(bytes).ok().and_then(Self::new);
        // Each name has only one encoding.
        name.filter(|name| name.0.as_bytes() == bytes).ok_or(Malformed("a host name is not valid"))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Host {
    /// Returns the host with this address.
    pub fn ip(ip: IpAddr) -> Self {
        Self::Ip(ip.to_canonical())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ip(IpAddr::V4(ip)) => {
                out.push(KIND_IPV4);
                out.extend_from_slice(&ip.octets());
            }
            Self::Ip(IpAddr::V6(ip)) => {
                out.push(KIND_IPV6);
                out.extend_from_slice(&ip.octets());
            }
            Self::Name(name) => {
                out.push(KIND_NAME);
                out.push(u8::try_from(name.0.len()).expect("a name is short"));
                out.extend_from_slice(name.0.as_bytes());
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = reader.u8()?;
        match kind {
            KIND_NAME => {
                let len = reader.u8()?;
                Ok(Self::Name(HostName::decode(reader.bytes(usize::from(len))?)?))
            }
            _ => Ok(Self::Ip(decode_ip(kind, reader)?)),
        }
    }
}

pub(crate) fn encode_ip(ip: IpAddr, out: &mut Vec<u8>) {
    Host::Ip(ip).encode(out);
}

/// Decodes the rest of an address of this kind.
pub(crate) fn decode_ip(kind: u8, reader: &mut Reader<'_>) -> Result<IpAddr, Malformed> {
    let ip: IpAddr = match kind {
        KIND_IPV4 => Ipv4Addr::from(reader.array::<4>()?).into(),
        KIND_IPV6 => Ipv6Addr::from(reader.array::<16>()?).into(),
        _ => return Err(Malformed("an address is of unknown kind")),
    };
    // Each address has only one encoding.
    if ip.to_canonical() == ip { Ok(ip) } else { Err(Malformed("an IPv4 address is in IPv6 form")) }
}

impl Address {
    /// Returns the host and port of `address`.
    pub fn of(address: SocketAddr) -> Self {
        Self { host: Host::ip(address.ip()), port: address.port() }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.host.encode(out);
        out.extend_from_slice(&self.port.to_be_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let host = Host::decode(reader)?;
        match reader.u16()? {
            0 => Err(Malformed("a target has port 0")),
            port => Ok(Self { host, port }),
        }
    }
}

impl UnixPath {
    /// Checks a path; returns `None` if it is invalid.
    pub fn new(path: &Path) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        let is_valid = bytes.starts_with(b"/") && bytes.len() <= UNIX_PATH_LEN_MAX && !bytes.contains(&0);
        is_valid.then(|| Self(path.to_owned()))
    }

    /// Returns the path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let bytes = self.0.as_os_str().as_bytes();
        out.push(u8::try_from(bytes.len()).expect("a path of a socket is short"));
        out.extend_from_slice(bytes);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = reader.u8()?;
        let bytes = reader.bytes(usize::from(len))?;
        Self::new(Path::new(std::ffi::OsStr::from_bytes(bytes))).ok_or(Malformed("the path of a socket is not valid"))
    }
}

impl Target {
    /// Returns whether the protocol is UDP; a UNIX stream socket counts as TCP.
    pub fn is_udp(&self) -> bool {
        matches!(self, Self::Host(Protocol::Udp, _))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Host(protocol, address) => {
                out.push(protocol.code());
                address.encode(out);
            }
            Self::Unix(path) => {
                out.push(UNIX_CODE);
                path.encode(out);
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.u8()? {
            UNIX_CODE => Ok(Self::Unix(UnixPath::decode(reader)?)),
            code => Ok(Self::Host(Protocol::from_code(code)?, Address::decode(reader)?)),
        }
    }
}

/// Code of a UNIX socket in place of [`Protocol::code`].
pub(crate) const UNIX_CODE: u8 = 3;

impl Protocol {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Tcp => 1,
            Self::Udp => 2,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Result<Self, Malformed> {
        match code {
            1 => Ok(Self::Tcp),
            2 => Ok(Self::Udp),
            _ => Err(Malformed("a protocol is unknown")),
        }
    }
}

impl FromStr for Host {
    type Err = String;

    /// Parses an address, in brackets or not, or a name.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the host is missing: name an IP address (IPv6 in brackets) or a host".to_owned());
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let ip: Ipv6Addr = inner.parse().map_err(|_| format!("{inner} in brackets is not an IPv6 address"))?;
            return Ok(Self::ip(ip.into()));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::ip(ip));
        }
        // A lookup may turn such a name into an address (inet_aton(3)), which no rule foresees.
        let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
        if last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("{text} is neither an IP address nor a host name"));
        }
        HostName::new(text).map(Self::Name).ok_or_else(|| format!("{text} is neither an IP address nor a host name"))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(&name.0),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Display for UnixPath {
    /// Writes the path with control characters and bytes that are not UTF-8 replaced, because it
    /// may come from the network.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string_lossy().replace(char::is_control, "\u{fffd}"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(Protocol::Tcp, address) => address.fmt(f),
            Self::Host(Protocol::Udp, address) => write!(f, "udp:{address}"),
            Self::Unix(path) => path.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_names_in_lower_case() {
        for (text, shown) in [
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("DB.Example.org.", "db.example.org"),
            ("_dns.local-1", "_dns.local-1"),
        ] {
            assert_eq!(text.parse::<Host>().map(|host| host.to_string()), Ok(shown.to_owned()), "{text}");
        }
        let long = "a".repeat(NAME_LEN_MAX + 1);
        for bad in
            ["", ".", "-a", ".a", "a..", "a b", "a/b", "1.2.3", "127.1", "2130706433", "0x7f000001", "[a]", "ü", &long]
        {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_are_absolute_and_fit_into_an_address() {
        assert!(UnixPath::new(Path::new("/run/x")).is_some());
        let long = format!("/{}", "a".repeat(UNIX_PATH_LEN_MAX));
        for bad in ["", "x", "/a\0b", &long] {
            assert!(UnixPath::new(Path::new(bad)).is_none(), "{bad}");
        }
        let odd = UnixPath::new(Path::new(std::ffi::OsStr::from_bytes(b"/a\x1b[2J\xff"))).expect("bytes are free");
        assert_eq!(odd.to_string(), "/a\u{fffd}[2J\u{fffd}");
    }
}
