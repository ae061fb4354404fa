//! The targets and listeners that a server permits. Everything not named by a rule is refused.
//!
//! ```text
//!   --target          [tcp:|udp:]HOST:PORTS   or   /SOCKET
//!   --permit-listen   [tcp:|udp:][BIND:]PORTS   or   /SOCKET
//!   HOST    a name, *.SUFFIX, an address, a network such as 10.0.0.0/8, or *
//!   PORTS   numbers and ranges such as 80,443,8000-8099, or *
//! ```

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use crate::address::{Address, Host, HostName, Protocol, Target, UnixPath};
use crate::spec::{Bind, Listen, fields};

/// A rule for targets that a client may connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetRule {
    kind: RuleKind<Hosts>,
    text: String,
}

/// A rule for addresses and paths where a client may have the server listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenRule {
    kind: RuleKind<Bind>,
    text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum RuleKind<T> {
    /// Ports; of both protocols, if none is named.
    Ports {
        protocol: Option<Protocol>,
        hosts: T,
        ports: Ports,
    },
    Unix(UnixPath),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Hosts {
    Any,
    Network(IpAddr, u8),
    Name(HostName),
    /// All names below this one.
    Under(HostName),
}

/// Port ranges; `None` for all, including any free port of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ports(Option<Vec<RangeInclusive<u16>>>);

/// Rules of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    targets: Vec<TargetRule>,
    listeners: Vec<ListenRule>,
}

/// Decision about a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Permitted, whatever addresses its name has.
    Allowed,
    /// Addresses of its name are permitted individually, by [`Policy::allows_address`].
    ByAddress,
    /// Not permitted.
    Refused,
}

impl Policy {
    /// Creates a policy of these rules.
    pub fn new(targets: Vec<TargetRule>, listeners: Vec<ListenRule>) -> Self {
        Self { targets, listeners }
    }

    /// Returns whether a client may connect to `target`.
    pub fn verdict(&self, target: &Target) -> Verdict {
        let (protocol, address) = match target {
            Target::Unix(path) => {
                let is_allowed = self.targets.iter().any(|rule| rule.kind == RuleKind::Unix(path.clone()));
                return if is_allowed { Verdict::Allowed } else { Verdict::Refused };
            }
            Target::Host(protocol, address) => (*protocol, address),
        };
        let Address { host, port } = address;
        match host {
            Host::Ip(ip) if self.allows_address(protocol, SocketAddr::new(*ip, *port)) => Verdict::Allowed,
            Host::Ip(_) => Verdict::Refused,
            Host::Name(name) => verdict_of(name, self.hosts(protocol, *port)),
        }
    }

    /// Returns whether a client may connect to this address. A rule for `localhost` permits the
    /// loopback addresses that this name stands for (RFC 6761, section 6.3).
    pub fn allows_address(&self, protocol: Protocol, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.hosts(protocol, address.port()).any(|hosts| match hosts {
            Hosts::Any => true,
            Hosts::Network(network, len) => is_in(ip, *network, *len),
            Hosts::Name(name) => {
                name.as_str() == "localhost" && Bind::Loopback.addresses(0).iter().any(|at| at.ip() == ip)
            }
            Hosts::Under(_) => false,
        })
    }

    /// Returns whether a client may look up `name`: a rule for any port permits the name, or may
    /// permit some of its addresses, those for which [`may_reach`](Self::may_reach) is true.
    pub fn lookup_verdict(&self, name: &HostName) -> Verdict {
        verdict_of(name, self.all_hosts())
    }

    /// Returns whether a rule permits any port of this address.
    pub fn may_reach(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.all_hosts().any(|hosts| match hosts {
            Hosts::Any => true,
            Hosts::Network(network, len) => is_in(ip, *network, *len),
            Hosts::Name(_) | Hosts::Under(_) => false,
        })
    }

