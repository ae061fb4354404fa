//! The options of the device and of the stack.

use std::net::IpAddr;

use clap::Args;
use emulate::Cidr;
use litz::Placement;
use recovery::Algorithm;

use crate::cli::heading;

/// The device and the stack.
#[derive(Args, Debug)]
pub(super) struct StackOptions {
    /// Name of the TUN device
    #[arg(long, value_name = "NAME", default_value = "litz-tcp", help_heading = heading::PATHS)]
    pub(super) device: String,

    /// Address of the kernel's end with the length of its network; one for each family
    #[arg(long, value_name = "ADDRESS/BITS", default_values = ["10.66.0.1/24", "fd66::1/64"],
          help_heading = heading::PATHS)]
    pub(super) kernel: Vec<Cidr>,

    /// Address of the stack; one for each family
    #[arg(long, value_name = "ADDRESS", default_values = ["10.66.0.2", "fd66::2"], help_heading = heading::PATHS)]
    pub(super) address: Vec<IpAddr>,

    /// Largest IP packet in bytes
    #[arg(long, value_name = "BYTES", default_value = "1500", help_heading = heading::PATHS,
          value_parser = clap::value_parser!(u16).range(1280..))]
    pub(super) mtu: u16,

    /// Congestion control: newreno, cubic or bbr
    #[arg(long, value_name = "NAME", default_value_t, help_heading = heading::PROTOCOL)]
    pub(super) congestion: Algorithm,

    /// The processors of the stack: inline, thread, split, packet(N), connection(N)
    #[arg(long, value_name = "PLACEMENT", default_value_t, help_heading = heading::MACHINE)]
    pub(super) placement: Placement,
}
