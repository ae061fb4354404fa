//! `litz forward`: TCP, UDP and UNIX connections over one connection with all links.
//!
//! | module | contents |
//! |---|---|
//! | [`options`] | the arguments |
//! | [`client`], [`serve`] | the two ends |
//! | [`session`] | one connection between them: requests and answers, the same for both ends |
//! | [`frames`] | messages on streams |
//! | [`listener`], [`datagrams`], [`socks`] | where connections and packets come in |
//! | [`dial`] | where they go |
//! | [`carry`], [`socket`] | data of a connection, both ways |
//! | [`udp`] | packets of flows |
//! | [`program`], [`takeover`] | `litz run`: a program whose connections are forwarded |
//! | [`stdio`] | standard input and output as a connection |
//! | [`report`] | what the user is told |
//!
//! The protocol, SOCKS and the rules for targets are in the crate `forward`, without sockets.

mod carry;
mod client;
mod datagrams;
mod dial;
mod frames;
mod listener;
mod options;
mod program;
mod report;
mod serve;
mod session;
mod socket;
mod socks;
mod stdio;
mod takeover;
mod udp;

use std::process::ExitCode;
use std::sync::Arc;

use litz::identity::{ClientTls, Fingerprint, KeyPair, client_config, server_config};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use super::exit;
use options::ForwardCommand;
pub(crate) use options::{ForwardOptions, HELP, USAGE};
pub(crate) use program::{HELP as RUN_HELP, USAGE as RUN_USAGE};
pub(crate) use program::{RunOptions, run as run_program};

/// Threads that look names up, of which one may take as long as its resolver.
const LOOKUPS_MAX: usize = 64;

/// Threads for sockets. More serve more connections at a time; the protocol has threads of its own.
const WORKERS_MAX: usize = 4;

pub(crate) fn run(options: &ForwardOptions) -> ExitCode {
    raise_descriptor_limit();
    let (json, status) = match &options.serve {
        Some(ForwardCommand::Serve(options)) => (options.transport.json, serve::run(options)),
        None => (options.client.server.transport.json, client::run(&options.client)),
    };
    match status {
        Ok(status) => ExitCode::from(status),
        Err(message) => exit::fail(json, exit::FAILED, &message),
    }
}

/// The runtime of the sockets.
fn runtime() -> Result<Runtime, String> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).max_blocking_threads(LOOKUPS_MAX).enable_all().build();
    runtime.map_err(|error| format!("cannot start the threads for sockets: {error}"))
}

/// Each connection takes a descriptor. Raises the soft limit to the hard one.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Without the right to do that, connections wait where there are too many.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// TLS settings as for transfers, for this protocol.
mod tls {
    use super::*;

    pub(super) fn server(key: &KeyPair) -> Result<Arc<rustls::ServerConfig>, String> {
        let mut config = server_config(key).map_err(|error| error.to_string())?;
        Arc::make_mut(&mut config).alpn_protocols = vec![forward::ALPN.to_vec()];
        Ok(config)
    }

    pub(super) fn client(key: &KeyPair, server: Fingerprint) -> Result<ClientTls, String> {
        let mut tls = client_config(key, &[server]).map_err(|error| error.to_string())?;
        Arc::make_mut(&mut tls.config).alpn_protocols = vec![forward::ALPN.to_vec()];
        Ok(tls)
    }
}
