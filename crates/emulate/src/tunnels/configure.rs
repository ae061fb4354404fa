//! Configuration of devices (name, namespace, addresses) with the command `ip`.

use std::io;

use net::tun::Tun;

use crate::cidr::Cidr;
use crate::namespace::ip;

/// Capacity of the kernel's transmit queue in super-packets. The emulator reads all packets before
/// it does anything else, so this queue is not part of the link: it covers scheduling delays. The
/// kernel drops further packets and counts them as the device's `dropped`.
const TRANSMIT_QUEUE_PACKETS: &str = "8192";

/// Moves `device` into its namespace under its final name, and configures it.
pub(super) fn configure(
    device: &Tun,
    namespace: Option<&str>,
    name: &str,
    mtu: u16,
    addresses: &[Cidr],
) -> io::Result<()> {
    let mut moving = vec!["link", "set", "dev", device.name()];
    if let Some(namespace) = namespace {
        moving.extend(["netns", namespace]);
    }
    moving.extend(["name", name]);
    ip(None, &moving)?;
    // No addresses other than the requested ones, and no router or neighbour discovery on a
    // point-to-point link. Fails if the kernel has no IPv6, which has the same effect.
    let _no_ipv6 = ip(namespace, &["link", "set", "dev", name, "addrgenmode", "none"]);
    let mtu = mtu.to_string();
    ip(namespace, &["link", "set", "dev", name, "mtu", &mtu, "txqueuelen", TRANSMIT_QUEUE_PACKETS])?;
    for address in addresses {
        // No other host can have the address on this link, so duplicate address detection is not
        // needed.
        let no_detection: &[&str] = if address.address.is_ipv6() { &["nodad"] } else { &[] };
        let address = address.to_string();
        let adding = [&["address", "add", &address, "dev", name], no_detection].concat();
        ip(namespace, &adding)?;
    }
    ip(namespace, &["link", "set", "dev", name, "up"]).map(|_| ())
}
