//! The name servers that programs of this host ask (resolv.conf(5)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The port of name servers.
const PORT: u16 = 53;

/// The file that resolvers read.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The name servers without such a file, or without one in it.
const WITHOUT: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Sockets of services of this host that look up names for programs. Where they are missing, the C library
/// asks the name servers itself.
const SERVICES: [&str; 3] = ["/run/nscd/socket", "/var/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve"];

/// Whether it is a name server of this host's configuration. The file is read each time: it may change, and
/// programs connect to this port only to look up names.
pub(super) fn is_name_server(address: SocketAddr) -> bool {
    address.port() == PORT && {
        let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
        name_servers(&text).contains(&address.ip().to_canonical())
    }
}

/// Whether it is the socket of a service that looks up names.
pub(super) fn is_service(path: &Path) -> bool {
    SERVICES.iter().any(|service| path == Path::new(service))
}

fn name_servers(text: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let value = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        // The name of a device may follow.
        let ip: IpAddr = value.split('%').next()?.parse().ok()?;
        Some(if ip.is_unspecified() { WITHOUT[0] } else { ip.to_canonical() })
    };
    let found: Vec<IpAddr> = text.lines().filter_map(address).collect();
    if found.is_empty() { WITHOUT.to_vec() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_those_of_the_file() {
        let text = "# nameserver 192.0.2.9\nsearch example.org\nnameserver 192.0.2.1\n\
                    \tnameserver\tfe80::1%eth0 \nnameserver\nnameserver x\noptions edns0\n";
        let ips = ["192.0.2.1", "fe80::1"].map(|text| text.parse::<IpAddr>().expect("an address"));
        assert_eq!(name_servers(text), ips);
        assert_eq!(name_servers(""), WITHOUT);
        assert_eq!(name_servers("nameserver 0.0.0.0"), WITHOUT[..1]);
    }
}
