//! Ways to the receiver: which there are, and their sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use litz::paths::Choice;
use litz::{LiveSocket, UdpSocket, UdpSocketOptions};

use super::super::path_options::PathOptions;
use super::{Reach, Unreached, small_buffers, socket};

/// Ways tried to reach a receiver, at most: sockets that an endpoint takes.
const WAYS_MAX: usize = 48;

/// One way to the receiver: a socket of ours and an address of its.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) socket: UdpSocketOptions,
    pub(super) remote: SocketAddr,
    pub(super) backup: bool,
    /// Worth a try if nobody answers elsewhere, and no path of its own otherwise.
    pub(super) spare: bool,
}

/// Ways, and what was wanted and is not there.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) ways: Vec<Way>,
    /// Each with its reason, in words.
    pub(super) left_out: Vec<String>,
}

/// Ways with their sockets open, in the same order.
pub(super) struct Opened {
    pub(super) ways: Ways,
    pub(super) sockets: Vec<Box<dyn LiveSocket>>,
    /// What to tell of their buffers.
    pub(super) advice: Option<String>,
}

impl Reach<'_> {
    /// The ways that the user wants, or that are there.
    pub(super) fn ways(&self, remotes: &[SocketAddr]) -> Result<Ways, Unreached> {
        if self.bind.is_some() || self.device.is_some() {
            // One path from there, to whichever address answers.
            let ways =
                (0..).zip(remotes).filter_map(|(index, remote)| routed(self.bind, self.device, *remote, index > 0));
            return Ok(Ways { ways: ways.take(WAYS_MAX).collect(), left_out: Vec::new() });
        }
        let choice = self.paths.choose(remotes).map_err(|error| Unreached::NoSuchPath(error.to_string()))?;
        let chosen = choice.candidates.iter().map(|path| Way {
            socket: socket(path.local, path.device.as_deref()),
            remote: path.remote,
            backup: path.backup,
            spare: false,
        });
        let mut ways: Vec<Way> = chosen.collect();
        ways.extend(
            tried_last(self.paths, &choice, remotes).into_iter().filter_map(|remote| routed(None, None, remote, true)),
        );
        ways.truncate(WAYS_MAX);
        let missing = self.paths.paths.len().saturating_sub(choice.candidates.len());
        let why = "it leads nowhere now (`litz paths` with the same options says why)";
        let left_out = (0..missing).map(|_| format!("one of {} given with --path: {why}", self.paths.paths.len()));
        Ok(Ways { ways, left_out: left_out.collect() })
    }

    /// Opens a socket for each way; those whose socket cannot be opened are left out, except at the first attempt those that
    /// the user gave.
    pub(super) fn open(&self, Ways { ways, mut left_out }: Ways) -> Result<Opened, Unreached> {
        let (mut sockets, mut usable, mut failures) = (Vec::<Box<dyn LiveSocket>>::new(), Vec::new(), Vec::new());
        let mut advice = None;
        for way in ways {
            match UdpSocket::open(&way.socket) {
                Ok(socket) => {
                    advice = advice.or_else(|| small_buffers(&socket, &way.socket));
                    sockets.push(Box::new(socket));
                    usable.push(way);
                }
                Err(error) if self.is_first && !self.paths.paths.is_empty() => {
                    return Err(Unreached::NoSuchPath(error.to_string()));
                }
                Err(error) => {
                    failures.push(error.to_string());
                    // Nobody asked for a spare way.
                    left_out.extend((!way.spare).then(|| error.to_string()));
                }
            }
        }
        if sockets.is_empty() {
            return Err(Unreached::Silent(failures.join("; ")));
        }
        Ok(Opened { ways: Ways { ways: usable, left_out }, sockets, advice })
    }
}

/// Addresses of the receiver that no chosen path leads to: one of them may be the only one that answers, so they are tried
/// last, by whatever way the routes choose. None if the user said which paths to use.
pub(crate) fn tried_last(options: &PathOptions, choice: &Choice, remotes: &[SocketAddr]) -> Vec<SocketAddr> {
    if !options.paths.is_empty() {
        return Vec::new();
    }
    let has_path = |remote: &SocketAddr| choice.candidates.iter().any(|path| path.remote == *remote);
    let room = WAYS_MAX.saturating_sub(choice.candidates.len());
    remotes.iter().filter(|remote| !has_path(remote)).take(room).copied().collect()
}

/// From `bind`, or from wherever the routes say; none if that is of another family.
fn routed(bind: Option<SocketAddr>, device: Option<&str>, remote: SocketAddr, spare: bool) -> Option<Way> {
    let any: IpAddr = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let bind = bind.unwrap_or(SocketAddr::new(any, 0));
    (bind.is_ipv4() == remote.is_ipv4()).then(|| Way { socket: socket(bind, device), remote, backup: false, spare })
}
