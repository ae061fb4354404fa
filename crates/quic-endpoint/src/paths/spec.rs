//! The syntax of `--path`.
//!
//! ```text
//! PATH    = LOCAL [ "-" REMOTE ] [ ",backup" ]
//! LOCAL   = ( INTERFACE | ADDRESS ) [ ":" PORT ]
//! REMOTE  = ADDRESS [ ":" PORT ]
//! ADDRESS = IPv4 | IPv6 | "[" IPv6 "]"
//! PORT    = 1 to 65535
//! ```
//!
//! A port belongs to the address before it; an IPv6 address with a port stands in brackets, because
//! without them the port would be its last group. Names of interfaces may contain `-`: the text
//! after the last `-` is a remote address only if it parses as one. The syntax has no speed,
//! because Litz measures it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// One path requested by the user.
///
/// More fields may be added: begin with [`new`](Self::new) or a text, and set others with the
/// `with_` methods or by assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathSpec {
    /// Local end of the path.
    pub local: LocalSpec,
    /// The local port; 0 lets the system choose.
    pub local_port: u16,
    /// The remote address; `None` permits all of the ticket's addresses.
    pub remote: Option<IpAddr>,
    /// The remote port; `None` means the ticket's port.
    pub remote_port: Option<u16>,
    /// Whether the path is used only while no other path that is not a backup works.
    pub backup: bool,
}

/// Local end of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalSpec {
    /// The interface with this name; its address follows from the remote one.
    Interface(String),
    /// This address, at the interface that has it.
    Address(IpAddr),
}

/// Errors of parsing a [`PathSpec`], with messages for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathSpecError {
    /// There is no LOCAL, or no REMOTE after `-`.
    Missing,
    /// The text is neither an address nor the name of an interface.
    Local(String),
    /// The text looks like an address but is not one.
    Address(String),
    /// The address is not unicast: unspecified, multicast or broadcast.
    NoHost(IpAddr),
    /// The text is not a port number.
    Port(String),
    /// The text after a comma is not `backup`.
    Flag(String),
    /// One address is IPv4 and the other IPv6.
    Families,
}

impl PathSpec {
    /// Creates a path from `local`, at any port, to any of the ticket's addresses; not a backup.
    #[must_use]
    pub const fn new(local: LocalSpec) -> Self {
        Self { local, local_port: 0, remote: None, remote_port: None, backup: false }
    }

    /// Sets [`local_port`](Self::local_port).
    #[must_use]
    pub fn with_local_port(mut self, local_port: u16) -> Self {
        self.local_port = local_port;
        self
    }

    /// Sets [`remote`](Self::remote).
    #[must_use]
    pub fn with_remote(mut self, remote: impl Into<Option<IpAddr>>) -> Self {
        self.remote = remote.into();
        self
    }

    /// Sets [`remote_port`](Self::remote_port).
    #[must_use]
    pub fn with_remote_port(mut self, remote_port: impl Into<Option<u16>>) -> Self {
        self.remote_port = remote_port.into();
        self
    }

    /// Sets [`backup`](Self::backup).
    #[must_use]
    pub fn with_backup(mut self, backup: bool) -> Self {
        self.backup = backup;
        self
    }
}

impl FromStr for PathSpec {
    type Err = PathSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, flags) = text.split_once(',').map_or((text, None), |(path, flags)| (path, Some(flags)));
        let backup = match flags {
            None => false,
            Some("backup") => true,
            Some(other) => return Err(PathSpecError::Flag(other.to_owned())),
        };
        let (local_text, remote_text) = split(path)?;
        let (local, local_port) = parse_local(local_text)?;
        let remote = remote_text.map(parse_address).transpose()?;
        if let (LocalSpec::Address(local), Some((remote, _))) = (&local, remote)
            && local.is_ipv4() != remote.is_ipv4()
        {
            return Err(PathSpecError::Families);
        }
        Ok(Self {
            local,
            local_port: local_port.unwrap_or(0),
            remote: remote.map(|(ip, _)| ip),
            remote_port: remote.and_then(|(_, port)| port),
            backup,
        })
    }
}

/// Splits into LOCAL and, if present, REMOTE.
fn split(path: &str) -> Result<(&str, Option<&str>), PathSpecError> {
    match path.rsplit_once('-') {
        Some((_, "")) => Err(PathSpecError::Missing),
        Some((local, remote)) if looks_like_address(remote) => Ok((local, Some(remote))),
        _ => Ok((path, None)),
    }
}

