//! What a server gives its clients.

use std::net::IpAddr;

use tunnel::Prefix;

use super::addresses::InterfaceAddress;
use super::clients::Behind;

/// What a server gives its clients, as it is when the server starts.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// The server's addresses in the tunnel, whose networks have those of clients.
    pub(super) addresses: Vec<InterfaceAddress>,
    /// The networks behind the server.
    pub(super) routes: Vec<Prefix>,
    pub(super) name_servers: Vec<IpAddr>,
    /// The networks behind listed clients.
    pub(super) behind: Vec<Behind>,
    /// The addresses of listed clients.
    pub(super) of_clients: Vec<IpAddr>,
}