    /// Returns whether a client may have the server listen here.
    pub fn allows_listening(&self, listen: &Listen) -> bool {
        self.listeners.iter().any(|rule| match (&rule.kind, listen) {
            (RuleKind::Unix(known), Listen::Unix(path)) => known == path,
            (RuleKind::Ports { protocol: of, hosts, ports }, Listen::Port { protocol, bind, port }) => {
                let is_here = match (hosts, bind) {
                    (Bind::Any, _) => true,
                    (known, bind) if known.is_loopback() => bind.is_loopback(),
                    (Bind::Ip(known), Bind::Ip(ip)) => known == ip,
                    _ => false,
                };
                of.is_none_or(|of| of == *protocol) && is_here && ports.contains(*port)
            }
            _ => false,
        })
    }

    /// Returns the texts of the rules for targets.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|rule| rule.text.as_str())
    }

    /// Returns the paths where clients may have the server listen.
    pub fn unix_listeners(&self) -> impl Iterator<Item = &UnixPath> {
        self.listeners.iter().filter_map(|rule| match &rule.kind {
            RuleKind::Unix(path) => Some(path),
            RuleKind::Ports { .. } => None,
        })
    }

    fn all_hosts(&self) -> impl Iterator<Item = &Hosts> {
        self.targets.iter().filter_map(|rule| match &rule.kind {
            RuleKind::Ports { hosts, .. } => Some(hosts),
            RuleKind::Unix(_) => None,
        })
    }

    fn hosts(&self, protocol: Protocol, port: u16) -> impl Iterator<Item = &Hosts> {
        self.targets.iter().filter_map(move |rule| match &rule.kind {
            RuleKind::Ports { protocol: of, hosts, ports } => {
                (of.is_none_or(|of| of == protocol) && ports.contains(port)).then_some(hosts)
            }
            RuleKind::Unix(_) => None,
        })
    }
}

/// Returns the verdict on a name by rules with these hosts.
fn verdict_of<'a>(name: &HostName, rules: impl Iterator<Item = &'a Hosts>) -> Verdict {
    let mut verdict = Verdict::Refused;
    for hosts in rules {
        match hosts {
            Hosts::Any => return Verdict::Allowed,
            Hosts::Name(known) if known == name => return Verdict::Allowed,
            Hosts::Under(suffix) if is_under(name, suffix) => return Verdict::Allowed,
            Hosts::Network(..) => verdict = Verdict::ByAddress,
            Hosts::Name(_) | Hosts::Under(_) => {}
        }
    }
    verdict
}

fn is_under(name: &HostName, suffix: &HostName) -> bool {
    name.as_str().strip_suffix(suffix.as_str()).is_some_and(|rest| rest.ends_with('.'))
}

/// Returns whether the first `len` bits are equal.
fn is_in(ip: IpAddr, network: IpAddr, len: u8) -> bool {
    let differing = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => (ip.to_bits() ^ network.to_bits()).leading_zeros(),
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.to_bits() ^ network.to_bits()).leading_zeros(),
        _ => return false,
    };
    differing >= u32::from(len)
}

impl Ports {
    fn contains(&self, port: u16) -> bool {
        self.0.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(&port)))
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self(None));
        }
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<u16>(), last.parse::<u16>()) {
                (Ok(first), Ok(last)) if first <= last && first > 0 => Ok(first..=last),
                _ => Err(format!("{part:?} is neither a port nor a range of ports such as 8000-8099")),
            }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(|ranges| Self(Some(ranges)))
    }
}

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(suffix) = text.strip_prefix("*.") {
            let suffix = HostName::new(suffix).ok_or_else(|| format!("{text} is not *.SUFFIX"))?;
            return Ok(Self::Under(suffix));
        }
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Some((network, len)) = inner.split_once('/') {
            let fault = || format!("{text} is not a network such as 10.0.0.0/8 or [2001:db8::]/32");
            let network = network.strip_prefix('[').unwrap_or(network);
            let network: IpAddr = network.strip_suffix(']').unwrap_or(network).parse().map_err(|_| fault())?;
            let len_max = if network.is_ipv4() { 32 } else { 128 };
            let len = len.parse().ok().filter(|len| *len <= len_max).ok_or_else(fault)?;
            return Ok(Self::Network(network, len));
        }
        match text.parse()? {
            Host::Ip(ip) => Ok(Self::Network(ip, if ip.is_ipv4() { 32 } else { 128 })),
            Host::Name(name) => Ok(Self::Name(name)),
        }
    }
}

