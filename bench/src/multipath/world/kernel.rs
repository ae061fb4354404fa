//! Kernel settings for TCP and Multipath TCP: buffers and subflows.

use super::{Hosts, address, command, device, ip};
use crate::contender::Failure;

/// Bytes of a kernel socket's buffers: more than any case's links hold.
const BUFFER_BYTES: u32 = 64 << 20;
/// Linux's limit of subflows besides the first, and of announced addresses.
const SUBFLOWS_MAX: usize = 8;

/// Lets host b announce its addresses and host a open a subflow to each: the kernel finds the
/// device by the address.
pub fn set_up(hosts: &Hosts, links: usize) -> Result<(), Failure> {
    for host in [&hosts.a, &hosts.b] {
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            set(host, &format!("{name}={BUFFER_BYTES} {BUFFER_BYTES} {BUFFER_BYTES}"))?;
        }
        let limit = SUBFLOWS_MAX.to_string();
        ip(&["-n", host, "mptcp", "limits", "set", "subflows", &limit, "add_addr_accepted", &limit])?;
    }
    for index in (1..links).take(SUBFLOWS_MAX) {
        let (ours, device) = (address(index, true).to_string(), device(index));
        ip(&["-n", &hosts.b, "mptcp", "endpoint", "add", &ours, "dev", &device, "signal"])?;
    }
    Ok(())
}

fn set(host: &str, setting: &str) -> Result<(), Failure> {
    command("ip", &["netns", "exec", host, "sysctl", "-q", "-w", setting]).map(drop)
}
