//! Creates endpoints and connects to a receiver.
//! | module | contents |
//! |---|---|
//! | [`candidates`] | the candidate paths to the receiver, and their sockets |
//! | [`closed_port`] | ends a connection whose peer has ended without a word |
//! | [`sockets`] | the options of their sockets, and advice on buffers |
//! | [`port_probes`] | ends the wait for one if all hosts say that the port is closed |
//! | [`later_paths`] | paths over links that appear while a transfer runs |
//! | [`unanswered`] | settings of this host that may be why a path does not answer |
//! | [`gate`] | delays and stops the threads that try the candidates |

mod candidates;
mod closed_port;
mod gate;
mod later_paths;
mod port_probes;
mod sockets;
mod unanswered;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, mpsc};

use candidates::{Candidate, Candidates, Opened};
use closed_port::PeerWatch;
use gate::Gate;
use later_paths::LaterPaths;
use litz::identity::ClientTls;
use litz::{Closed, Connection, Endpoint, EventHandler, TransportConfig};
use port_probes::PortProbes;
use quic_endpoint::local_ends::LocalEnds;
use recovery::RateCap;
use transfer::{CancelToken, Ticket, TicketAddress};
use unanswered::warn_of_unanswered;
use units::Duration;

use super::journals::Journals;
use super::links::{BoundSocket, LinkBaseline, Links, PathChanges};
use super::path_options::{PathOptions, SinglePathOptions};
use super::scheduler_trace::Trace;
use super::ticket::expiry_hint;
use super::transport_options::TransportOptions;
use super::warning::Warning;

pub(super) use candidates::tried_last;
pub(super) use sockets::{small_buffers, socket};

/// Interval of PINGs on an idle connection. They keep the connection and the NAT bindings on its
/// path alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How often a thread that waits for the network checks for an interrupt.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// Number of these intervals without an answer after which the user is told: 2 s.
const LOOKS_UNANSWERED: u32 = 40;

/// Number of these intervals after which a brief attempt ends: 3 s. Within it, an Initial packet that
/// was lost is sent again once or twice.
const LOOKS_BRIEF: u32 = 60;

/// While none answers, the candidates are asked once in so many intervals whether their port is closed: 200 ms. So a
/// receiver that has ended is known within a second, four questions.
const LOOKS_BETWEEN_QUESTIONS: u32 = 4;

/// The user is told why a path may not answer after this time. On another one the host has answered by then.
pub(crate) const UNANSWERED: std::time::Duration = std::time::Duration::from_secs(3);

/// Delay between the attempts on successive candidates. Most receivers answer within it, so that
/// usually only one handshake is made (as in Happy Eyeballs, RFC 8305).
const HEAD_START: std::time::Duration = std::time::Duration::from_millis(250);

/// Additional delay before spare candidates, so that a path with a long delay can answer first.
const SPARE_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

const NO_CANDIDATE: &str = "no address of the ticket can be reached from the chosen local address";

/// The server name that TLS requires. It has no meaning: hosts are identified by their keys.
const SERVER_NAME: &str = "litz.invalid";

/// The alert of a host without a protocol of ours (RFC 7301, section 3.2).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// How the reason begins with which a receiver closes a connection that it has no place for.
pub(crate) const BUSY: &str = "the receiver is busy";

/// The same reason of a server that forwards.
pub(crate) const BUSY_SERVER: &str = "the server is busy";

/// The transport configuration of a transfer.
///
/// # Errors
/// If the options do not fit together.
pub(crate) fn transport(
    options: &TransportOptions,
    cap: Option<RateCap>,
    trace: Option<&Trace>,
    journals: Option<&Journals>,
) -> Result<TransportConfig, String> {
    let config = transfer::transport(base_transport(options, trace, journals).with_rate_cap(cap));
    config.validate()?;
    Ok(config)
}

