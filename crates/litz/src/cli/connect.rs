//! Making endpoints and reaching a receiver.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc;

use litz::identity::{ClientTls, Ticket, TicketAddress};
use litz::transfer::CancelToken;
use litz::{Connection, Endpoint, EndpointConfig, TransportConfig, UdpSocketOptions};
use recovery::RateCap;
use units::Duration;

use super::args::TransportOptions;

/// A PING this often keeps an idle connection and the address translators on its way awake.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How often whoever waits for the network looks whether somebody interrupted.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// The name TLS wants and nobody sees: hosts are known by their keys.
const SERVER_NAME: &str = "litz.invalid";

/// Streams of data that a sender may have open. A receiver reads the oldest ones only, so what the younger ones bring in
/// advance must never use up the connection's credit: nothing would be left for those it reads, and both sides would wait
/// for ever.
pub(crate) const DATA_STREAMS_MAX: u64 = 6;

/// The transport configuration of a transfer.
pub(crate) fn transport(options: &TransportOptions, cap: Option<RateCap>) -> TransportConfig {
    TransportConfig {
        max_concurrent_uni_streams: DATA_STREAMS_MAX,
        connection_window: TransportConfig::default().connection_window_max,
        idle_timeout: options.idle_timeout,
        keep_alive: Some(KEEP_ALIVE),
        datagram_size: options.datagram_size,
        congestion: options.congestion,
        rate_cap: cap,
        ..TransportConfig::default()
    }
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
    /// Made for this attempt: it remembers a wrong host.
    pub(crate) tls: &'a ClientTls,
    pub(crate) cancel: &'a CancelToken,
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
    _endpoint: Endpoint,
}

impl Reach<'_> {
    /// Tries all addresses of the ticket at once; the first to answer as the right host wins.
    ///
    /// # Errors
    /// What each address said. An interrupt is noticed soon; threads that still wait for an answer end by themselves.
    pub(crate) fn connect(&self, ticket: &Ticket) -> Result<Reached, Unreached> {
        let remotes = self.resolve(&ticket.addresses)?;
        let (answers, results) = mpsc::channel();
        let mut pending = 0;
        for remote in &remotes {
            let (remote, answers) = (*remote, answers.clone());
            let endpoint = match self.endpoint_for(remote) {
                Ok(Some(endpoint)) => endpoint,
                Ok(None) => continue,
                Err(error) => {
                    // The receiver of this channel lives as long as this function.
                    let _sent = answers.send((remote, Err(error)));
                    pending += 1;
                    continue;
                }
            };
            let tls = Arc::clone(&self.tls.config);
            pending += 1;
            #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread an address")]
            std::thread::spawn(move || {
                let result = endpoint
                    .connect(remote, SERVER_NAME, tls)
                    .map(|connection| Reached { connection, _endpoint: endpoint })
                    .map_err(|error| error.to_string());
                // Nobody listens any more if another address was faster.
                let _sent = answers.send((remote, result));
            });
        }
        drop(answers);
        let mut failures = Vec::new();
        for _ in 0..pending {
            let Some((remote, result)) = self.wait(&results)? else { break };
            match result {
                Ok(reached) => return Ok(reached),
                Err(error) => failures.push(format!("{remote}: {error}")),
            }
        }
        if let Some(wrong) = self.tls.wrong_host() {
            let expected = wrong.expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            return Err(Unreached::WrongHost(format!(
                "wrong fingerprint: the ticket names {expected}, but the host that answered has {}; nothing was sent",
                wrong.presented
            )));
        }
        if failures.is_empty() {
            return Err(Unreached::Silent(
                "no address of the ticket can be reached from the chosen local address".to_owned(),
            ));
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

    /// An endpoint that can reach `remote`; none if the chosen local address is of the other family.
    fn endpoint_for(&self, remote: SocketAddr) -> Result<Option<Endpoint>, String> {
        let unspecified: IpAddr =
            if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let bind = self.bind.unwrap_or(SocketAddr::new(unspecified, 0));
        if bind.is_ipv4() != remote.is_ipv4() {
            return Ok(None);
        }
        let config = EndpointConfig {
            sockets: vec![socket(bind, self.device)],
            transport: self.transport.clone(),
            ..EndpointConfig::default()
        };
        Endpoint::bind(config).map(Some).map_err(|error| error.to_string())
    }
}

/// All socket addresses of a ticket, in its order, each once.
fn resolve(addresses: &[TicketAddress]) -> Result<Vec<SocketAddr>, String> {
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
