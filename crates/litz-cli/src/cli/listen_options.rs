//! `--listen`, `--device` and `--advertise`: where a command that serves others listens.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use transfer::TicketAddress;
use transfer::ticket::ADDRESSES_MAX;

use super::heading;

#[derive(Args, Debug)]
pub(crate) struct ListenOptions {
    /// Address and port to listen on; may be repeated [default: all addresses of this host, on one free port]
    ///
    /// By default each address of this host has its own socket, bound to its network device, so
    /// that replies leave on the path where packets arrived. With 0.0.0.0 or [::], one socket
    /// serves all addresses of that family. Port 0 means any free port or, when resuming, the port
    /// of the ticket. Either part may be left out: `192.0.2.7` is that address on any free port, and
    /// `:4433` is this port of all addresses. If it is repeated, each names an address, and the port is the
    /// same.
    #[arg(short, long, value_name = "ADDRESS:PORT", value_parser = parse_listen, help_heading = heading::PATHS)]
    pub(crate) listen: Vec<ListenAt>,

    /// Listen only on this network device
    #[arg(long, value_name = "NAME", help_heading = heading::PATHS)]
    pub(crate) device: Option<String>,

    /// Address to put into the ticket instead of this host's addresses: IP, or IP:PORT if a router
    /// forwards a port; may be repeated
    ///
    /// If this host has the address, also on its loopback device, the command listens there, too, unless
    /// --listen names others. Packets for an address of a loopback or dummy device may arrive over any device,
    /// and replies leave as the routes say.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_advertised, help_heading = heading::PATHS)]
    pub(crate) advertise: Vec<Advertised>,
}

impl ListenOptions {
    /// Whether a ticket can hold the addresses of `--advertise`.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.advertise.len() > ADDRESSES_MAX {
            let given = self.advertise.len();
            return Err(format!(
                "--advertise is given {given} times, but a ticket contains at most {ADDRESSES_MAX} addresses"
            ));
        }
        self.check_listen()
    }

    fn check_listen(&self) -> Result<(), String> {
        let is_address = |listen: &ListenAt| listen.ip.is_some_and(|ip| !ip.is_unspecified());
        if self.listen.len() > 1 && !self.listen.iter().all(is_address) {
            return Err("--listen is given several times, so each must name an address of this host".to_owned());
        }
        let mut ports = self.listen.iter().map(|listen| listen.port).filter(|port| *port != 0);
        let first = ports.next();
        match ports.find(|port| Some(*port) != first) {
            Some(_) => Err("--listen names different ports, but all sockets have the same".to_owned()),
            None => Ok(()),
        }
    }

    /// The port to listen on, 0 for any.
    pub(crate) fn port(&self) -> u16 {
        self.listen.iter().map(|listen| listen.port).find(|port| *port != 0).unwrap_or(0)
    }

    /// The address to listen on, or the first of several, if one is named; no other command of this host can
    /// have it with the same port.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.listen.first().and_then(|listen| listen.ip)
    }

    /// The addresses of `--advertise`, but for those with a port that a command on `port` does not listen on:
    /// that of a router.
    pub(crate) fn advertised(&self, port: u16) -> impl Iterator<Item = IpAddr> + '_ {
        self.advertise.iter().filter_map(move |address| match address {
            Advertised::Ip(ip) => Some(*ip),
            Advertised::Socket(socket) => Some(socket.ip()).filter(|_| socket.port() == port),
        })
    }

    /// The addresses for the ticket of a command that listens on port `port` of `found`.
    pub(crate) fn ticket_addresses(&self, found: &[TicketAddress], port: u16) -> Vec<TicketAddress> {
        if self.advertise.is_empty() {
            return found.to_vec();
        }
        let chosen = self.advertise.iter().map(|address| match *address {
            Advertised::Ip(ip) => SocketAddr::new(ip, port),
            Advertised::Socket(address) => address,
        });
        chosen.map(TicketAddress::Socket).collect()
    }

    /// A warning if a ticket with these addresses, which the user has not chosen, serves only hosts
    /// that are this one.
    pub(crate) fn loopback_warning(&self, addresses: &[TicketAddress]) -> Option<String> {
        let is_chosen = !self.advertise.is_empty() || self.ip().is_some_and(|ip| !ip.is_unspecified());
        if is_chosen { None } else { loopback_warning(addresses) }
    }
}

