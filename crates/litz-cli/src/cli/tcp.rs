//! `litz tcp`: the TCP/IP stack of this program, on a TUN device that it makes.

mod bench;
mod device;
mod layers;
mod options;
mod pipe;
mod replicated;

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::options::StackOptions;

/// The end of the help text.
pub(crate) const HELP: &str = "\
The device has two ends. The kernel has the first address of each network (--kernel), the stack has \
another one (--address). Programs on this host reach the stack at its address. The device is removed \
when the command ends. It needs root, or CAP_NET_ADMIN.

Examples:
  litz tcp listen 8080 > file    then, elsewhere: nc -N 10.66.0.2 8080 < file
  litz tcp connect 10.66.0.1:22  to the ssh server of this host
  litz tcp send 10.67.0.2:80 10.67.1.2:80 < file
                                 over two channels, to a litz tcp receive
  litz tcp bench                 bytes to and from the kernel, each way

Exit status:
  0    both directions have ended in order; of `bench`: the result was printed
  1    the connection was refused, reset or timed out
  2    an error: bad arguments, no device";

/// The end of the help text of `bench`.
const BENCH_HELP: &str = "\
It needs root, or CAP_NET_ADMIN, and an otherwise idle machine.

Exit status:
  0    the result was printed
  2    an error: bad arguments, no device, a connection that failed";

#[derive(Args, Debug)]
pub(crate) struct TcpOptions {
    #[command(subcommand)]
    command: TcpCommand,
}

#[derive(Subcommand, Debug)]
enum TcpCommand {
    /// Accept one connection: received data go to standard output, standard input to the peer
    #[command(after_help = HELP)]
    Listen(ListenOptions),
    /// Connect to a program: standard input goes to the peer, received data to standard output
    #[command(after_help = HELP)]
    Connect(ConnectOptions),
    /// Send standard input over several channels at a time, each with a stack and a device of its own
    #[command(after_help = HELP)]
    Send(replicated::SendOptions),
    /// Receive what `litz tcp send` sends, and write it to standard output
    #[command(after_help = HELP)]
    Receive(replicated::ReceiveOptions),
    /// Measure the stack against the kernel's: one connection, each way
    #[command(after_help = BENCH_HELP)]
    Bench(bench::BenchOptions),
}

#[derive(Args, Debug)]
struct ListenOptions {
    /// Port to listen on
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    #[command(flatten)]
    stack: StackOptions,
}

#[derive(Args, Debug)]
struct ConnectOptions {
    /// Address and port of the program, such as 10.66.0.1:80 or [fd66::1]:80
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_remote)]
    remote: SocketAddr,

    #[command(flatten)]
    stack: StackOptions,
}

fn parse_remote(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 10.66.0.1:80 or [fd66::1]:80".to_owned())
}

pub(crate) fn run(options: &TcpOptions) -> ExitCode {
    match &options.command {
        TcpCommand::Listen(options) => pipe::listen(&options.stack, options.port),
        TcpCommand::Connect(options) => pipe::connect(&options.stack, options.remote),
        TcpCommand::Send(options) => replicated::send(options),
        TcpCommand::Receive(options) => replicated::receive(options),
        TcpCommand::Bench(options) => bench::run(options),
    }
}
