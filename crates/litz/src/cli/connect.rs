//! Making endpoints and reaching a receiver.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use litz::identity::{ClientTls, Ticket, TicketAddress};
use litz::transfer::CancelToken;
use litz::{Connection, Endpoint, EndpointConfig, LiveSocket, TransportConfig, UdpSocket, UdpSocketOptions};
use recovery::RateCap;
use units::Duration;

use super::args::TransportOptions;
use super::path_options::PathOptions;
use super::scheduler_trace;

/// A PING this often keeps an idle connection and the address translators on its way awake.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How often whoever waits for the network looks whether somebody interrupted.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// The best way to the receiver is tried this much before the next one, and so on: enough for most answers, so that one
/// handshake is made and not one for each way.
const HEAD_START: std::time::Duration = std::time::Duration::from_millis(250);

/// Ways tried to reach a receiver, at most: sockets that an endpoint takes.
const WAYS_MAX: usize = 48;

const NO_WAY: &str = "no address of the ticket can be reached from the chosen local address";

/// The name TLS wants and nobody sees: hosts are known by their keys.
const SERVER_NAME: &str = "litz.invalid";

/// Streams of data that a sender may have open. A receiver reads the oldest ones only, so what the younger ones bring in
/// advance must never use up the connection's credit: nothing would be left for those it reads, and both sides would wait
/// for ever.
pub(crate) const DATA_STREAMS_MAX: u64 = 6;

/// The transport configuration of a transfer.
///
/// # Errors
/// If it cannot work, or the trace cannot be written.
pub(crate) fn transport(options: &TransportOptions, cap: Option<RateCap>) -> Result<TransportConfig, String> {
    let config = TransportConfig {
        max_concurrent_uni_streams: DATA_STREAMS_MAX,
        connection_window: TransportConfig::default().connection_window_max,
        idle_timeout: options.idle_timeout,
        keep_alive: Some(KEEP_ALIVE),
        datagram_size: options.datagram_size,
        congestion: options.congestion,
        max_paths: litz::PATHS_MAX,
        scheduler: options.scheduler,
        scheduler_trace: options.trace_scheduler.as_deref().map(scheduler_trace::sink).transpose()?,
        rate_cap: cap,
        ..TransportConfig::default()
    };
    config.validate()?;
    Ok(config)
}

/// A socket's options.
pub(crate) fn socket(bind: SocketAddr, device: Option<&str>) -> UdpSocketOptions {
    UdpSocketOptions { bind, device: device.map(str::to_owned), ..UdpSocketOptions::default() }
}

/// How a sender reaches out.
pub(crate) struct Reach<'a> {
    pub(crate) transport: TransportConfig,
    pub(crate) bind: Option<SocketAddr>,
    pub(crate) device: Option<&'a str>,
    pub(crate) paths: &'a PathOptions,
    /// Made for this attempt: it remembers a wrong host.
    pub(crate) tls: &'a ClientTls,
    pub(crate) cancel: &'a CancelToken,
}

/// One way to the receiver: a socket of ours and an address of its.
#[derive(Clone)]
struct Way {
    socket: UdpSocketOptions,
    remote: SocketAddr,
    backup: bool,
    /// Worth a try if nobody answers elsewhere, and no path of its own otherwise.
    spare: bool,
}

/// Why no host was reached, in words for the user.
pub(crate) enum Unreached {
    /// Another host answered: coming back does not help.
    WrongHost(String),
    /// Nobody answered; later somebody may.
    Silent(String),
    /// The user does not want to wait.
    Interrupted,
}

