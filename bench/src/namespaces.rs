//! Two hosts on one machine: network namespaces joined by a veth pair, removed when dropped.
//!
//! ```text
//!   litz-bench-a  10.77.0.1 ── veth ── 10.77.0.2  litz-bench-b
//! ```

use std::process::Command;

pub const CLIENT: &str = "litz-bench-a";
pub const SERVER: &str = "litz-bench-b";
pub const SERVER_ADDRESS: &str = "10.77.0.2";

/// The namespaces while they exist.
pub struct Namespaces(());

impl Namespaces {
    /// Creates them; needs root.
    pub fn make() -> Result<Self, String> {
        remove();
        let made = Self(());
        ip(&["netns", "add", CLIENT])?;
        ip(&["netns", "add", SERVER])?;
        ip(&["link", "add", "veth0", "netns", CLIENT, "type", "veth", "peer", "name", "veth0", "netns", SERVER])?;
        for (namespace, address) in [(CLIENT, "10.77.0.1/24"), (SERVER, "10.77.0.2/24")] {
            ip(&["-n", namespace, "address", "add", address, "dev", "veth0"])?;
            ip(&["-n", namespace, "link", "set", "veth0", "up"])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        }
        Ok(made)
    }

    /// Sets the MTU of both ends.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), String> {
        for namespace in [CLIENT, SERVER] {
            ip(&["-n", namespace, "link", "set", "veth0", "mtu", &mtu.to_string()])?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        remove();
    }
}

fn remove() {
    for namespace in [CLIENT, SERVER] {
        // They may not exist.
        let _removed = Command::new("ip").args(["netns", "delete", namespace]).output();
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("cannot run ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "ip {}: {} (network namespaces need root)",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    ))
}