/// The transport configuration that the options request, before what one protocol needs is added. It
/// is not validated.
pub(crate) fn base_transport(
    options: &TransportOptions,
    trace: Option<&Trace>,
    journals: Option<&Journals>,
) -> TransportConfig {
    warn_of_key_log(options);
    TransportConfig::default()
        .with_idle_timeout(options.idle_timeout)
        .with_keep_alive(KEEP_ALIVE)
        .with_datagram_size(options.datagram_size)
        .with_datagram_size_max(options.datagram_size_max)
        .with_ecn(!options.no_ecn)
        .with_congestion(options.congestion)
        .with_max_paths(litz::PATHS_MAX)
        .with_scheduler(options.scheduler)
        .with_policy(options.policy)
        .with_scheduler_trace(trace.map(Trace::sink))
        .with_journal(journals.map(Journals::source))
}

/// Connects a sender to its receiver, or another client to its server.
pub(crate) struct Connector<'a> {
    /// What the other host is called in messages: the receiver, for instance.
    pub(crate) peer: &'static str,
    pub(crate) transport: TransportConfig,
    pub(crate) options: &'a TransportOptions,
    pub(crate) single_path: &'a SinglePathOptions,
    pub(crate) paths: &'a PathOptions,
    /// Created for each attempt, because it remembers a host with the wrong key.
    pub(crate) tls: &'a ClientTls,
    pub(crate) cancel: &'a CancelToken,
    /// Called once if no host has answered for a while, with the addresses.
    pub(crate) on_unanswered: &'a dyn Fn(&[SocketAddr]),
    /// Whether to end the attempt after 3 s without an answer, and not only when the handshakes do.
    pub(crate) is_brief: bool,
    /// Whether to end the attempt when the hosts of all candidates say that the port is closed, and not only when the
    /// handshakes end.
    pub(crate) asks_ports: bool,
    /// Whether no attempt has succeeded before. Then a path that the user requested and that cannot
    /// be used is an error; later it is left out.
    pub(crate) is_first: bool,
    /// What the thread of the connection does besides.
    pub(crate) event_handler: Option<Arc<dyn EventHandler>>,
}

/// Why the connection failed; the text is for the user.
pub(crate) enum ConnectFailure {
    /// Another host answered: a retry does not help.
    WrongHost(String),
    /// A path that the user gave cannot be used. At the first attempt this is an error; later the
    /// path may return.
    NoSuchPath(String),
    /// No host answered; a retry may succeed.
    Silent(String),
    /// The user interrupted the command.
    Interrupted,
}

/// A connection with its endpoint. Dropping it ends the endpoint's thread and closes its sockets.
pub(crate) struct Connected {
    pub(crate) connection: Connection,
    _endpoint: Closing,
    /// Number of paths wanted, including those left out, and whether the receiver accepts more than
    /// one.
    pub(crate) paths_wanted: usize,
    pub(crate) is_multipath: bool,
    /// Paths that are left out, each with its reason.
    pub(crate) left_out: Vec<String>,
    /// Advice on the sockets' buffers.
    pub(crate) advice: Option<String>,
    /// Follows the links of this host.
    pub(crate) links: Option<Links>,
    /// Ends the connection when the peer's port is closed.
    peer_watch: Option<PeerWatch>,
}

/// On drop, closes the endpoint and stops the threads that still wait for their turn. They would
/// otherwise keep the endpoint and its sockets alive for a while.
struct Closing {
    endpoint: Arc<Endpoint>,
    gate: Arc<Gate>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.gate.close();
        self.endpoint.close();
    }
}