/// Returns the protocol that a rule names, and the rest of the text.
fn protocol(text: &str) -> (Option<Protocol>, &str) {
    for (prefix, protocol) in [("tcp:", Protocol::Tcp), ("udp:", Protocol::Udp)] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return (Some(protocol), rest);
        }
    }
    (None, text)
}

fn unix<T>(text: &str) -> Result<RuleKind<T>, String> {
    let path = UnixPath::new(Path::new(text)).ok_or_else(|| format!("{text} is too long for the path of a socket"))?;
    Ok(RuleKind::Unix(path))
}

impl FromStr for TargetRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, rest) = protocol(text);
        let kind = match fields(rest)?.as_slice() {
            [path] if path.starts_with('/') => unix(path)?,
            [host, ports] => RuleKind::Ports { protocol, hosts: host.parse()?, ports: ports.parse()? },
            _ => {
                return Err(format!(
                    "{text:?} is neither HOST:PORTS, such as db:5432, 10.0.0.0/8:80,443 or *:*, nor the path of a \
                     socket; an IPv6 address in brackets"
                ));
            }
        };
        Ok(Self { kind, text: text.to_owned() })
    }
}

impl FromStr for ListenRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, rest) = protocol(text);
        let kind = match fields(rest)?.as_slice() {
            [path] if path.starts_with('/') => unix(path)?,
            [ports] => RuleKind::Ports { protocol, hosts: Bind::Loopback, ports: ports.parse()? },
            [bind, ports] => RuleKind::Ports { protocol, hosts: bind.parse()?, ports: ports.parse()? },
            _ => return Err(format!("{text:?} is neither [BIND:]PORTS, such as 8080 or *:8000-8099, nor a path")),
        };
        Ok(Self { kind, text: text.to_owned() })
    }
}

