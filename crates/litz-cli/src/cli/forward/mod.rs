//! `litz forward`: TCP, UDP and UNIX connections over one connection with all links.
//!
//! | module | contents |
//! |---|---|
//! | [`options`] | the arguments |
//! | [`client`], [`serve`] | the two ends |
//! | [`run`](mod@run), [`program`], [`takeover`] | `litz run`: a program whose connections are forwarded |
//! | [`daemon`] | `litz daemon`: serves such programs over one connection |
//! | [`engine`], [`own`] | who makes the connections of a program: the daemon, or this process |
//! | [`local_pair`], [`hole`] | connections between a program and this process, made now or later |
//! | [`sockets`], [`own_address`] | what the kernel does not know about a program's sockets |
//! | [`publisher`] | publishes ports of a program through the daemon |
//! | [`names`] | names that a program looks up |
//! | [`calls`], [`packet_calls`] | what the answers to several calls need |
//! | [`setup`] | threads, limits and TLS settings of both ends |
//! | [`stdio`] | standard input and output as a connection |
//! | [`report`] | what the user is told |
//!
//! What both ends do with connections and packets is in the crate `forwarding`. The protocol, SOCKS and the rules for
//! targets are in the crate `forward`, without sockets.

mod calls;
mod client;
mod daemon;
mod engine;
mod hole;
mod local_pair;
mod names;
mod options;
mod own;
mod own_address;
mod packet_calls;
mod program;
mod publisher;
pub(crate) mod report;
mod run;
mod serve;
mod setup;
mod sockets;
mod stdio;
mod takeover;

use std::process::ExitCode;

use super::exit;
pub(crate) use daemon::{DaemonOptions, HELP as DAEMON_HELP, USAGE as DAEMON_USAGE, run as run_daemon};
use options::ForwardCommand;
pub(crate) use options::{ForwardOptions, HELP, USAGE};
pub(crate) use program::LITZ_FAILED;
pub(crate) use run::{HELP as RUN_HELP, RunOptions, USAGE as RUN_USAGE, run as run_program};

pub(crate) fn run(options: &ForwardOptions) -> ExitCode {
    setup::raise_descriptor_limit();
    let (json, status) = match &options.serve {
        Some(ForwardCommand::Serve(options)) => (options.transport.json, serve::run(options)),
        None => (options.client.server.transport.json, client::run(&options.client, options.stdio.as_ref())),
    };
    match status {
        Ok(status) => ExitCode::from(status),
        Err(message) => exit::fail(json, exit::FAILED, &message),
    }
}
