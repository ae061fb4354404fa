//! A connection with the daemon: requests from any thread, and one thread that takes the replies.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use driver::sync::lock;
use forward::address::Target;
use forward::daemon::{FROM_DAEMON, MESSAGE_LEN_MAX, ProgramName, Reply, Request, SocketFrom};
use forward::message::Failure;
use rings::packets;
use rustix::net::{Shutdown, SocketFlags, shutdown, sockopt};

/// Time limit for the daemon's first reply.
const PROMPT: Duration = Duration::from_secs(15);

/// The daemon's answer to a request: the passed descriptors, or the reason for a refusal.
type Answer = Result<Vec<OwnedFd>, Failure>;

/// Error: the daemon has ended the connection with this program, or has ended itself.
#[derive(Debug)]
pub(super) struct Ended;

/// A connection with the daemon. Dropping this ends the connection and the thread.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    pub(super) asks_for_rings: bool,
}

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u32,
    /// Whether there was a request.
    has_asked: bool,
    /// Whether a request was answered.
    has_answered: bool,
    is_over: bool,
    /// Numbers in use, each with the channel for its answer until that has arrived.
    by_number: BTreeMap<u32, Option<SyncSender<Answer>>>,
}

impl Link {
    /// Connects to the daemon at `path`.
    pub(super) fn open(path: &Path, name: &ProgramName, asks_for_rings: bool) -> io::Result<Self> {
        let socket = packets::connect_to(path, SocketFlags::empty())?;
        // The daemon will see all data of the program.
        if sockopt::socket_peercred(&socket)?.uid != rustix::process::geteuid() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it runs as another user"));
        }
        packets::send(socket.as_fd(), &Request::Hello { program: name.clone() }.encode(), &[])?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PROMPT))?;
        let mut buffer = vec![0; MESSAGE_LEN_MAX];
        match receive(&socket, &mut buffer)? {
            Some((Reply::Accepted, _)) => {}
            Some((Reply::Refused(failure), _)) => return Err(io::Error::other(failure.to_string())),
            Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "it answered with another message")),
            None => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, None)?;
        let shared = Arc::new(Shared { socket, waiting: Mutex::default() });
        let reader = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("litz-daemon".to_owned());
        #[expect(clippy::disallowed_methods, reason = "replies come at any time")]
        let _thread = thread.spawn(move || reader.take_replies(&mut buffer))?;
        Ok(Self { shared, asks_for_rings })
    }

    /// Returns whether the daemon has ended the connection.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.shared.waiting).is_over
    }

    /// Returns whether the daemon supports rings: the request for them is the first one, and a
    /// daemon that does not support them ends the connection instead of answering. Returns `None`
    /// if the request was not made, or not answered yet.
    pub(super) fn knows_rings(&self) -> Option<bool> {
        let waiting = lock(&self.shared.waiting);
        match waiting.has_answered {
            _ if !self.asks_for_rings => None,
            true => Some(true),
            false => (waiting.has_asked && waiting.is_over).then_some(false),
        }
    }

    /// Requests a connection, and waits for the answer.
    pub(super) fn connect(&self, socket: SocketFrom, target: &Target) -> Result<Answer, Ended> {
        let (number, answer) = lock(&self.shared.waiting).add().ok_or(Ended)?;
        let request = Request::Connect { number, socket, target: target.clone() };
        if packets::send(self.shared.socket.as_fd(), &request.encode(), &[]).is_err() {
            // The thread may not know yet.
            lock(&self.shared.waiting).is_over = true;
            return Err(Ended);
        }
        answer.recv().map_err(|_| Ended)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The call fails only if the daemon is gone.
        let _over = shutdown(&self.shared.socket, Shutdown::Both);
    }
}

impl Shared {
    /// Takes replies until the connection ends. Waiting callers then learn that no answer will
    /// come.
    fn take_replies(&self, buffer: &mut [u8]) {
        let ended = loop {
            let result = match receive(&self.socket, buffer) {
                Ok(Some((reply, descriptors))) => lock(&self.waiting).on_reply(reply, descriptors),
                Ok(None) => break Ok(()),
                Err(error) => Err(error),
            };
            if result.is_err() {
                break result;
            }
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the daemon");
        }
        // A daemon that violates the protocol gets no more requests.
        let _over = shutdown(&self.socket, Shutdown::Both);
        let mut waiting = lock(&self.waiting);
        waiting.is_over = true;
        waiting.by_number.clear();
    }
}

impl Waiting {
    /// Returns an unused number, and the channel for its answer. Returns `None` if the connection
    /// has ended.
    fn add(&mut self) -> Option<(u32, Receiver<Answer>)> {
        if self.is_over {
            return None;
        }
        while self.by_number.contains_key(&self.next) {
            self.advance();
        }
        self.has_asked = true;
        let (number, (give, answer)) = (self.next, sync_channel(1));
        self.by_number.insert(number, Some(give));
        self.advance();
        Some((number, answer))
    }

    /// Advances to the next of the numbers that programs choose.
    const fn advance(&mut self) {
        self.next = self.next.wrapping_add(1) & !FROM_DAEMON;
    }

    fn on_reply(&mut self, reply: Reply, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let (number, answer) = match reply {
            Reply::Connected { number, .. } => (number, Ok(descriptors)),
            Reply::Failed { number, failure } => (number, Err(failure)),
            Reply::Ended { number, .. } => {
                self.by_number.remove(&number);
                return Ok(());
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply without its request")),
        };
        self.has_answered = true;
        let is_last = answer.is_err();
        // The channel has space for the one answer. Sending fails if the caller was unwound.
        let _gone = self.by_number.get_mut(&number).and_then(Option::take).map(|give| give.try_send(answer));
        if is_last {
            self.by_number.remove(&number);
        }
        Ok(())
    }
}

/// Returns the next reply with its descriptors. Returns `None` at the end.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<(Reply, Vec<OwnedFd>)>> {
    loop {
        match packets::receive(socket.as_fd(), buffer, packets::DESCRIPTORS_MAX) {
            Ok((0, _)) => return Ok(None),
            Ok((len, descriptors)) => {
                let reply = Reply::decode(&buffer[..len]);
                let reply = reply.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                return Ok(Some((reply, descriptors)));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            // The daemon has not read the data that this program sent.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

impl From<Ended> for io::Error {
    fn from(_: Ended) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, "the daemon has ended")
    }
}