impl fmt::Display for ListenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for TargetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(targets: &[&str]) -> Policy {
        Policy::new(targets.iter().map(|text| text.parse().expect(text)).collect(), Vec::new())
    }

    fn verdict(targets: &[&str], target: &str) -> Verdict {
        policy(targets).verdict(&target.parse().expect(target))
    }

    #[test]
    fn no_message_begins_with_an_empty_name() {
        for text in ["", ":80", "udp::80"] {
            let error = text.parse::<TargetRule>().expect_err(text);
            assert!(!error.starts_with(' '), "{error}");
        }
        assert!("".parse::<ListenRule>().expect_err("nothing").starts_with('"'));
    }

    #[test]
    fn nothing_is_allowed_without_a_rule() {
        for target in ["localhost:22", "127.0.0.1:22", "[::1]:22", "udp:dns:53", "/run/app"] {
            assert_eq!(verdict(&[], target), Verdict::Refused, "{target}");
        }
        assert!(
            !Policy::default().allows_listening(&"0:a:1".parse::<crate::spec::Forward>().expect("a forward").listen)
        );
    }

    #[test]
    fn a_rule_allows_its_hosts_and_ports_and_no_others() {
        use Verdict::{Allowed, ByAddress, Refused};
        for (rule, target, expected) in [
            ("db:5432", "db:5432", Allowed),
            ("DB.:5432", "db:5432", Allowed),
            ("db:5432", "db:5433", Refused),
            ("db:5432", "db.evil:5432", Refused),
            ("db:5432", "udp:db:5432", Allowed),
            ("tcp:db:5432", "udp:db:5432", Refused),
            ("udp:dns:53", "dns:53", Refused),
            ("*.example.org:443", "www.example.org:443", Allowed),
            ("*.example.org:443", "a.b.example.org:443", Allowed),
            ("*.example.org:443", "example.org:443", Refused),
            ("*.example.org:443", "badexample.org:443", Refused),
            ("10.0.0.0/8:80,8000-8010", "10.1.2.3:8005", Allowed),
            ("10.0.0.0/8:80,8000-8010", "10.1.2.3:8011", Refused),
            ("10.0.0.0/8:80", "11.0.0.1:80", Refused),
            ("10.0.0.0/8:80", "[::ffff:10.0.0.1]:80", Allowed),
            ("10.0.0.0/8:80", "name:80", ByAddress),
            ("10.0.0.0/8:80", "name:81", Refused),
            ("[2001:db8::/32]:22", "[2001:db8:1::1]:22", Allowed),
            ("[2001:db8::]/32:22", "[2001:db9::1]:22", Refused),
            ("0.0.0.0/0:22", "[::1]:22", Refused),
            ("*:22", "name:22", Allowed),
            ("*:*", "udp:[::1]:1", Allowed),
            ("*:*", "/run/app", Refused),
            ("/run/app", "/run/app", Allowed),
            ("/run/app", "/run/app2", Refused),
            ("localhost:22", "127.0.0.1:22", Allowed),
            ("localhost:22", "[::1]:22", Allowed),
            ("localhost:22", "127.0.0.2:22", Refused),
            ("127.0.0.1:22", "localhost:22", ByAddress),
        ] {
            assert_eq!(verdict(&[rule], target), expected, "{rule} {target}");
        }
    }

    #[test]
    fn names_that_have_several_addresses_are_decided_by_each() {
        let policy = policy(&["10.0.0.0/8:80", "name:81"]);
        let allows = |text: &str| policy.allows_address(Protocol::Tcp, text.parse().expect(text));
        assert!(allows("10.0.0.1:80") && allows("[::ffff:10.0.0.1]:80"));
        assert!(!allows("127.0.0.1:80") && !allows("10.0.0.1:81"));
    }

    #[test]
    fn a_name_may_be_looked_up_if_a_rule_for_any_port_may_allow_it() {
        use Verdict::{Allowed, ByAddress, Refused};
        for (rules, expected) in [
            (&[][..], Refused),
            (&["/run/app"], Refused),
            (&["other:80", "*.example.org:80"], Refused),
            (&["db.example:5432"], Allowed),
            (&["udp:db.example:53"], Allowed),
            (&["*.example:1"], Allowed),
            (&["*:1"], Allowed),
            (&["10.0.0.0/8:80"], ByAddress),
            (&["10.0.0.0/8:80", "db.example:1"], Allowed),
        ] {
            let name = HostName::new("db.example").expect("a name");
            assert_eq!(policy(rules).lookup_verdict(&name), expected, "{rules:?}");
        }
        let policy = policy(&["10.0.0.0/8:80", "db.example:1"]);
        let reaches = |text: &str| policy.may_reach(text.parse().expect(text));
        assert!(reaches("10.1.2.3") && reaches("::ffff:10.1.2.3") && !reaches("11.0.0.1") && !reaches("::1"));
    }

    #[test]
    fn listeners_are_allowed_by_address_and_port() {
        let listen = |text: &str| format!("{text}:a:1").parse::<crate::spec::Forward>().expect(text).listen;
        for (rule, text, is_allowed) in [
            ("8080", "8080", true),
            ("8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "8080", true),
            ("8080", "*:8080", false),
            ("8080", "192.0.2.1:8080", false),
            ("8080", "8081", false),
            ("8080", "0", false),
            ("8080", "udp:8080", true),
            ("tcp:8080", "udp:8080", false),
            ("*:8000-8099", "*:8050", true),
            ("*:8000-8099", "192.0.2.1:8050", true),
            ("192.0.2.1:80", "192.0.2.1:80", true),
            ("192.0.2.1:80", "*:80", false),
            ("*", "0", true),
            ("*:*", "*:0", true),
        ] {
            let policy = Policy::new(Vec::new(), vec![rule.parse().expect(rule)]);
            assert_eq!(policy.allows_listening(&listen(text)), is_allowed, "{rule} {text}");
        }
        let policy = Policy::new(Vec::new(), vec!["/run/a".parse().expect("a path")]);
        assert!(policy.allows_listening(&listen("/run/a")) && !policy.allows_listening(&listen("/run/b")));
    }

    #[test]
    fn faulty_rules_are_refused() {
        for bad in
            ["", "host", "host:", "host:0", "host:2-1", "host:x", "10.0.0.0/33:1", "a/8:1", "1:2:3", "*.:1", "[::1:1"]
        {
            assert!(bad.parse::<TargetRule>().is_err(), "{bad}");
        }
        for bad in ["", "x", "0", "1:2:3", "name:80"] {
            assert!(bad.parse::<ListenRule>().is_err(), "{bad}");
        }
    }
}
