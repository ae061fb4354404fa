//! The connections of a daemon: one to each of its servers, beside each other.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use transfer::CancelToken;

use super::routes::{Route, Routes};
use super::server::DaemonSocket;
use super::servers::ListedServer;
use crate::cli::exit;
use crate::cli::forward::client::access::Access;
use crate::cli::forward::client::{CLOSE_TIME, Client, For, check_dynamic, conclude, report, tell_ready};
use crate::cli::forward::options::{ClientOptions, Forwards};
use crate::cli::forward::setup::runtime;
use crate::cli::lost::Lost;

/// Serves the programs that come in through `daemon_socket`, over the listed servers or that of the options. Returns
/// the status.
pub(super) fn run(
    options: &ClientOptions,
    servers: Option<Vec<ListedServer>>,
    daemon_socket: &DaemonSocket,
    cancel: CancelToken,
) -> Result<u8, String> {
    let ClientOptions { server, forwards } = options;
    check_dynamic(forwards)?;
    let (report, purpose) = (report(server), For::Daemon(daemon_socket));
    // The first server has the forwards.
    let none = Forwards { udp_idle: forwards.udp_idle, ..Forwards::none() };
    let is_listed = servers.is_some();
    let accesses = match servers {
        None => vec![(Access::of(server)?, None)],
        Some(servers) => servers.into_iter().map(Access::listed).collect(),
    };
    let (mut clients, mut routes) = (Vec::new(), Vec::new());
    for (access, rules) in accesses {
        let name = access.name.clone();
        let forwards = if clients.is_empty() { forwards } else { &none };
        let client = Client::prepare(server, access, forwards, purpose, cancel.clone(), Arc::clone(&report))?;
        routes.push(Route { name, rules, own: Arc::new(client.own()) });
        clients.push(client);
    }
    let (runtime, mut programs) = (runtime()?, JoinSet::new());
    {
        let _context = runtime.enter();
        daemon_socket.serve(Routes::new(routes), &report, &mut programs)?;
    }
    let lost = run_all(&clients, &runtime, is_listed);
    programs.abort_all();
    runtime.shutdown_timeout(CLOSE_TIME);
    clients.iter().for_each(|client| client.recording.finish(&server.transport));
    let status = conclude(purpose, server, Err(lost));
    if daemon_socket.is_stopped() && status == Ok(exit::INTERRUPTED) { Ok(exit::DONE) } else { status }
}

/// Runs the clients, each in a thread that waits, until all have ended. One that is given up does not end the others;
/// an interrupt ends all.
fn run_all(clients: &[Client<'_>], runtime: &Runtime, is_listed: bool) -> Lost {
    let _listeners = match clients.iter().map(|client| client.listen(runtime)).collect::<Result<Vec<_>, _>>() {
        Ok(listeners) => listeners,
        Err(message) => return Lost::last(message),
    };
    if is_listed {
        // Programs may come now. Servers that are away now may be so for long: the host may just have started.
        tell_ready();
    }
    let run = |client: &Client<'_>| {
        let lost = client.keep_connected(runtime).err();
        if let Some(lost) = lost.as_ref().filter(|lost| !lost.is_interrupt && clients.len() > 1) {
            client.tell_given_up(lost);
        }
        lost
    };
    let ended: Vec<Lost> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients.iter().map(|client| scope.spawn(move || run(client))).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().unwrap_or_else(|panicked| resume_unwind(panicked)))
            .collect()
    });
    if ended.iter().any(|lost| lost.is_interrupt) {
        return Lost::interrupt();
    }
    let messages: Vec<String> = ended.into_iter().map(|lost| lost.message).collect();
    let all = messages.join("; ");
    Lost::last(if messages.len() > 1 { format!("no server is left: {all}") } else { all })
}
