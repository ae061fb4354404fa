//! The addresses that a server's connections and flows come from (`--source`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use net::Interface;

/// At most one address of each family; any that the kernel chooses, if there is none.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sources {
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
}

/// Why connections cannot come from what was named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The system does not list its interfaces.
    #[error("cannot read the interfaces of this host: {0}")]
    Interfaces(io::Error),
    /// Two addresses of one family.
    #[error("connections can come from one address of each family: --source names {0} and {1}")]
    Several(IpAddr, IpAddr),
    /// An address of another host.
    #[error("--source {0}: no interface of this host has it")]
    NotOwn(IpAddr),
    /// A name that is none of an interface.
    #[error("--source {0}: it is neither an address nor an interface of this host (`ip address` lists them)")]
    Unknown(String),
    /// An interface without an address that is valid beyond its link.
    #[error("--source {0}: this interface has no address")]
    NoAddress(String),
}

impl Sources {
    /// What the kernel chooses.
    pub(crate) const ANY: Self = Self { v4: None, v6: None };

    /// The addresses that `named` names: each is an address of this host, or an interface.
    ///
    /// # Errors
    /// If a name is neither, or the addresses are several of one family.
    pub fn of(named: &[String]) -> Result<Self, SourceError> {
        if named.is_empty() {
            return Ok(Self::ANY);
        }
        let interfaces = net::interfaces().map_err(SourceError::Interfaces)?;
        Self::among(&interfaces, named)
    }

    fn among(interfaces: &[Interface], named: &[String]) -> Result<Self, SourceError> {
        let mut sources = Self::ANY;
        for name in named {
            let found = match name.parse::<IpAddr>() {
                Ok(ip) => vec![own(interfaces, ip.to_canonical())?],
                Err(_) => of_interface(interfaces, name)?,
            };
            for ip in found {
                let place = if ip.is_ipv4() { &mut sources.v4 } else { &mut sources.v6 };
                if let Some(other) = place.replace(ip).filter(|other| *other != ip) {
                    return Err(SourceError::Several(other, ip));
                }
            }
        }
        Ok(sources)
    }

    /// Where a connection to `target` comes from; `None` for what the kernel chooses.
    ///
    /// # Errors
    /// If there are sources, and none of this family.
    pub(crate) fn towards(&self, target: SocketAddr) -> io::Result<Option<SocketAddr>> {
        let source = if target.is_ipv4() { self.v4 } else { self.v6 };
        if source.is_none() && (self.v4.is_some() || self.v6.is_some()) {
            let family = if target.is_ipv4() { "IPv4" } else { "IPv6" };
            let message = format!("the server's --source has no {family} address");
            return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, message));
        }
        Ok(source.map(|ip| SocketAddr::new(ip, 0)))
    }
}

/// An address, if it is one of this host.
fn own(interfaces: &[Interface], ip: IpAddr) -> Result<IpAddr, SourceError> {
    let is_own = interfaces.iter().flat_map(|interface| &interface.addresses).any(|address| address.ip == ip);
    // The whole network 127.0.0.0/8 is.
    if is_own || ip.is_loopback() { Ok(ip) } else { Err(SourceError::NotOwn(ip)) }
}

/// The first address of each family that an interface has. One that is valid on its link only is none.
fn of_interface(interfaces: &[Interface], name: &str) -> Result<Vec<IpAddr>, SourceError> {
    let interface = interfaces.iter().find(|interface| interface.name == name);
    let interface = interface.ok_or_else(|| SourceError::Unknown(name.to_owned()))?;
    let addresses = || interface.addresses.iter().filter(|address| address.scope_id == 0).map(|address| address.ip);
    let found: Vec<IpAddr> =
        [addresses().find(IpAddr::is_ipv4), addresses().find(IpAddr::is_ipv6)].into_iter().flatten().collect();
    if found.is_empty() { Err(SourceError::NoAddress(name.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_gives_its_addresses() {
        let sources = Sources::of(&["lo".to_owned()]).expect("it is there");
        let towards = |text: &str| sources.towards(text.parse().expect("an address")).expect("a source");
        assert_eq!(towards("192.0.2.1:80"), Some("127.0.0.1:0".parse().expect("an address")));
    }

    #[test]
    fn sources_are_of_this_host_and_one_of_each_family() {
        let fail = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
            Sources::of(&named).expect_err("a message").to_string()
        };
        assert!(fail(&["192.0.2.77"]).contains("no interface of this host has it"));
        assert!(fail(&["no-such-device"]).contains("neither an address nor an interface"));
        assert!(fail(&["127.0.0.1", "127.0.0.2"]).contains("one address of each family"));
        let only_v4 = Sources::of(&["127.0.0.2".to_owned()]).expect("loopback");
        assert!(only_v4.towards("[::1]:1".parse().expect("an address")).is_err());
        assert!(
            Sources::of(&[])
                .is_ok_and(|sources| sources.towards(([127, 0, 0, 1], 1).into()).is_ok_and(|at| at.is_none()))
        );
    }
}
