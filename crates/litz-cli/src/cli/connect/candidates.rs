//! The candidate paths to the receiver, and their sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use litz::paths::Choice;
use litz::paths::choose::Unused;
use litz::{LiveSocket, ReplaceableSocket, SocketSwitch, UdpSocket, UdpSocketOptions};
use net::DatagramSocket;

use super::super::links::BoundSocket;
use super::super::path_options::{PathOptions, SinglePathOptions};
use super::sockets::{small_buffers, socket};
use super::{ConnectFailure, Connector};

/// Maximum number of candidates: the sockets that an endpoint accepts.
const CANDIDATES_MAX: usize = 48;

/// A candidate path: a local socket and an address of the receiver.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) socket: UdpSocketOptions,
    pub(super) remote: SocketAddr,
    pub(super) backup: bool,
    /// Tried only if no other candidate answers; otherwise it does not become a path.
    pub(super) spare: bool,
}

/// Candidates, and the requested paths that are not available.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) candidates: Vec<Candidate>,
    /// Each with its reason.
    pub(super) left_out: Vec<String>,
}

/// Candidates with their open sockets, in the same order.
pub(super) struct Opened {
    pub(super) candidates: Candidates,
    pub(super) sockets: Vec<Box<dyn LiveSocket>>,
    /// The same, to be followed.
    pub(super) bound: Vec<BoundSocket>,
    /// Their switches.
    pub(super) switches: Vec<SocketSwitch>,
    /// Advice on the sockets' buffers.
    pub(super) advice: Option<String>,
}

impl Connector<'_> {
    /// The candidates that the user requested, or those that exist.
    pub(super) fn candidates(&self, remotes: &[SocketAddr]) -> Result<Candidates, ConnectFailure> {
        let SinglePathOptions { bind, device } = self.single_path;
        if self.single_path.is_given() {
            // One path from this socket, to whichever address answers.
            let candidates = (0..)
                .zip(remotes)
                .filter_map(|(index, remote)| self.routed(*bind, device.as_deref(), *remote, index > 0));
            return Ok(Candidates { candidates: candidates.take(CANDIDATES_MAX).collect(), left_out: Vec::new() });
        }
        let choice = self.paths.choose(remotes).map_err(|error| ConnectFailure::NoSuchPath(error.to_string()))?;
        let chosen = choice.candidates.iter().map(|path| Candidate {
            socket: socket(path.local, path.device.as_deref()).with_mark(self.paths.mark),
            remote: path.remote,
            backup: path.backup,
            spare: false,
        });
        let mut candidates: Vec<Candidate> = chosen.collect();
        candidates.extend(
            tried_last(self.paths, &choice, remotes)
                .into_iter()
                .filter_map(|remote| self.routed(None, None, remote, true)),
        );
        candidates.truncate(CANDIDATES_MAX);
        let missing = self.paths.paths.len().saturating_sub(choice.candidates.len());
        let why = "it reaches no address of the receiver now (`litz paths` with the same options shows why)";
        let left_out = (0..missing).map(|_| format!("one of the {} given with --path: {why}", self.paths.paths.len()));
        Ok(Candidates { candidates, left_out: left_out.collect() })
    }

    /// Opens a socket for each candidate. A candidate whose socket cannot be opened is left out; at
    /// the first attempt, one that the user gave is an error.
    pub(super) fn open(&self, Candidates { candidates, mut left_out }: Candidates) -> Result<Opened, ConnectFailure> {
        let (mut sockets, mut usable, mut failures) = (Vec::<Box<dyn LiveSocket>>::new(), Vec::new(), Vec::new());
        let (mut advice, mut bound, mut switches) = (None, Vec::new(), Vec::new());
        for candidate in candidates {
            match UdpSocket::open(&candidate.socket) {
                Ok(socket) => {
                    advice = advice.or_else(|| small_buffers(&socket, &candidate.socket));
                    let port = socket.local_addr().map_or(0, |address| address.port());
                    let (live, switch) = ReplaceableSocket::new(socket);
                    let mut options = candidate.socket.clone();
                    options.bind.set_port(port);
                    switches.push(switch.clone());
                    bound.push(BoundSocket::new(sockets.len(), options, switch));
                    sockets.push(Box::new(live));
                    usable.push(candidate);
                }
                Err(error) if self.is_first && !self.paths.paths.is_empty() => {
                    return Err(ConnectFailure::NoSuchPath(error.to_string()));
                }
                Err(error) => {
                    failures.push(error.to_string());
                    // The user did not request a spare candidate.
                    left_out.extend((!candidate.spare).then(|| error.to_string()));
                }
            }
        }
        if sockets.is_empty() {
            return Err(ConnectFailure::Silent(failures.join("; ")));
        }
        Ok(Opened { candidates: Candidates { candidates: usable, left_out }, sockets, bound, switches, advice })
    }

    /// A candidate from `bind`, or from the address that the routes choose; none if `bind` is of
    /// another address family.
    fn routed(
        &self,
        bind: Option<SocketAddr>,
        device: Option<&str>,
        remote: SocketAddr,
        spare: bool,
    ) -> Option<Candidate> {
        let any: IpAddr = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let bind = bind.unwrap_or(SocketAddr::new(any, 0));
        (bind.is_ipv4() == remote.is_ipv4()).then(|| Candidate {
            socket: socket(bind, device).with_mark(self.paths.mark),
            remote,
            backup: false,
            spare,
        })
    }
}

/// Addresses of the receiver that no chosen path leads to, and those to which a tunnel leads that is not
/// used: another host may have the same address on our links. They are tried last, on the default
/// route, because one of them may be the only one that answers. Empty if the user chose the paths.
pub(crate) fn tried_last(options: &PathOptions, choice: &Choice, remotes: &[SocketAddr]) -> Vec<SocketAddr> {
    if !options.paths.is_empty() {
        return Vec::new();
    }
    let has_path = |remote: &SocketAddr| choice.candidates.iter().any(|path| path.remote == *remote);
    let has_tunnel =
        |remote: &SocketAddr| choice.rejected.iter().any(|it| it.why == Unused::Tunnel && it.remote == Some(*remote));
    let free = CANDIDATES_MAX.saturating_sub(choice.candidates.len());
    remotes.iter().filter(|remote| !has_path(remote) || has_tunnel(remote)).take(free).copied().collect()
}
