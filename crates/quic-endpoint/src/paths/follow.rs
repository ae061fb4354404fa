//! Decides how sockets react when links appear and disappear.
//!
//! [`LinkFollower`] knows the device and the address that each socket is bound to. After a change
//! of the host's interfaces it receives their table and returns an action for each affected socket.
//! It does no IO.

use std::fmt;
use std::net::IpAddr;

use net::Interface;

/// The reason why a socket cannot be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkDown {
    /// There is no device of that name.
    Removed,
    /// The device is administratively down.
    SwitchedOff,
    /// The device has no carrier: no cable, no association.
    NoCarrier,
    /// The device no longer has the address.
    NoAddress,
}

impl fmt::Display for LinkDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "the device was removed",
            Self::SwitchedOff => "the device is down",
            Self::NoCarrier => "the device has no carrier",
            Self::NoAddress => "the address was removed",
        })
    }
}

/// An action on a socket, identified by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// The device was recreated with another index, and the socket is bound to the former one. Open
    /// the socket anew; [`LinkFollower::on_reopened`] reports success.
    Reopen {
        /// The number of the socket.
        socket: usize,
        /// The index of the device.
        index: u32,
    },
    /// The socket can neither send nor receive until further notice.
    SwitchOff {
        /// The number of the socket.
        socket: usize,
        /// The reason.
        reason: LinkDown,
    },
    /// The socket works again.
    SwitchOn {
        /// The number of the socket.
        socket: usize,
    },
}

/// Follows the links of sockets.
#[derive(Clone, Debug, Default)]
pub struct LinkFollower {
    /// Sockets by number; `None` for a socket that is no longer followed.
    sockets: Vec<Option<Followed>>,
}

/// One socket.
#[derive(Clone, Debug)]
struct Followed {
    device: String,
    ip: IpAddr,
    /// The index of the device to which the socket is bound.
    index: u32,
    down: Option<LinkDown>,
}

impl LinkFollower {
    /// Creates a follower without sockets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a socket that was just bound to a device and an address; returns its number. `index` is
    /// the device's index; 0 if it is not known, which takes the index from the first table.
    pub fn add(&mut self, device: &str, ip: IpAddr, index: u32) -> usize {
        self.sockets.push(Some(Followed { device: device.to_owned(), ip, index, down: None }));
        self.sockets.len() - 1
    }

    /// Replaces a socket by one that was just bound, like [`add`](Self::add); it keeps the number.
    pub fn replace(&mut self, socket: usize, device: &str, ip: IpAddr, index: u32) {
        if let Some(followed) = self.sockets.get_mut(socket) {
            *followed = Some(Followed { device: device.to_owned(), ip, index, down: None });
        }
    }

    /// Stops following a socket that is no longer used.
    pub fn remove(&mut self, socket: usize) {
        if let Some(followed) = self.sockets.get_mut(socket) {
            *followed = None;
        }
    }

    /// Takes the current interfaces and returns actions. They lead from the state at the last call
    /// to this one; a socket that could not be reopened is listed again.
    #[must_use]
    pub fn on_interfaces(&mut self, interfaces: &[Interface]) -> Vec<LinkAction> {
        let mut actions = Vec::new();
        for (socket, followed) in self.sockets.iter_mut().enumerate() {
            let Some(followed) = followed else { continue };
            match link_state(&followed.device, followed.ip, interfaces) {
                Ok(index) if followed.index == 0 => followed.index = index,
                Ok(index) if index != followed.index => actions.push(LinkAction::Reopen { socket, index }),
                Ok(_) => {
                    if followed.down.take().is_some() {
                        actions.push(LinkAction::SwitchOn { socket });
                    }
                }
                Err(reason) => {
                    if followed.down.replace(reason) != Some(reason) {
                        actions.push(LinkAction::SwitchOff { socket, reason });
                    }
                }
            }
        }
        actions
    }

    /// Records that a socket was reopened on the device with this index.
    pub fn on_reopened(&mut self, socket: usize, index: u32) {
        if let Some(Some(followed)) = self.sockets.get_mut(socket) {
            (followed.index, followed.down) = (index, None);
        }
    }
}

/// Returns the index of a device, if packets can be sent there from the address `ip`.
///
/// # Errors
/// The reason why packets cannot be sent.
pub(super) fn link_state(device: &str, ip: IpAddr, interfaces: &[Interface]) -> Result<u32, LinkDown> {
    let device = interfaces.iter().find(|interface| interface.name == device).ok_or(LinkDown::Removed)?;
    if !device.is_up {
        return Err(LinkDown::SwitchedOff);
    }
    if !device.addresses.iter().any(|address| address.ip == ip) {
        return Err(LinkDown::NoAddress);
    }
    if device.is_running { Ok(device.index) } else { Err(LinkDown::NoCarrier) }
}

#[cfg(test)]
mod tests;
