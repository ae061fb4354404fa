//! Forwards in the syntax of the command line: that of ssh, with UDP added.
//!
//! ```text
//!   -L, -R   [udp:][BIND:]PORT:HOST:HOSTPORT    [BIND:]PORT:/SOCKET    /SOCKET:HOST:HOSTPORT
//!            /SOCKET:/SOCKET
//!   -D       [BIND:]PORT
//! ```
//!
//! An IPv6 address is in brackets. BIND is an address, or `localhost` (the default), or `*` or an
//! empty text for all addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use crate::address::{Address, Host, Protocol, Target, UnixPath};

/// Addresses to listen on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bind {
    /// 127.0.0.1 and ::1.
    Loopback,
    /// All addresses of the host.
    Any,
    /// A single address.
    Ip(IpAddr),
}

/// Place to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// A port, 0 for any free one.
    Port {
        /// Protocol.
        protocol: Protocol,
        /// Addresses.
        bind: Bind,
        /// The port.
        port: u16,
    },
    /// A UNIX stream socket.
    Unix(UnixPath),
}

/// A listener and its target: the value of `-L` and `-R`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// Place where connections are accepted.
    pub listen: Listen,
    /// Destination of the connections.
    pub target: Target,
}

/// A SOCKS listener: the value of `-D`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dynamic {
    /// Addresses to listen on.
    pub bind: Bind,
    /// The port.
    pub port: u16,
}

impl Bind {
    /// Returns the socket addresses to listen on. Addresses after the first are left out where the
    /// host does not have their family.
    pub fn addresses(self, port: u16) -> Vec<SocketAddr> {
        let both =
            |v4: Ipv4Addr, v6: Ipv6Addr| vec![SocketAddr::new(v4.into(), port), SocketAddr::new(v6.into(), port)];
        match self {
            Self::Loopback => both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            Self::Any => both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
            Self::Ip(ip) => vec![SocketAddr::new(ip, port)],
        }
    }

    /// Returns whether only programs of the same host can connect.
    pub fn is_loopback(self) -> bool {
        match self {
            Self::Loopback => true,
            Self::Any => false,
            Self::Ip(ip) => ip.to_canonical().is_loopback(),
        }
    }
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "*" => Ok(Self::Any),
            "localhost" => Ok(Self::Loopback),
            _ => match text.parse()? {
                Host::Ip(ip) => Ok(Self::Ip(ip)),
                Host::Name(name) => {
                    Err(format!("{} is no address to listen on: name an IP address, localhost or *", name.as_str()))
                }
            },
        }
    }
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, rest) = protocol(text);
        let fields = fields(rest)?;
        let (listen, target) = match fields.as_slice() {
            [listen @ .., path] if is_path(path) && !listen.is_empty() => (listen, Target::Unix(unix(path)?)),
            [listen @ .., host, port] if !listen.is_empty() => {
                let address = Address { host: host.parse()?, port: target_port(port)? };
                (listen, Target::Host(protocol, address))
            }
            _ => return Err(format!("{text:?} has too few parts: expected {FORM}")),
        };
        let listen = match listen {
            [path] if is_path(path) => Listen::Unix(unix(path)?),
            [port] => Listen::Port { protocol, bind: Bind::Loopback, port: listen_port(port)? },
            [bind, port] => Listen::Port { protocol, bind: bind.parse()?, port: listen_port(port)? },
            _ => return Err(format!("{text} has too many parts: expected {FORM}")),
        };
        let has_unix = matches!(listen, Listen::Unix(_)) || matches!(target, Target::Unix(_));
        if protocol == Protocol::Udp && has_unix {
            return Err("UDP cannot be forwarded to or from the path of a socket".to_owned());
        }
        Ok(Self { listen, target })
    }
}

const FORM: &str = "[BIND:]PORT:HOST:HOSTPORT, such as 8080:localhost:80; an IPv6 address in brackets";

impl FromStr for Dynamic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields = fields(text)?;
        match fields.as_slice() {
            [port] => Ok(Self { bind: Bind::Loopback, port: listen_port(port)? }),
            [bind, port] => Ok(Self { bind: bind.parse()?, port: listen_port(port)? }),
            _ => Err(format!("{text:?} is not [BIND:]PORT, such as 1080; an IPv6 address in brackets")),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    /// Parses `[udp:]HOST:PORT` or the path of a socket.
    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, rest) = protocol(text);
        let fields = fields(rest)?;
        match fields.as_slice() {
            [path] if is_path(path) && protocol == Protocol::Tcp => Ok(Self::Unix(unix(path)?)),
            [host, port] => Ok(Self::Host(protocol, Address { host: host.parse()?, port: target_port(port)? })),
            _ => Err(format!("{text:?} is neither HOST:PORT nor the path of a socket; an IPv6 address in brackets")),
        }
    }
}

