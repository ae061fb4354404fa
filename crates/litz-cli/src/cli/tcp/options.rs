//! The options of the device and of the stack.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use emulate::Cidr;
use litz::Placement;
use recovery::Algorithm;

use super::layers::LayerOptions;
use crate::cli::heading;

/// The device and the stack.
#[derive(Args, Debug, Clone)]
pub(super) struct StackOptions {
    /// Name of the device
    #[arg(long, value_name = "NAME", default_value = "litz-tcp", help_heading = heading::DEVICE)]
    pub(super) device: String,

    /// Make a TAP device: the stack is a host on an Ethernet link, with the kernel as its router
    #[arg(long, help_heading = heading::DEVICE)]
    pub(super) tap: bool,

    /// Use this Ethernet interface instead of a device of its own: the stack is another host on its link
    ///
    /// The interface must be up. The address of --kernel is that of the link's router.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["device", "tap"], help_heading = heading::DEVICE)]
    pub(super) interface: Option<String>,

    /// Address of the kernel's end with the length of its network; one for each family
    #[arg(long, value_name = "ADDRESS/BITS", default_values = ["10.66.0.1/24", "fd66::1/64"],
          help_heading = heading::DEVICE)]
    pub(super) kernel: Vec<Cidr>,

    /// Address of the stack; one for each family
    #[arg(long, value_name = "ADDRESS", default_values = ["10.66.0.2", "fd66::2"], help_heading = heading::DEVICE)]
    pub(super) address: Vec<IpAddr>,

    /// Largest IP packet in bytes, or that of a link: ethernet (1500), fddi (4352), atm (9180)
    #[arg(long, value_name = "BYTES", default_value = "1500", help_heading = heading::DEVICE, value_parser = parse_mtu)]
    pub(super) mtu: u16,

    /// Congestion control: newreno, cubic or bbr
    #[arg(long, value_name = "NAME", default_value_t, help_heading = heading::PROTOCOL)]
    pub(super) congestion: Algorithm,

    #[command(flatten)]
    pub(super) layers: LayerOptions,

    /// The processors of the stack: inline, thread, split, pipeline, packet(N),
    /// connection(N)
    #[arg(long, value_name = "PLACEMENT", default_value_t, help_heading = heading::MACHINE)]
    pub(super) placement: Placement,

    /// Record a journal of each connection in this folder: all inputs of the connection, for `litz
    /// replay`
    ///
    /// A journal contains addresses, ports, sequence numbers, sizes and times, but no data and no keys.
    /// Only its owner can read it.
    #[arg(long, value_name = "DIR", help_heading = heading::RECORDING)]
    pub(super) journal: Option<PathBuf>,
}

/// The least that IPv6 asks of a link (RFC 8200, section 5).
const MTU_MIN: u16 = 1280;

/// Ethernet: RFC 894. FDDI: RFC 1390. ATM: RFC 2225, section 7.
fn parse_mtu(text: &str) -> Result<u16, String> {
    match text {
        "ethernet" => Ok(1500),
        "fddi" => Ok(4352),
        "atm" => Ok(9180),
        number => number
            .parse()
            .ok()
            .filter(|mtu| *mtu >= MTU_MIN)
            .ok_or_else(|| format!("expected from {MTU_MIN} to {} bytes, ethernet, fddi or atm", u16::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_mtu;

    #[test]
    fn packet_sizes_are_numbers_or_names_of_links() {
        assert_eq!(
            ["ethernet", "fddi", "atm", "1280", "65535"].map(parse_mtu),
            [1500, 4352, 9180, 1280, 65535].map(Ok)
        );
        for wrong in ["1279", "65536", "token-ring", ""] {
            assert!(parse_mtu(wrong).is_err(), "{wrong}");
        }
    }
}
