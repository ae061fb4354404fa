//! The device and the address that a socket of a path is bound to.

use std::net::IpAddr;

/// Returns whether an address is link-local.
pub(super) const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the device a socket is bound to. Where sockets cannot be bound to devices, the routes
/// choose by the local address.
pub(super) fn device_to_bind(interface: &str) -> Option<String> {
    cfg!(any(target_os = "linux", target_os = "android")).then(|| interface.to_owned())
}