/// Where a command listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenAt {
    /// All addresses of this host, each with its own socket, if not given.
    pub(crate) ip: Option<IpAddr>,
    /// 0 for any.
    pub(crate) port: u16,
}

fn parse_listen(text: &str) -> Result<ListenAt, String> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok(ListenAt { ip: None, port });
    }
    if text.rsplit_once(':').is_some_and(|(address, port)| is_large_port(address, port)) {
        return Err(format!("a port is at most {}", u16::MAX));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let socket = text.parse().map(|socket: SocketAddr| ListenAt { ip: Some(socket.ip()), port: socket.port() });
    let listen = socket.or_else(|_| bare.parse().map(|ip| ListenAt { ip: Some(ip), port: 0 }));
    listen.map_err(|_| {
        "expected ADDRESS:PORT, ADDRESS or :PORT, such as 192.0.2.7:4433, [2001:db8::1]:4433 or :4433".to_owned()
    })
}

/// Whether a number after an address is too large for a port. The end of an IPv6 address without
/// brackets is no port.
fn is_large_port(address: &str, port: &str) -> bool {
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_number && port.parse::<u16>().is_err() && (!address.contains(':') || address.ends_with(']'))
}

/// An address to put into the ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Advertised {
    /// The port is the one that the receiver listens on.
    Ip(IpAddr),
    /// The port differs from the one that the receiver listens on.
    Socket(SocketAddr),
}

fn parse_advertised(text: &str) -> Result<Advertised, String> {
    text.parse()
        .map(Advertised::Socket)
        .or_else(|_| text.parse().map(Advertised::Ip))
        .map_err(|_| "expected an IP address, or one with a port such as 192.0.2.7:4433".to_owned())
}

/// A warning if a ticket with these addresses serves only programs on this host.
fn loopback_warning(addresses: &[TicketAddress]) -> Option<String> {
    let is_loopback =
        |address: &TicketAddress| matches!(address, TicketAddress::Socket(address) if address.ip().is_loopback());
    addresses.iter().all(is_loopback).then(|| {
        "no network device of this host has an address now, so that only programs on this host can use the ticket: run \
         the command again once the network is up (`ip address` shows it), or name an address with --listen"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_takes_an_address_a_port_or_both() {
        let at = |ip: Option<&str>, port| Ok(ListenAt { ip: ip.map(|ip| ip.parse().unwrap()), port });
        assert_eq!(parse_listen("192.0.2.7:4433"), at(Some("192.0.2.7"), 4433));
        assert_eq!(parse_listen("192.0.2.7"), at(Some("192.0.2.7"), 0));
        assert_eq!(parse_listen(":4433"), at(None, 4433));
        assert_eq!(parse_listen("[2001:db8::1]:4433"), at(Some("2001:db8::1"), 4433));
        assert_eq!(parse_listen("2001:db8::1"), parse_listen("[2001:db8::1]"));
        for text in [":99999", "192.0.2.7:65536", "[2001:db8::1]:99999"] {
            assert!(parse_listen(text).is_err_and(|error| error.contains("at most 65535")), "{text}");
        }
        for bad in ["", "host:1", "4433", ":", "192.0.2.7:", "192.0.2.7:22x", "2001:db8::99999"] {
            assert!(parse_listen(bad).is_err_and(|error| error.contains("ADDRESS or :PORT")), "{bad}");
        }
    }

    #[test]
    fn a_ticket_for_this_host_alone_is_warned_of() {
        let [loopback, other] = ["127.0.0.1:1", "192.0.2.1:1"].map(|text| TicketAddress::Socket(text.parse().unwrap()));
        assert!(loopback_warning(std::slice::from_ref(&loopback)).is_some_and(|text| text.contains("--listen")));
        assert!(loopback_warning(&[loopback, other]).is_none());
    }
}
