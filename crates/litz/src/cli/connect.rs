//! Making endpoints and reaching a receiver.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ways`] | the ways to the receiver, and their sockets |
//! | [`gate`] | where the threads that try them wait for their turn |

mod gate;
mod ways;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc;

use litz::identity::{ClientTls, Ticket, TicketAddress};
use litz::transfer::CancelToken;
use litz::{Closed, Connection, Endpoint, EndpointConfig, Placement, TransportConfig, UdpSocket, UdpSocketOptions};
use recovery::RateCap;
use units::Duration;

use super::args::TransportOptions;
use super::journals::Journals;
use super::path_options::PathOptions;
use super::scheduler_trace::Trace;
use gate::Gate;
use ways::{Opened, Way, Ways};

pub(super) use ways::tried_last;

/// A PING this often keeps an idle connection and the address translators on its way awake.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How often whoever waits for the network looks whether somebody interrupted.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// The best way to the receiver is tried this much before the next one, and so on: enough for most answers, so that one
/// handshake is made and not one for each way.
const HEAD_START: std::time::Duration = std::time::Duration::from_millis(250);

/// Spare ways wait this much longer, so that a path with a long delay has answered before them if it does.
const SPARE_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

const NO_WAY: &str = "no address of the ticket can be reached from the chosen local address";

/// The name TLS wants and nobody sees: hosts are known by their keys.
const SERVER_NAME: &str = "litz.invalid";

/// The transport configuration of a transfer.
///
/// # Errors
/// If it cannot work.
pub(crate) fn transport(
    options: &TransportOptions,
    cap: Option<RateCap>,
    trace: Option<&Trace>,
    journals: Option<&Journals>,
) -> Result<TransportConfig, String> {
    let config = litz::transfer::transport(TransportConfig {
        idle_timeout: options.idle_timeout,
        keep_alive: Some(KEEP_ALIVE),
        datagram_size: options.datagram_size,
        congestion: options.congestion,
        max_paths: litz::PATHS_MAX,
        scheduler: options.scheduler,
        policy: options.policy,
        scheduler_trace: trace.map(Trace::sink),
        journal: journals.map(Journals::source),
        rate_cap: cap,
        ..TransportConfig::default()
    });
    config.validate()?;
    Ok(config)
}

/// A socket's options.
pub(crate) fn socket(bind: SocketAddr, device: Option<&str>) -> UdpSocketOptions {
    UdpSocketOptions { bind, device: device.map(str::to_owned), ..UdpSocketOptions::default() }
}

/// What to tell if the system grants this socket less than it asks for: the commonest reason for loss on a fast link.
pub(crate) fn small_buffers(socket: &UdpSocket, asked: &UdpSocketOptions) -> Option<String> {
    let ((_, granted), asked) = (socket.granted_buffers(), asked.recv_buffer_bytes);
    (granted < asked).then(|| {
        format!(
            "the system grants receive buffers of {granted} bytes and not {asked}, which loses packets on fast links: \
             `sysctl -w net.core.rmem_max={asked}`"
        )
    })
}

/// How a sender reaches out.
pub(crate) struct Reach<'a> {
    pub(crate) transport: TransportConfig,
    pub(crate) placement: Placement,
    pub(crate) bind: Option<SocketAddr>,
    pub(crate) device: Option<&'a str>,
    pub(crate) paths: &'a PathOptions,
    /// Made for this attempt: it remembers a wrong host.
    pub(crate) tls: &'a ClientTls,
    pub(crate) cancel: &'a CancelToken,
    /// Whether nobody has answered before: then what the user asked for in vain is told, and not done without.
    pub(crate) is_first: bool,
}

/// Why no host was reached, in words for the user.
pub(crate) enum Unreached {
    /// Another host answered: coming back does not help.
    WrongHost(String),
    /// A path that the user gave cannot be: wrong if it never could, and back one day if it once was.
    NoSuchPath(String),
    /// Nobody answered; later somebody may.
    Silent(String),
    /// The user does not want to wait.
    Interrupted,
}

/// A connection with its endpoint, whose thread has ended and whose sockets are closed once this is dropped.
pub(crate) struct Reached {
    pub(crate) connection: Connection,
    _endpoint: Closing,
    /// Paths it shall have, those that were left out among them, and whether the receiver takes more than one.
    pub(crate) paths_wanted: usize,
    pub(crate) is_multipath: bool,
    /// Paths that are left out, each with its reason in words.
    pub(crate) left_out: Vec<String>,
    /// What to tell of the sockets' buffers.
    pub(crate) advice: Option<String>,
}

/// Closes the endpoint when it is dropped, and lets the threads go that would try it later: otherwise these would keep it,
/// and its sockets, for a while.
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