/// A connection, and the endpoint that must outlive it.
pub(crate) struct Reached {
    pub(crate) connection: Connection,
    _endpoint: Arc<Endpoint>,
    /// Paths it shall have, and whether the receiver takes more than one.
    pub(crate) paths_wanted: usize,
    pub(crate) is_multipath: bool,
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
        if ways.is_empty() {
            return Err(Unreached::Silent(NO_WAY.to_owned()));
        }
        let (endpoint, ways) = self.endpoint_for(ways)?;
        let (answers, results) = mpsc::channel();
        let answered = Arc::new(AtomicBool::new(false));
        for (index, way) in ways.iter().enumerate() {
            let (endpoint, answers, answered) = (Arc::clone(&endpoint), answers.clone(), Arc::clone(&answered));
            let (tls, remote) = (Arc::clone(&self.tls.config), way.remote);
            #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread a way")]
            std::thread::spawn(move || {
                std::thread::sleep(HEAD_START * u32::try_from(index).unwrap_or(u32::MAX));
                if !answered.load(Ordering::Relaxed) {
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
                    answered.store(true, Ordering::Relaxed);
                    return Ok(open_paths(endpoint, connection, &ways, index));
                }
                Err(error) => failures.push(format!("{}: {error}", ways[index].remote)),
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

    /// The ways that the user wants, or that are there.
    fn ways(&self, remotes: &[SocketAddr]) -> Result<Vec<Way>, Unreached> {
        let plain = |remote: SocketAddr, spare| {
            let unspecified: IpAddr =
                if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let bind = self.bind.unwrap_or(SocketAddr::new(unspecified, 0));
            let way = Way { socket: socket(bind, self.device), remote, backup: false, spare };
            (bind.is_ipv4() == remote.is_ipv4()).then_some(way)
        };
        if self.bind.is_some() || self.device.is_some() {
            // One path from there, to whichever address answers.
            return Ok((0..).zip(remotes).filter_map(|(index, remote)| plain(*remote, index > 0)).collect());
        }
        let choice = self.paths.choose(remotes).map_err(|error| Unreached::WrongHost(error.to_string()))?;
        let mut ways: Vec<Way> = choice
            .candidates
            .iter()
            .map(|path| Way {
                socket: socket(path.local, path.device.as_deref()),
                remote: path.remote,
                backup: path.backup,
                spare: false,
            })
            .collect();
        // An address that no path goes to may be the only one that answers: the routes choose the way then.
        let missing = remotes.iter().filter(|remote| ways.iter().all(|way| way.remote != **remote));
        let missing: Vec<Way> = missing.filter_map(|remote| plain(*remote, true)).collect();
        ways.extend(missing);
        ways.truncate(WAYS_MAX);
        Ok(ways)
    }

    /// An endpoint with a socket for each way; those whose socket cannot be opened are left out.
    fn endpoint_for(&self, ways: Vec<Way>) -> Result<(Arc<Endpoint>, Vec<Way>), Unreached> {
        let (mut sockets, mut usable, mut failures) = (Vec::<Box<dyn LiveSocket>>::new(), Vec::new(), Vec::new());
        for way in ways {
            match UdpSocket::open(&way.socket) {
                Ok(socket) => {
                    sockets.push(Box::new(socket));
                    usable.push(way);
                }
                Err(error) => failures.push(error.to_string()),
            }
        }
        if sockets.is_empty() {
            return Err(Unreached::Silent(failures.join("; ")));
        }
        for failure in failures {
            tracing::warn!("a path is left out: {failure}");
        }
        let paths = usable.iter().filter(|way| !way.spare).count().max(1);
        let max_paths = u32::try_from(paths).unwrap_or(u32::MAX).min(litz::PATHS_MAX);
        let transport = TransportConfig { max_paths, ..self.transport.clone() };
        let config = EndpointConfig { transport, ..EndpointConfig::default() };
        let endpoint = Endpoint::with_sockets(config, sockets).map_err(|error| Unreached::Silent(error.to_string()))?;
        Ok((Arc::new(endpoint), usable))
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

/// Gives the connection that was made by way `first` the other ways as paths.
fn open_paths(endpoint: Arc<Endpoint>, connection: Connection, ways: &[Way], first: usize) -> Reached {
    let is_multipath = connection.stats().is_multipath;
    let others = ways.iter().enumerate().filter(|(index, way)| *index != first && !way.spare);
    let mut paths_wanted = 1;
    for (index, way) in others {
        paths_wanted += 1;
        // A connection that ends meanwhile says why elsewhere.
        let _over = connection.open_path(index, way.remote, way.backup);
    }
    if ways[first].backup {
        let _over = connection.set_path_backup(litz::PathId::ZERO, true);
    }
    Reached { connection, _endpoint: endpoint, paths_wanted, is_multipath }
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

    /// What a stream may bring before somebody reads it, in its first windows: the engine reads a little ahead, which may
    /// let the window double once or twice.
    const WINDOWS_AHEAD: u64 = 4;

    #[test]
    fn streams_nobody_reads_yet_leave_credit_for_those_that_are_read() {
        let config = TransportConfig::default();
        assert!(DATA_STREAMS_MAX * WINDOWS_AHEAD * config.stream_window <= config.connection_window_max / 2);
    }
}