/// Returns the protocol at the start of a text, TCP by default, and the rest.
pub(crate) fn protocol(text: &str) -> (Protocol, &str) {
    match text.strip_prefix("udp:") {
        Some(rest) => (Protocol::Udp, rest),
        None => (Protocol::Tcp, text.strip_prefix("tcp:").unwrap_or(text)),
    }
}

/// Returns the parts between colons. Colons in brackets do not separate.
pub(crate) fn fields(text: &str) -> Result<Vec<&str>, String> {
    let (mut found, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if at == begin => is_inside = true,
            ']' => is_inside = false,
            ':' if !is_inside => {
                found.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err(format!("a bracket of {text} is not closed"));
    }
    found.push(&text[begin..]);
    Ok(found)
}

fn is_path(field: &str) -> bool {
    field.starts_with('/')
}

fn unix(path: &str) -> Result<UnixPath, String> {
    UnixPath::new(Path::new(path)).ok_or_else(|| format!("{path} is too long for the path of a socket"))
}

pub(crate) fn listen_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text:?} is not a port, a number up to 65535"))
}

fn target_port(text: &str) -> Result<u16, String> {
    match listen_port(text)? {
        0 => Err("a target has no port 0".to_owned()),
        port => Ok(port),
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("localhost"),
            Self::Any => f.write_str("*"),
            Self::Ip(ip) => Host::Ip(*ip).fmt(f),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { protocol: Protocol::Tcp, bind, port } => write!(f, "{bind}:{port}"),
            Self::Port { protocol: Protocol::Udp, bind, port } => write!(f, "udp:{bind}:{port}"),
            Self::Unix(path) => path.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        text.parse::<Forward>().map(|forward| format!("{} > {}", forward.listen, forward.target))
    }

    #[test]
    fn forwards_are_written_as_for_ssh() {
        for (text, expected) in [
            ("8080:localhost:80", "localhost:8080 > localhost:80"),
            ("127.0.0.2:8080:db:5432", "127.0.0.2:8080 > db:5432"),
            ("*:8080:db:5432", "*:8080 > db:5432"),
            (":8080:db:5432", "*:8080 > db:5432"),
            ("localhost:0:db:1", "localhost:0 > db:1"),
            ("[::1]:8080:[2001:db8::9]:22", "[::1]:8080 > [2001:db8::9]:22"),
            ("8080:/run/app", "localhost:8080 > /run/app"),
            ("*:8080:/run/app", "*:8080 > /run/app"),
            ("/tmp/here:db:5432", "/tmp/here > db:5432"),
            ("/tmp/here:/run/app", "/tmp/here > /run/app"),
            ("udp:5353:10.0.0.1:53", "udp:localhost:5353 > udp:10.0.0.1:53"),
            ("tcp:80:10.0.0.1:8080", "localhost:80 > 10.0.0.1:8080"),
            ("udp:[::]:53:dns:53", "udp:[::]:53 > udp:dns:53"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn faults_are_named() {
        for (text, words) in [
            ("", "too few"),
            ("80", "too few"),
            ("80:host", "too few"),
            ("/path", "too few"),
            ("1:2:3:host:5", "too many"),
            ("/a:1:c:1", "neither"),
            ("x:host:1", "not a port"),
            ("80:host:65536", "not a port"),
            ("80:host:0", "port 0"),
            ("name:80:host:1", "no address to listen on"),
            ("80:[::1:1", "not closed"),
            ("80:a b:1", "neither"),
            ("8080::80", "the host is missing"),
            ("udp:80:/path", "UDP cannot"),
            ("udp:/path:a:1", "UDP cannot"),
        ] {
            let error = shown(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        let long = format!("80:/{}", "a".repeat(108));
        assert!(shown(&long).expect_err("long").contains("too long"));
    }

    #[test]
    fn dynamic_forwards_and_targets() {
        assert_eq!("1080".parse(), Ok(Dynamic { bind: Bind::Loopback, port: 1080 }));
        assert_eq!("*:1080".parse(), Ok(Dynamic { bind: Bind::Any, port: 1080 }));
        assert!("1:2:3".parse::<Dynamic>().is_err());
        for text in ["host:22", "[::1]:22", "udp:host:53", "/run/app"] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()).as_deref(), Ok(text));
        }
        assert!("udp:/run/app".parse::<Target>().is_err() && "host".parse::<Target>().is_err());
    }

    #[test]
    fn no_name_stands_for_all_addresses_and_loopback_for_both() {
        assert_eq!(Bind::Loopback.addresses(1).len(), 2);
        assert!(Bind::Loopback.is_loopback() && !Bind::Any.is_loopback());
        assert!(Bind::Ip("::ffff:127.0.0.1".parse().expect("an address")).is_loopback());
        assert!(!Bind::Ip("192.0.2.1".parse().expect("an address")).is_loopback());
    }
}