impl Reach<'_> {
    /// Tries all ways to the receiver, the best a little before the others; the first to answer as the right host wins, and
    /// the other ways become paths of its connection.
    ///
    /// # Errors
    /// What each address said. An interrupt is noticed soon; threads that still wait for an answer end by themselves.
    pub(crate) fn connect(&self, ticket: &Ticket) -> Result<Reached, Unreached> {
        let remotes = self.resolve(&ticket.addresses)?;
        let ways = self.ways(&remotes)?;
        if ways.ways.is_empty() {
            return Err(Unreached::Silent(NO_WAY.to_owned()));
        }
        let Opened { ways, sockets, advice } = self.open(ways)?;
        let paths_max = paths_max(&ways.ways);
        let transport = TransportConfig { max_paths: paths_max, ..self.transport.clone() };
        let config = EndpointConfig { transport, placement: self.placement, ..EndpointConfig::default() };
        let endpoint = Endpoint::with_sockets(config, sockets).map_err(|error| Unreached::Silent(error.to_string()))?;
        let closing = Closing { endpoint: Arc::new(endpoint), gate: Arc::default() };
        let (answers, results) = mpsc::channel();
        for (index, way) in ways.ways.iter().enumerate() {
            let (endpoint, gate, answers) = (Arc::clone(&closing.endpoint), Arc::clone(&closing.gate), answers.clone());
            let (tls, remote) = (Arc::clone(&self.tls.config), way.remote);
            let turn = HEAD_START * u32::try_from(index).unwrap_or(u32::MAX);
            let turn = if way.spare && index > 0 { turn + SPARE_WAIT } else { turn };
            #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread a way")]
            std::thread::spawn(move || {
                if gate.wait(turn) {
                    // Nobody listens any more if another way was faster.
                    let _sent = answers.send((index, endpoint.connect_from(index, remote, SERVER_NAME, tls)));
                }
            });
        }
        drop(answers);
        let mut failures = Vec::new();
        while let Some((index, result)) = self.wait(&results)? {
            match result {
                Ok(connection) => {
                    closing.gate.close();
                    let mut reached = Reached {
                        is_multipath: connection.stats().is_multipath,
                        connection,
                        _endpoint: closing,
                        paths_wanted: 1,
                        left_out: Vec::new(),
                        advice,
                    };
                    reached.open_paths(ways, index, paths_max);
                    return Ok(reached);
                }
                Err(error) => failures.push(format!("{}: {error}", ways.ways[index].remote)),
            }
        }
        if let Some(wrong) = self.tls.wrong_host() {
            let expected = wrong.expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            return Err(Unreached::WrongHost(format!(
                "wrong fingerprint: the ticket names {expected}, but the host that answered has {}; nothing was sent",
                wrong.presented
            )));
        }
        Err(Unreached::Silent(format!("cannot reach the receiver: {}", failures.join("; "))))
    }

    /// All socket addresses of a ticket, in its order, each once.
    fn resolve(&self, addresses: &[TicketAddress]) -> Result<Vec<SocketAddr>, Unreached> {
        if addresses.iter().all(|address| matches!(address, TicketAddress::Socket(_))) {
            return resolve(addresses).map_err(Unreached::Silent);
        }
        // In a thread of its own, because looking a name up may block for long and nothing can end it.
        let (answer, results) = mpsc::channel();
        let addresses = addresses.to_vec();
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread for the names")]
        std::thread::spawn(move || {
            // Nobody listens any more after an interrupt.
            let _sent = answer.send(resolve(&addresses));
        });
        let resolved = self.wait(&results)?.unwrap_or_else(|| Err("the name lookup failed".to_owned()));
        resolved.map_err(Unreached::Silent)
    }

    /// The next result; none if no more can come.
    fn wait<T>(&self, results: &mpsc::Receiver<T>) -> Result<Option<T>, Unreached> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(Unreached::Interrupted);
            }
            match results.recv_timeout(LOOK_INTERVAL) {
                Ok(result) => return Ok(Some(result)),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

/// Paths that a connection over these ways may have: the ways that are paths, and a spare way in case it is the one that
/// answers.
fn paths_max(ways: &[Way]) -> u32 {
    let paths = ways.iter().filter(|way| !way.spare).count() + usize::from(ways.iter().any(|way| way.spare));
    u32::try_from(paths).unwrap_or(u32::MAX).min(litz::PATHS_MAX)
}

impl Reached {
    /// Gives the connection, which was made by way `first`, the other ways as paths, `paths_max` in all.
    fn open_paths(&mut self, Ways { ways, left_out }: Ways, first: usize, paths_max: u32) {
        self.left_out = left_out;
        self.paths_wanted += self.left_out.len();
        let mut room = (paths_max as usize).saturating_sub(1);
        for (index, way) in ways.iter().enumerate().filter(|(index, way)| *index != first && !way.spare) {
            self.paths_wanted += 1;
            if room == 0 {
                let why = format!("a connection has {paths_max} paths at most, and another one reached the receiver");
                self.left_out.push(format!("to {}: {why}", way.remote));
                continue;
            }
            room -= 1;
            match self.connection.open_path(index, way.remote, way.backup) {
                Ok(()) => {}
                Err(error @ (Closed::NoSocket | Closed::TooMany)) => {
                    self.left_out.push(format!("to {}: {error}", way.remote));
                }
                // The connection is over, and says why wherever it is used next.
                Err(_) => return,
            }
        }
        if ways[first].backup {
            // It can only be that the connection is over.
            let _over = self.connection.set_path_backup(litz::PathId::ZERO, true);
        }
    }
}

/// All socket addresses of a ticket, in its order, each once.
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
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|address| seen.insert(*address));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_are_smaller_than_asked_for_are_told() {
        let mut asked = socket("127.0.0.1:0".parse().unwrap(), None);
        let opened = UdpSocket::open(&asked).unwrap();
        let (_, granted) = opened.granted_buffers();
        asked.recv_buffer_bytes = granted;
        assert_eq!(small_buffers(&opened, &asked), None);
        asked.recv_buffer_bytes = granted + 1;
        assert!(small_buffers(&opened, &asked).unwrap().contains("net.core.rmem_max"));
    }

    #[test]
    fn a_spare_way_that_answers_takes_no_path_away() {
        let remote = "127.0.0.1:9".parse().unwrap();
        let way = |spare| Way { socket: socket(remote, None), remote, backup: false, spare };
        let count = |regular, spare| paths_max(&[vec![way(false); regular], vec![way(true); spare]].concat());
        assert_eq!([count(1, 0), count(4, 0), count(1, 1), count(2, 5), count(32, 3)], [1, 4, 2, 3, litz::PATHS_MAX]);
    }
}
