//! Two hosts with several links between them: network namespaces with unique names, removed when
//! dropped.
//!
//! ```text
//!   litz-mp-PID-a                                   litz-mp-PID-b
//!   10.88.0.1 ─ l0 ── veth, token bucket each way ── l0 ─ 10.88.0.2
//!   10.88.1.1 ─ l1 ── or TUN devices and the model ── l1 ─ 10.88.1.2
//! ```

mod emulated;
mod kernel;
mod veth;

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use serde::Serialize;

use super::case::Case;
use crate::contender::Failure;

/// The namespaces and links of one case, while they exist.
///
/// Links are dropped before the hosts that they join.
pub struct World {
    links: Links,
    hosts: Hosts,
    count: usize,
}

enum Links {
    Veth,
    Emulated(emulated::Emulated),
}

/// Counters of one link from a to b.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Carried {
    /// Bytes of frames or packets that have left for the other side.
    pub bytes: u64,
    pub packets: u64,
    /// Packets dropped by a full queue or lost by the model.
    pub dropped: u64,
}

impl Carried {
    /// The difference to `before`.
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            packets: self.packets - before.packets,
            dropped: self.dropped - before.dropped,
        }
    }
}

impl World {
    /// Creates hosts and links; needs root.
    pub fn make(case: Case) -> Result<Self, Failure> {
        let hosts = Hosts::make()?;
        let lines = case.lines();
        let links = if case.is_emulated() {
            Links::Emulated(emulated::Emulated::make(&hosts, &lines)?)
        } else {
            veth::make(&hosts, &lines)?;
            Links::Veth
        };
        kernel::set_up(&hosts, lines.len())?;
        Ok(Self { links, hosts, count: lines.len() })
    }

    pub fn sender(&self) -> &str {
        &self.hosts.a
    }

    pub fn receiver(&self) -> &str {
        &self.hosts.b
    }

    /// The counters of each link from a to b.
    pub fn carried(&self) -> Result<Vec<Carried>, Failure> {
        match &self.links {
            Links::Veth => veth::carried(&self.hosts, self.count),
            Links::Emulated(emulated) => Ok(emulated.carried()),
        }
    }

    /// Drops all packets on a link, in both directions, without an error to either side.
    pub fn cut(&self, link: usize) -> Result<(), Failure> {
        match &self.links {
            Links::Veth => Err("only emulated links can be cut".into()),
            Links::Emulated(emulated) => emulated.cut(link),
        }
    }

    /// Ends the cut.
    pub fn restore(&self, link: usize) -> Result<(), Failure> {
        match &self.links {
            Links::Veth => Err("only emulated links can be cut".into()),
            Links::Emulated(emulated) => emulated.restore(link),
        }
    }

    /// The emulator's lateness as text; `None` without an emulator.
    pub fn lateness(&self) -> Option<String> {
        match &self.links {
            Links::Veth => None,
            Links::Emulated(emulated) => Some(emulated.lateness()),
        }
    }
}

/// The address on link `index` of host a or b.
pub fn address(index: usize, is_b: bool) -> IpAddr {
    Ipv4Addr::new(10, 88, index as u8, if is_b { 2 } else { 1 }).into()
}

/// The device of the link on which this is one of the addresses.
pub fn device_at(address: IpAddr) -> String {
    let index = match address {
        IpAddr::V4(address) => address.octets()[2],
        IpAddr::V6(_) => 0,
    };
    device(usize::from(index))
}

/// The device of link `index`, on both sides.
fn device(index: usize) -> String {
    format!("l{index}")
}

/// Two namespaces.
pub struct Hosts {
    pub a: String,
    pub b: String,
}

impl Hosts {
    fn make() -> Result<Self, Failure> {
        let [a, b] = names();
        remove();
        let made = Self { a, b };
        for name in [&made.a, &made.b] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(made)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        remove();
    }
}

/// The namespaces of this process.
fn names() -> [String; 2] {
    ["a", "b"].map(|side| format!("litz-mp-{}-{side}", std::process::id()))
}

/// Removes the namespaces of this process, with the processes in them, which are ours.
pub fn remove() {
    for name in names() {
        // The namespace may not exist.
        let Ok(output) = Command::new("ip").args(["netns", "pids", &name]).output() else { continue };
        for id in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            if let Some(id) = id.parse().ok().and_then(rustix::process::Pid::from_raw) {
                // The process may exit at this moment.
                let _told = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
        let _removed = Command::new("ip").args(["netns", "delete", &name]).output();
    }
}

fn ip(arguments: &[&str]) -> Result<String, Failure> {
    command("ip", arguments)
}

/// Runs a command, which must succeed; returns its output.
fn command(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {} (network namespaces need root)", arguments.join(" "), said.trim()).into())
}
