//! The addresses that a server's connections and flows come from (`--source`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use net::Interface;

/// At most one address of each family; any that the kernel chooses, if there is none.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sources {
    v4: Option<IpAddr>,
    v6: Option<IpAddr>,
}

impl Sources {
    /// What the kernel chooses.
    pub(super) const ANY: Self = Self { v4: None, v6: None };

    /// The addresses that `named` names: each is an address of this host, or an interface.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn of(named: &[String]) -> Result<Self, String> {
        if named.is_empty() {
            return Ok(Self::ANY);
        }
        let interfaces =
            net::interfaces().map_err(|error| format!("cannot read the interfaces of this host: {error}"))?;
        Self::among(&interfaces, named)
    }

    fn among(interfaces: &[Interface], named: &[String]) -> Result<Self, String> {
        let mut sources = Self::ANY;
        for name in named {
            let found = match name.parse::<IpAddr>() {
                Ok(ip) => vec![own(interfaces, ip.to_canonical())?],
                Err(_) => of_interface(interfaces, name)?,
            };
            for ip in found {
                let place = if ip.is_ipv4() { &mut sources.v4 } else { &mut sources.v6 };
                if let Some(other) = place.replace(ip).filter(|other| *other != ip) {
                    return Err(format!(
                        "connections can come from one address of each family: --source names {other} and {ip}"
                    ));
                }
            }
        }
        Ok(sources)
    }

    /// Where a connection to `target` comes from; `None` for what the kernel chooses.
    ///
    /// # Errors
    /// If there are sources, and none of this family.
    pub(super) fn towards(&self, target: SocketAddr) -> io::Result<Option<SocketAddr>> {
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
fn own(interfaces: &[Interface], ip: IpAddr) -> Result<IpAddr, String> {
    let is_own = interfaces.iter().flat_map(|interface| &interface.addresses).any(|address| address.ip == ip);
    // The whole network 127.0.0.0/8 is.
    if is_own || ip.is_loopback() { Ok(ip) } else { Err(format!("--source {ip}: no interface of this host has it")) }
}

/// The first address of each family that an interface has. One that is valid on its link only is none.
fn of_interface(interfaces: &[Interface], name: &str) -> Result<Vec<IpAddr>, String> {
    let interface = interfaces.iter().find(|interface| interface.name == name);
    let interface = interface.ok_or_else(|| {
        format!("--source {name}: it is neither an address nor an interface of this host (`ip address` lists them)")
    })?;
    let addresses = || interface.addresses.iter().filter(|address| address.scope_id == 0).map(|address| address.ip);
    let found: Vec<IpAddr> =
        [addresses().find(IpAddr::is_ipv4), addresses().find(IpAddr::is_ipv6)].into_iter().flatten().collect();
    if found.is_empty() { Err(format!("--source {name}: this interface has no address")) } else { Ok(found) }
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
            Sources::of(&named).expect_err("a message")
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
