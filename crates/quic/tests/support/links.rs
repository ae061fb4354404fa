//! The links of a pair: their faults, what passes them, and how the server sees the client's addresses.

use std::net::SocketAddr;

use netem::{LineState, Link, LinkConfig, LinkStats};
use units::{Instant, Rate, Ratio};

use super::datagram::Datagram;
use super::{CLIENT, Pair, client_on};

impl Pair {
    /// Both directions of link `link`, counted from the first link.
    pub fn link_pair(&mut self, link: usize) -> &mut [Link<Datagram>; 2] {
        if link == 0 { &mut self.links } else { &mut self.more_links[link - 1] }
    }

    /// Puts a datagram on the link at the client's end or at the server's.
    pub fn inject(&mut self, direction: usize, datagram: Vec<u8>) {
        self.links[direction].send(self.now, datagram.into());
    }

    /// The address under which the server sees a socket of the client.
    pub(super) fn seen_as(&self, socket: u16) -> SocketAddr {
        let own = if socket == 0 { CLIENT } else { client_on(socket) };
        self.mappings.get(&socket).copied().unwrap_or(own)
    }

    /// A NAT between the two gives a socket of the client another address, and drops the former
    /// mapping.
    pub fn remap(&mut self, socket: u16, address: SocketAddr) {
        self.mappings.insert(socket, address);
    }

    /// Puts a filter before the link of `direction`.
    pub fn tap(&mut self, direction: usize, pass: impl FnMut(Instant, &[u8]) -> bool + 'static) {
        self.taps[direction] = Some(Box::new(pass));
    }

    /// Changes both directions of all links from now on.
    pub fn set_links(&mut self, change: impl Fn(&mut LinkConfig)) {
        for link in self.links.iter_mut().chain(self.more_links.iter_mut().flatten()) {
            let mut config = link.config().clone();
            change(&mut config);
            link.set_config(self.now, config);
        }
    }

    /// The links and the sockets recover from all faults.
    pub fn heal(&mut self) {
        self.set_links(|link| {
            link.state = LineState::Up;
            link.loss = Ratio::ZERO;
            link.duplicate = Ratio::ZERO;
            link.corrupt = Ratio::ZERO;
            link.reorder = Ratio::ZERO;
            link.rate = Some(Rate::from_mbps(1000));
        });
        for node in [&mut self.client, &mut self.server] {
            (node.refuse, node.refuse_only) = (Ratio::ZERO, None);
            node.full.clear();
        }
    }

    /// Statistics of the link to the server and of the link back.
    pub fn link_stats(&self) -> [LinkStats; 2] {
        [*self.links[0].stats(), *self.links[1].stats()]
    }
}
