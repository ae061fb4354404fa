//! `litz tunnel`: IP packets of this host over all its links to another host.

mod addresses;
mod control;
mod host_network;
mod serve;
mod status;
mod up;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use litz::TransportConfig;

use super::connect::base_transport;
use super::transport_options::TransportOptions;

/// The end of the help text.
pub(crate) const HELP: &str = "\
Examples:
  litz tunnel serve                       on one host: prints a ticket
  litz tunnel up TICKET                   on the other: a network device, litz0, that leads there
  litz tunnel serve --allow keys --route 192.168.7.0/24
                                          for several hosts, which reach this network, too

It needs root, or CAP_NET_ADMIN.

Exit status:
  0    ended in order
  2    an error: bad arguments, no device, no connection, refused
  130  interrupted";

/// Bytes of datagrams that wait in a connection, at most. Others wait in the queues of the tunnel, where
/// flows are separate. Two batches of what is sent with one system call keep the connection busy.
const DATAGRAM_SEND_BUFFER: u64 = 128 << 10;

/// Bytes of received datagrams that wait for the thread that writes them to the device.
const DATAGRAM_RECEIVE_BUFFER: u64 = 4 << 20;

/// The size of inner packets that fits a datagram of a path with Ethernet's MTU, with IPv6 and all headers.
const MTU_DEFAULT: u16 = 1400;

/// The smallest MTU of IPv6 (RFC 8200, section 5).
const MTU_MIN: u16 = 1280;

/// The name of the device, if the user gives none.
const DEVICE_DEFAULT: &str = "litz0";

#[derive(Args, Debug)]
pub(crate) struct TunnelOptions {
    #[command(subcommand)]
    command: TunnelCommand,
}

#[derive(Subcommand, Debug)]
enum TunnelCommand {
    /// Serve other hosts: print a ticket, and exchange IP packets with the hosts that have it, or
    /// whose keys are listed
    #[command(after_help = HELP)]
    Serve(serve::ServeOptions),
    /// Connect to a host that serves: a network device leads there while the command runs
    #[command(after_help = HELP)]
    Up(up::UpOptions),
}

pub(crate) fn run(options: &TunnelOptions) -> ExitCode {
    match &options.command {
        TunnelCommand::Serve(options) => serve::run(options),
        TunnelCommand::Up(options) => up::run(options),
    }
}

/// The transport configuration of a tunnel.
///
/// # Errors
/// If the options do not fit together.
fn transport(options: &TransportOptions) -> Result<TransportConfig, String> {
    let config = base_transport(options, None, None)
        .with_datagram_send_buffer(DATAGRAM_SEND_BUFFER)
        .with_datagram_receive_buffer(DATAGRAM_RECEIVE_BUFFER);
    config.validate()?;
    Ok(config)
}
