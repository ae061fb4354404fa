//! One case with one peer in one role.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use litz::{
    AddressValidation, Connection, Endpoint, EndpointConfig, Stats, TransportConfig, UdpSocketOptions, Versions,
};
use serde_json::Value;

use super::http3;
use super::ours::{Client, serve};
use super::process::Process;
use super::relay::{Faults, Relay, Seen};
use crate::certificates::Made;

/// The role of Litz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connects.
    Client,
    /// It accepts.
    Server,
}

impl Role {
    /// As the results name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// What a case does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the client does.
    pub steps: Vec<String>,
    /// The server demands a proof of the client's address.
    pub retry: bool,
    /// The requests go over HTTP/3.
    pub http3: bool,
    /// Both sides allow 0-RTT.
    pub early: bool,
    /// The faults between the two; none if there is no relay.
    pub faults: Option<Faults>,
    /// Our settings.
    pub transport: TransportConfig,
    /// A case that takes longer has failed.
    pub timeout: Duration,
}

/// What a case showed.
#[derive(Debug, Default)]
pub struct Observed {
    /// The events of the client, ours or theirs.
    pub lines: Vec<Value>,
    /// What passed the relay.
    pub seen: Seen,
    /// What each of our connections reported.
    pub stats: Vec<Stats>,
    /// From the restart of the server to the end of the program.
    pub after_pause: Option<Duration>,
}

/// Both sides derive their reset tokens from this, before and after a restart.
const RESET_KEY: [u8; 32] = [0x5a; 32];

/// Where the certificate lies.
pub struct Files<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// What the files contain.
    pub made: &'a Made,
}

impl Files<'_> {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Runs it.
///
/// # Errors
/// What failed, if it is not one of the events.
pub fn run(command: &[String], role: Role, plan: &Plan, files: &Files<'_>, seed: u64) -> Result<Observed, String> {
    match role {
        Role::Client => as_client(command, plan, files, seed),
        Role::Server => as_server(command, plan, files, seed),
    }
}

fn start_server(
    command: &[String],
    plan: &Plan,
    files: &Files<'_>,
    deadline: Instant,
) -> Result<(Process, SocketAddr), String> {
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let mut arguments = words(&["server", "--cert", &cert, "--key", &key]);
    arguments.extend(words(&["--reset-key", &super::hex(&RESET_KEY)]));
    let flags = [(plan.retry, "--retry"), (plan.http3, "--http3")];
    arguments.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()));
    arguments.extend(versions_of(plan));
    let mut process = Process::start(command, &arguments)?;
    let line = process.expect("listening", deadline)?;
    let port = line["port"].as_u64().and_then(|port| u16::try_from(port).ok()).ok_or("a peer without a port")?;
    Ok((process, SocketAddr::from(([127, 0, 0, 1], port))))
}

/// The option that gives a peer the same versions as Litz.
fn versions_of(plan: &Plan) -> Vec<String> {
    match plan.transport.versions {
        Versions::V2 => words(&["--versions", "2"]),
        Versions::PreferV2 => words(&["--versions", "2,1"]),
        // What a peer does without the option.
        _ => Vec::new(),
    }
}

fn start_relay(plan: &Plan, server: SocketAddr, seed: u64) -> Result<Option<Relay>, String> {
    let relay = plan.faults.clone().map(|faults| Relay::start(server, faults, seed)).transpose();
    relay.map_err(|error| format!("the relay: {error}"))
}

/// Closes `endpoint` at the deadline, so that no call on it waits for longer; returns when `work`
/// does.
fn until<T>(deadline: Instant, endpoint: &Endpoint, work: impl FnOnce() -> T) -> T {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
                endpoint.close();
            }
        });
        let result = work();
        let _watchdog_has_ended = done.send(());
        result
    })
}