fn parse_local(text: &str) -> Result<(LocalSpec, Option<u16>), PathSpecError> {
    if text.is_empty() {
        return Err(PathSpecError::Missing);
    }
    if looks_like_address(text) {
        let (ip, port) = parse_address(text)?;
        return Ok((LocalSpec::Address(ip), port));
    }
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(parse_port(port)?)),
        None => (text, None),
    };
    let is_name = (1..=INTERFACE_NAME_LEN_MAX).contains(&name.len())
        && name.chars().all(|character| !character.is_whitespace() && !character.is_control() && character != '/');
    if is_name { Ok((LocalSpec::Interface(name.to_owned()), port)) } else { Err(PathSpecError::Local(text.to_owned())) }
}

/// Returns whether the text was probably meant as an address. Names of interfaces may contain dots
/// (`br-1.20`) but never a colon, except the one before their port.
fn looks_like_address(text: &str) -> bool {
    let is_ipv4_like = text.split(':').next().is_some_and(|host| {
        host.bytes().filter(|&byte| byte == b'.').count() == 3
            && host.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit())
    });
    is_ipv4_like || text.starts_with('[') || text.bytes().filter(|&byte| byte == b':').count() >= 2
}

fn parse_address(text: &str) -> Result<(IpAddr, Option<u16>), PathSpecError> {
    let wrong = || PathSpecError::Address(text.to_owned());
    let (ip, port): (IpAddr, _) = if let Some(inner) = text.strip_prefix('[') {
        let (ip, rest) = inner.split_once(']').ok_or_else(wrong)?;
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':').ok_or_else(wrong)?),
        };
        (ip.parse::<Ipv6Addr>().map_err(|_| wrong())?.into(), port)
    } else if let Ok(ip) = text.parse() {
        (ip, None)
    } else {
        let (ip, port) = text.split_once(':').ok_or_else(wrong)?;
        (ip.parse().map_err(|_| wrong())?, Some(port))
    };
    let port = port.map(parse_port).transpose()?;
    if is_host(ip) { Ok((ip, port)) } else { Err(PathSpecError::NoHost(ip)) }
}

fn parse_port(text: &str) -> Result<u16, PathSpecError> {
    match text.parse() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(PathSpecError::Port(text.to_owned())),
    }
}

/// Returns whether an address is unicast.
pub(super) fn is_host(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::from([255, 255, 255, 255])
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.local {
            LocalSpec::Interface(name) if self.local_port == 0 => f.write_str(name)?,
            LocalSpec::Interface(name) => write!(f, "{name}:{}", self.local_port)?,
            LocalSpec::Address(ip) => write_address(f, *ip, Some(self.local_port).filter(|&port| port != 0))?,
        }
        if let Some(remote) = self.remote {
            f.write_str("-")?;
            write_address(f, remote, self.remote_port)?;
        }
        if self.backup { f.write_str(",backup") } else { Ok(()) }
    }
}

fn write_address(f: &mut fmt::Formatter<'_>, ip: IpAddr, port: Option<u16>) -> fmt::Result {
    match port {
        Some(port) => write!(f, "{}", SocketAddr::new(ip, port)),
        None => write!(f, "{ip}"),
    }
}

impl fmt::Display for PathSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(
                f,
                "a path is LOCAL or LOCAL-REMOTE: name an interface or an address, such as eth0 or 192.0.2.1-192.0.2.9"
            ),
            Self::Local(text) => write!(
                f,
                "{text:?} is neither an address nor the name of an interface (1 to {INTERFACE_NAME_LEN_MAX} characters): \
                 `ip -brief address` lists both"
            ),
            Self::Address(text) => write!(
                f,
                "{text:?} is no address: expected 192.0.2.1, 192.0.2.1:4433, 2001:db8::1 or, with a port, [2001:db8::1]:4433"
            ),
            Self::NoHost(ip) => {
                write!(f, "{ip} is not one host's address: give the address or the name of an interface")
            }
            Self::Port(text) => write!(f, "{text:?} is no port: expected 1 to 65535"),
            Self::Flag(text) => write!(f, "{text:?} is unknown here: only `backup` can follow a comma, once"),
            Self::Families => write!(f, "one address is IPv4 and the other IPv6: a path needs two of one family"),
        }
    }
}

impl std::error::Error for PathSpecError {}

/// `IFNAMSIZ` of Linux and the BSDs, less its closing zero.
const INTERFACE_NAME_LEN_MAX: usize = 15;

#[cfg(test)]
mod tests;