impl Connector<'_> {
    /// Tries all candidates, the best one first. The first that reaches the right host wins, and
    /// the other candidates become paths of its connection.
    ///
    /// # Errors
    /// The error of each address. An interrupt is noticed soon; threads that still wait for an
    /// answer end on their own.
    pub(crate) fn connect(&self, ticket: &Ticket) -> Result<Connected, ConnectFailure> {
        let connected = self.connect_to(&look_up(&ticket.addresses, self.cancel, self.is_brief)?);
        connected.map_err(|failure| match (failure, expiry_hint(ticket)) {
            (ConnectFailure::Silent(message), Some(hint)) => ConnectFailure::Silent(format!("{message}; {hint}")),
            (failure, _) => failure,
        })
    }

    /// As [`connect`](Self::connect), to a host with these addresses.
    ///
    /// # Errors
    /// As those of [`connect`](Self::connect).
    pub(crate) fn connect_to(&self, remotes: &[SocketAddr]) -> Result<Connected, ConnectFailure> {
        let baseline = LinkBaseline::take();
        let candidates = self.candidates(remotes)?;
        if candidates.candidates.is_empty() {
            return Err(ConnectFailure::Silent(NO_CANDIDATE.to_owned()));
        }
        let Opened { candidates, mut sockets, bound, switches, advice } = self.open(candidates)?;
        let mut later = LaterPaths::reserve(self, remotes, switches, &mut sockets);
        let paths_now = paths_max(&candidates.candidates);
        let places = paths_now + later.places_left();
        // Every path can be replaced before the peer has given back the ID of one.
        let paths_max = (if later.places_left() == 0 { places } else { 2 * places }).min(litz::PATHS_MAX);
        let transport = self.transport.clone().with_max_paths(paths_max);
        let mut config = self.options.endpoint().with_transport(transport);
        config.event_handler.clone_from(&self.event_handler);
        let endpoint =
            Endpoint::with_sockets(config, sockets).map_err(|error| ConnectFailure::Silent(error.to_string()))?;
        let closing = Closing { endpoint: Arc::new(endpoint), gate: Arc::default() };
        let (answers, results) = mpsc::channel();
        for (index, candidate) in candidates.candidates.iter().enumerate() {
            let (endpoint, gate, answers) = (Arc::clone(&closing.endpoint), Arc::clone(&closing.gate), answers.clone());
            let (tls, remote) = (Arc::clone(&self.tls.config), candidate.remote);
            let turn = HEAD_START * u32::try_from(index).unwrap_or(u32::MAX);
            let turn = if candidate.spare && index > 0 { turn + SPARE_WAIT } else { turn };
            #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread per candidate")]
            std::thread::spawn(move || {
                if gate.wait(turn) {
                    // The channel is closed if another candidate was faster.
                    let _sent = answers.send((index, endpoint.connect_from(index, remote, SERVER_NAME, tls)));
                }
            });
        }
        drop(answers);
        let mut failures = Vec::new();
        let mut probes = self.asks_ports.then(|| {
            PortProbes::open(candidates.candidates.iter().map(|candidate| (&candidate.socket, candidate.remote)))
        });
        while let Some((index, result)) = self.wait(&results, remotes, &mut probes)? {
            match result {
                Ok(connection) => {
                    closing.gate.close();
                    let mut connected = Connected {
                        is_multipath: connection.stats().is_multipath,
                        connection,
                        _endpoint: closing,
                        paths_wanted: 1,
                        left_out: Vec::new(),
                        advice,
                        links: None,
                        peer_watch: None,
                    };
                    let requested = connected.open_paths(candidates, index, paths_now);
                    later.begin(places, requested.into_iter());
                    connected.follow_links(baseline, bound, later);
                    let (connection, ends) = (connected.connection.clone(), connected.ends());
                    connected.peer_watch = Some(PeerWatch::start(connection, ends, self.paths.mark));
                    return Ok(connected);
                }
                Err(Closed::Tls { alert: NO_APPLICATION_PROTOCOL, .. }) => {
                    let message = "the host that answered speaks another protocol: use the command that printed the \
                                   ticket, of the same version";
                    return Err(ConnectFailure::WrongHost(message.to_owned()));
                }
                Err(error) => failures.push(format!("{}: {error}", candidates.candidates[index].remote)),
            }
        }
        if let Some(wrong) = self.tls.wrong_host() {
            let expected = wrong.expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            return Err(ConnectFailure::WrongHost(format!(
                "wrong fingerprint: the ticket names {expected}, but the host that answered has {}; nothing was sent",
                wrong.presented
            )));
        }
        Err(ConnectFailure::Silent(format!("cannot reach the {}: {}", self.peer, failures.join("; "))))
    }

    /// Waits for the next result, from these addresses; none if there are no more, or if none comes
    /// during a brief attempt. The error is that all `probes` say that the port is closed.
    fn wait<T>(
        &self,
        results: &mpsc::Receiver<T>,
        remotes: &[SocketAddr],
        probes: &mut Option<PortProbes>,
    ) -> Result<Option<T>, ConnectFailure> {
        let mut are_closed = false;
        let result = wait(results, self.cancel, |looks| {
            if looks == LOOKS_UNANSWERED {
                (self.on_unanswered)(remotes);
            }
            let is_due = looks.is_multiple_of(LOOKS_BETWEEN_QUESTIONS);
            are_closed = is_due && probes.as_mut().is_some_and(PortProbes::are_closed);
            !are_closed && (!self.is_brief || looks < LOOKS_BRIEF)
        })?;
        if are_closed {
            let remotes: Vec<String> = remotes.iter().map(ToString::to_string).collect();
            let (peer, remotes) = (self.peer, remotes.join(", "));
            return Err(ConnectFailure::Silent(format!(
                "cannot reach the {peer}: nothing listens at {remotes}. Most likely its transfer is complete, so that the \
                 ticket is used, or it was stopped: ask for a new ticket, or have it started again"
            )));
        }
        Ok(result)
    }
}

