//! The local ends of paths: the device and the address of each socket of an endpoint, for the user.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use quic::Addresses;

use crate::paths::follow::LinkDown;

/// Local end of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalEnd {
    /// `None` if the routing table chooses the device.
    pub device: Option<String>,
    /// The unspecified address if the system chooses one.
    pub ip: IpAddr,
    /// Why nothing can be sent there now.
    pub down: Option<LinkDown>,
}

/// The local ends of all sockets of an endpoint. The thread that follows the links changes them.
#[derive(Debug, Default)]
pub struct LocalEnds(Mutex<Vec<Option<LocalEnd>>>);

impl LocalEnds {
    /// The socket with the index `place` is bound to this now.
    pub fn bind(&self, place: usize, device: Option<String>, ip: IpAddr) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() <= place {
            ends.resize(place + 1, None);
        }
        ends[place] = Some(LocalEnd { device, ip, down: None });
    }

    /// Nothing can be sent on the socket, for this reason; `None` if it works again.
    pub fn set_down(&self, place: usize, down: Option<LinkDown>) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(end)) = ends.get_mut(place) {
            end.down = down;
        }
    }

    /// The ends of all sockets, by their index.
    pub fn all(&self) -> Vec<Option<LocalEnd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The local end of a path between these addresses.
    pub fn of(&self, addresses: &Addresses) -> LocalEnd {
        let any = if addresses.remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ends.get(usize::from(addresses.socket)).cloned().flatten();
        let mut end = known.unwrap_or(LocalEnd { device: None, ip: any, down: None });
        // A socket that is bound to no address knows that of each packet.
        if let Some(ip) = addresses.local_ip.filter(|_| end.ip.is_unspecified()) {
            end.ip = ip;
        }
        end
    }
}

/// A path in words, of which the device and the local address may not be known.
pub fn path_text(device: Option<&str>, address: Option<&str>, remote: &str) -> String {
    match (device, address) {
        (Some(device), Some(address)) => format!("over {device} ({address}) to {remote}"),
        (Some(device), None) => format!("over {device} to {remote}"),
        (None, Some(address)) => format!("from {address} to {remote}"),
        (None, None) => format!("to {remote}"),
    }
}

impl LocalEnd {
    /// The address, if it is known.
    pub fn address(&self) -> Option<String> {
        Some(self.ip).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string())
    }

    /// The path to `remote` in words: its device and its ends.
    pub fn path_text(&self, remote: &str) -> String {
        path_text(self.device.as_deref(), self.address().as_deref(), remote)
    }
}
