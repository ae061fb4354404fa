//! A device gets its name, its namespace and its addresses, by the command `ip`.

use std::io;

use net::tun::Tun;

use crate::Cidr;
use crate::namespace::ip;

/// Super-packets that the kernel keeps for us while we are busy. We read whatever is there before we do anything else, so this
/// is no queue of the link: it covers the time that the system may take to let us run. What finds it full is dropped
/// by the kernel and counted as the device's `dropped`.
const TRANSMIT_QUEUE_PACKETS: &str = "8192";

/// Moves `device` into its namespace under its last name, and sets it up with its addresses.
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
    // No address but those asked for, and none of the packets that look for routers and neighbours on a link that has two
    // ends. Without IPv6 in the kernel there is nothing to switch off.
    let _no_ipv6 = ip(namespace, &["link", "set", "dev", name, "addrgenmode", "none"]);
    let mtu = mtu.to_string();
    ip(namespace, &["link", "set", "dev", name, "mtu", &mtu, "txqueuelen", TRANSMIT_QUEUE_PACKETS])?;
    for address in addresses {
        // Nobody else can have the address on this link, so it need not be asked for first.
        let no_detection: &[&str] = if address.address.is_ipv6() { &["nodad"] } else { &[] };
        let address = address.to_string();
        let adding = [&["address", "add", &address, "dev", name], no_detection].concat();
        ip(namespace, &adding)?;
    }
    ip(namespace, &["link", "set", "dev", name, "up"]).map(|_| ())
}