/// Looks up the addresses of a ticket, in its order and without duplicates; for 3 s at most if `is_brief`.
///
/// # Errors
/// [`ConnectFailure::Silent`] if there are none, and [`ConnectFailure::Interrupted`].
pub(super) fn look_up(
    addresses: &[TicketAddress],
    cancel: &CancelToken,
    is_brief: bool,
) -> Result<Vec<SocketAddr>, ConnectFailure> {
    if addresses.iter().all(|address| matches!(address, TicketAddress::Socket(_))) {
        return resolve(addresses).map_err(ConnectFailure::Silent);
    }
    // On a separate thread, because a name lookup may block for long and cannot be cancelled.
    let (answer, results) = mpsc::channel();
    let addresses = addresses.to_vec();
    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread for name lookups")]
    std::thread::spawn(move || {
        // The channel is closed after an interrupt.
        let _sent = answer.send(resolve(&addresses));
    });
    let resolved = wait(&results, cancel, |looks| !is_brief || looks < LOOKS_BRIEF)?;
    resolved.unwrap_or_else(|| Err("the name lookup failed".to_owned())).map_err(ConnectFailure::Silent)
}

/// Waits for the next result; none if there are no more, or if `goes_on`, which is asked after each
/// interval with their number, does not want to wait for longer.
fn wait<T>(
    results: &mpsc::Receiver<T>,
    cancel: &CancelToken,
    mut goes_on: impl FnMut(u32) -> bool,
) -> Result<Option<T>, ConnectFailure> {
    let mut looks = 0;
    loop {
        if cancel.is_cancelled() {
            return Err(ConnectFailure::Interrupted);
        }
        match results.recv_timeout(LOOK_INTERVAL) {
            Ok(result) => return Ok(Some(result)),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                looks += 1;
                if !goes_on(looks) {
                    return Ok(None);
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

/// Number of paths that a connection over these candidates may have: those that are paths, and one
/// spare, which may be the one that answers.
fn paths_max(candidates: &[Candidate]) -> u32 {
    let paths = candidates.iter().filter(|candidate| !candidate.spare).count()
        + usize::from(candidates.iter().any(|candidate| candidate.spare));
    u32::try_from(paths).unwrap_or(u32::MAX).min(litz::PATHS_MAX)
}

impl Connected {
    /// The devices and addresses of its sockets.
    pub(crate) fn ends(&self) -> Arc<LocalEnds> {
        self.links.as_ref().map(|links| Arc::clone(links.ends())).unwrap_or_default()
    }

    /// If this host has ended the connection because the port of the peer is closed: a message for the user, who
    /// calls the peer `peer`.
    pub(crate) fn peer_ended(&self, peer: &str) -> Option<String> {
        let has_ended = self.peer_watch.as_ref().is_some_and(PeerWatch::has_ended);
        has_ended.then(|| format!("the {peer} has ended: its host reports that the port is closed; start it again"))
    }

    /// Warns of paths that are left out and, at the first connection, of the system's settings.
    pub(crate) fn warn(&self, is_first: bool, warn: impl Fn(Warning, &str)) {
        if let Some(advice) = self.advice.as_ref().filter(|_| is_first) {
            warn(Warning::SmallBuffers, advice);
        }
        for path in &self.left_out {
            warn(Warning::PathLeftOut, &format!("a path is left out: {path}"));
        }
    }

    /// Warns of settings of this host that may be why a path does not answer. Called when [`UNANSWERED`] has passed
    /// since the connection was made.
    pub(crate) fn warn_of_unanswered(&self, warn: impl Fn(Warning, &str)) {
        warn_of_unanswered(&self.ends().all(), &self.connection, warn);
    }

    /// Keeps the sockets in use when their links go and come, and opens paths over new links.
    fn follow_links(&mut self, baseline: LinkBaseline, bound: Vec<BoundSocket>, mut later: LaterPaths) {
        let (connection, is_multipath) = (self.connection.clone(), self.is_multipath);
        let on_look = move |interfaces: &[_]| {
            if is_multipath { later.look(&connection, interfaces) } else { PathChanges::default() }
        };
        self.links = Some(Links::follow(baseline, bound, on_look));
    }

    /// Opens the other candidates as paths of the connection, which was made on candidate `first`;
    /// `paths_max` in all. Returns the candidates that are paths now, with their sockets.
    fn open_paths(
        &mut self,
        Candidates { candidates, left_out }: Candidates,
        first: usize,
        paths_max: u32,
    ) -> Vec<(usize, Candidate)> {
        let mut requested = vec![(first, candidates[first].clone())];
        self.left_out = left_out;
        self.paths_wanted += self.left_out.len();
        let mut paths_left = (paths_max as usize).saturating_sub(1);
        for (index, candidate) in
            candidates.iter().enumerate().filter(|(index, candidate)| *index != first && !candidate.spare)
        {
            self.paths_wanted += 1;
            if paths_left == 0 {
                let why = format!("a connection has at most {paths_max} paths, and another one reached the receiver");
                self.left_out.push(format!("to {}: {why}", candidate.remote));
                continue;
            }
            paths_left -= 1;
            match self.connection.open_path(index, candidate.remote, candidate.backup) {
                Ok(()) => requested.push((index, candidate.clone())),
                Err(error @ (Closed::NoSocket | Closed::TooMany)) => {
                    self.left_out.push(format!("to {}: {error}", candidate.remote));
                }
                // The connection has ended. Its next use returns the reason.
                Err(_) => return requested,
            }
        }
        if candidates[first].backup {
            // This fails only if the connection has ended.
            let _over = self.connection.set_path_backup(litz::PathId::ZERO, true);
        }
        requested
    }
}

/// Resolves the addresses of a ticket, in its order and without duplicates.
pub(super) fn resolve(addresses: &[TicketAddress]) -> Result<Vec<SocketAddr>, String> {
    let mut found: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        match address {
            TicketAddress::Socket(address) => found.push(*address),
            TicketAddress::Name(name, port) => match (name.as_str(), *port).to_socket_addrs() {
                Ok(resolved) => found.extend(resolved),
                Err(error) if addresses.len() == 1 => return Err(format!("cannot look up {name}: {error}")),
                Err(_) => {}
            },
            // `TicketAddress` is non-exhaustive: a later kind, which this command cannot look up.
            _ => {}
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|address| seen.insert(*address));
    Ok(found)
}

/// Warns if the TLS library writes keys to a file, because a variable that was set once for a test
/// is easily forgotten.
fn warn_of_key_log(options: &TransportOptions) {
    if let Some(file) = std::env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty()) {
        let file = file.display();
        let message = format!(
            "SSLKEYLOGFILE is set: the keys of all connections are written to {file}, and whoever reads them can decrypt \
             what is transferred; unset the variable if you do not want that"
        );
        Warning::KeysWritten.print(options.json, options.quiet, &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_candidate_that_answers_takes_no_path_away() {
        let remote = "127.0.0.1:9".parse().unwrap();
        let candidate = |spare| Candidate { socket: socket(remote, None), remote, backup: false, spare };
        let count =
            |regular, spare| paths_max(&[vec![candidate(false); regular], vec![candidate(true); spare]].concat());
        assert_eq!([count(1, 0), count(4, 0), count(1, 1), count(2, 5), count(32, 3)], [1, 4, 2, 3, litz::PATHS_MAX]);
    }
}