fn as_client(command: &[String], plan: &Plan, files: &Files<'_>, seed: u64) -> Result<Observed, String> {
    let deadline = Instant::now() + plan.timeout;
    let (mut server, address) = start_server(command, plan, files, deadline)?;
    let relay = start_relay(plan, address, seed)?;
    let sockets = vec![UdpSocketOptions::new(loopback()); 2];
    let config = EndpointConfig::default().with_sockets(sockets).with_transport(plan.transport.clone());
    let endpoint = Endpoint::bind(config).map_err(|error| error.to_string())?;
    let mut observed = Observed::default();
    let mut resumed_at = None;
    let mut client = Client {
        endpoint: &endpoint,
        remote: relay.as_ref().map_or(address, Relay::address),
        tls: client_tls(plan, files),
        connection: None,
        stats: Vec::new(),
        lines: Vec::new(),
    };
    if plan.http3 {
        let (remote, tls) = (client.remote, files.made.configs_for(http3::ALPN).1);
        let run = || -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
            http3::run_client(endpoint.connect(remote, "localhost", tls)?, &plan.steps)
        };
        observed.lines = until(deadline, &endpoint, run).map_err(|error| error.to_string())?;
        return Ok(observed);
    }
    let outcome = until(deadline, &endpoint, || {
        client.run(&plan.steps, || {
            // The old process dies when it is dropped, by SIGKILL: it cannot say goodbye.
            let (process, address) = start_server(command, plan, files, deadline)?;
            server = process;
            relay.as_ref().ok_or("a restart needs a relay")?.set_server(address);
            resumed_at = Some(Instant::now());
            Ok(())
        })
    });
    outcome.map_err(|error| server.with_errors(&format!("{error}; events: {:?}", client.lines)))?;
    if let Some(line) = client.lines.iter().find(|line| line["event"] == "closed" && line["kind"] != "reset") {
        let flows = relay.as_ref().and_then(|relay| relay.seen().ok()).map(|seen| seen.flows);
        let text = format!("{}; bytes by address of the client: {flows:?}", line["text"]);
        return Err(server.with_errors(&format!("the connection was closed: {text}")));
    }
    observed.after_pause = resumed_at.map(|at| at.elapsed());
    (observed.lines, observed.stats) = (client.lines, client.stats);
    if let Some(relay) = &relay {
        observed.seen = relay.seen().map_err(|error| format!("the relay: {error}"))?;
    }
    drop(server);
    Ok(observed)
}

fn client_tls(plan: &Plan, files: &Files<'_>) -> Arc<rustls::ClientConfig> {
    let mut tls = files.made.configs().1;
    Arc::make_mut(&mut tls).enable_early_data = plan.early;
    tls
}

fn our_server(plan: &Plan, files: &Files<'_>) -> Result<Endpoint, String> {
    let mut tls = if plan.http3 { files.made.configs_for(http3::ALPN) } else { files.made.configs() }.0;
    if plan.early {
        Arc::make_mut(&mut tls).max_early_data_size = u32::MAX;
    }
    let validation = if plan.retry { AddressValidation::Always } else { AddressValidation::WhenBusy };
    let config = EndpointConfig::at(loopback())
        .with_transport(plan.transport.clone())
        .with_server_tls(tls)
        .with_address_validation(validation)
        .with_reset_key(RESET_KEY)
        .with_accepts_early(plan.early);
    Endpoint::bind(config).map_err(|error| error.to_string())
}

fn as_server(command: &[String], plan: &Plan, files: &Files<'_>, seed: u64) -> Result<Observed, String> {
    let deadline = Instant::now() + plan.timeout;
    let first = our_server(plan, files)?;
    let relay = start_relay(plan, first.local_addr(), seed)?;
    let server = relay.as_ref().map_or(first.local_addr(), Relay::address).to_string();
    let mut arguments = words(&["client", "--server", &server, "--ca", &files.path("cert.pem")]);
    if plan.http3 {
        arguments.push("--http3".to_owned());
    }
    arguments.extend(versions_of(plan));
    arguments.extend(plan.steps.iter().cloned());
    let connections: Mutex<Vec<Connection>> = Mutex::default();
    let mut observed = Observed::default();
    let mut process = Process::start(command, &arguments)?;
    let has_paused = serving(&first, plan, &connections, || {
        let has_paused = drain(&mut process, deadline, &mut observed.lines);
        // A crashed process sends nothing more, whatever our endpoint says when it is closed.
        if let (Ok(true), Some(relay)) = (&has_paused, &relay) {
            relay.set_cut(true);
        }
        has_paused
    })?;
    if has_paused {
        let relay = relay.as_ref().ok_or("a restart needs a relay")?;
        drop(first);
        let second = our_server(plan, files)?;
        relay.set_server(second.local_addr());
        relay.set_cut(false);
        process.resume()?;
        let resumed_at = Instant::now();
        serving(&second, plan, &connections, || drain(&mut process, deadline, &mut observed.lines))?;
        observed.after_pause = Some(resumed_at.elapsed());
    }
    observed.stats = connections.into_inner().expect("no thread panics").iter().map(Connection::stats).collect();
    if let Some(relay) = &relay {
        observed.seen = relay.seen().map_err(|error| format!("the relay: {error}"))?;
    }
    Ok(observed)
}

/// Serves while `work` runs.
fn serving<T>(endpoint: &Endpoint, plan: &Plan, connections: &Mutex<Vec<Connection>>, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| if plan.http3 { http3::serve(endpoint, connections) } else { serve(endpoint, connections) });
        let result = work();
        endpoint.close();
        result
    })
}

/// Takes the lines of a client until it ends (false) or pauses (true).
fn drain(process: &mut Process, deadline: Instant, lines: &mut Vec<Value>) -> Result<bool, String> {
    loop {
        match process.next(deadline) {
            Ok(Some(line)) if line["event"] == "paused" => return Ok(true),
            Ok(Some(line)) => lines.push(line),
            Ok(None) => return Ok(false),
            Err(error) => return Err(format!("{error}; events: {lines:?}")),
        }
    }
}
