//! The side of a program: asks the daemon for connections.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forward::address::{HostName, Target};
use forward::daemon::{MESSAGE_LEN_MAX, ProgramName, Reply, Request, SocketFrom};
use forward::message::{Failure, Reason};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;

use super::packets::Packets;
use crate::cli::forward::frames::PROMPT;
use crate::cli::forward::session::CONNECTIONS_MAX;
use crate::cli::forward::socket::Socket;

/// The daemon, as a program uses it.
pub(in crate::cli::forward) struct Daemon {
    path: PathBuf,
    name: ProgramName,
    /// The connection with the daemon. A daemon that was started again gets a new one.
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    places: Semaphore,
}

/// The daemon has ended.
#[derive(Debug)]
pub(in crate::cli::forward) struct Ended;

/// How the data of a connection ended.
pub(in crate::cli::forward) struct Delivered {
    pub(in crate::cli::forward) sent: u64,
    pub(in crate::cli::forward) received: u64,
    pub(in crate::cli::forward) failure: Option<Failure>,
}

/// A connection to a target that the daemon has opened, and for which it waits for a socket. Dropping it
/// closes it.
pub(in crate::cli::forward) struct Wanted {
    link: Arc<Link>,
    number: u32,
    delivered: oneshot::Receiver<Delivered>,
    is_carried: bool,
}

/// A connection with the daemon.
struct Link {
    packets: Packets,
    waiting: Mutex<Waiting>,
}

/// The requests of a connection with the daemon.
#[derive(Default)]
struct Waiting {
    next: u32,
    is_over: bool,
    by_number: BTreeMap<u32, Waiter>,
    /// Those for names.
    names: BTreeMap<u32, oneshot::Sender<Result<Vec<IpAddr>, Failure>>>,
}

struct Waiter {
    opened: Option<oneshot::Sender<Result<(), Failure>>>,
    delivered: oneshot::Sender<Delivered>,
}

impl Daemon {
    /// Connects to the daemon at `path` for a program.
    ///
    /// # Errors
    /// A message for the user.
    pub(in crate::cli::forward) async fn connect(path: &Path, program: &str) -> Result<Self, String> {
        let name = ProgramName::new(program);
        let link = Link::open(path, &name).await.map_err(|error| explain(path, &error))?;
        let (path, link) = (path.to_owned(), tokio::sync::Mutex::new(Some(link)));
        Ok(Self { path, name, link, places: Semaphore::new(CONNECTIONS_MAX) })
    }

    /// A place for a connection. The daemon bounds those of each program, too.
    pub(in crate::cli::forward) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// Waits until no connection is carried.
    pub(in crate::cli::forward) async fn finished(&self) {
        let _all = self.places.acquire_many(CONNECTIONS_MAX as u32).await;
    }

    /// Asks for a connection.
    pub(in crate::cli::forward) async fn open(&self, target: Target) -> Result<Result<Wanted, Failure>, Ended> {
        let link = match self.link().await {
            Ok(link) => link,
            Err(error) => {
                return Ok(Err(Failure::new(Reason::NetworkUnreachable, &explain(&self.path, &error))));
            }
        };
        let (number, opened, delivered) = link.add().ok_or(Ended)?;
        let wanted = Wanted { link, number, delivered, is_carried: false };
        let request = Request::Connect { number, socket: SocketFrom::Program, target };
        wanted.link.packets.send(&request.encode(), None).await.map_err(|_| Ended)?;
        match opened.await {
            Ok(Ok(())) => Ok(Ok(wanted)),
            Ok(Err(failure)) => Ok(Err(failure)),
            Err(_) => Err(Ended),
        }
    }

    /// Asks for the addresses of a name.
    pub(in crate::cli::forward) async fn look_up(&self, name: HostName) -> Result<Result<Vec<IpAddr>, Failure>, Ended> {
        let link = match self.link().await {
            Ok(link) => link,
            Err(error) => {
                return Ok(Err(Failure::new(Reason::NetworkUnreachable, &explain(&self.path, &error))));
            }
        };
        let (number, found) = link.add_name().ok_or(Ended)?;
        link.packets.send(&Request::LookUp { number, name }.encode(), None).await.map_err(|_| Ended)?;
        found.await.map_err(|_| Ended)
    }

    /// The connection with the daemon, which may have been started again.
    async fn link(&self) -> io::Result<Arc<Link>> {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.waiting().is_over) {
            return Ok(Arc::clone(link));
        }
        let new = Link::open(&self.path, &self.name).await?;
        *link = Some(Arc::clone(&new));
        Ok(new)
    }
}

/// Why there is no daemon, for the user.
pub(super) fn explain(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no daemon runs on {}: start one with `litz daemon TICKET`", path.display())
        }
        _ => format!("cannot use the daemon on {}: {error}", path.display()),
    }
}

/// Connects to a daemon of the same user.
pub(super) fn dial(path: &Path) -> io::Result<Packets> {
    let packets = Packets::connect(path)?;
    // It will see all data of the program.
    if packets.peer()?.uid != rustix::process::geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it runs as another user"));
    }
    Ok(packets)
}

/// Sends a request and waits for the reply.
pub(super) async fn ask(packets: &Packets, request: &Request, buffer: &mut [u8]) -> io::Result<Reply> {
    packets.send(&request.encode(), None).await?;
    let received = timeout(PROMPT, packets.receive(buffer)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let (len, _) = received.ok_or(io::ErrorKind::ConnectionReset)?;
    Reply::decode(&buffer[..len]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl Link {
    async fn open(path: &Path, name: &ProgramName) -> io::Result<Arc<Self>> {
        let packets = dial(path)?;
        let mut buffer = vec![0; MESSAGE_LEN_MAX];
        match ask(&packets, &Request::Hello { program: name.clone() }, &mut buffer).await? {
            Reply::Accepted => {}
            Reply::Refused(failure) => return Err(io::Error::other(failure.to_string())),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it answered with another message")),
        }
        let link = Arc::new(Self { packets, waiting: Mutex::default() });
        let reader = Arc::clone(&link);
        tokio::spawn(async move {
            if let Err(error) = reader.read(&mut buffer).await {
                tracing::warn!(%error, "the daemon");
            }
            // Those who wait learn that no answer comes.
            let mut waiting = reader.waiting();
            waiting.is_over = true;
            waiting.by_number.clear();
            waiting.names.clear();
        });
        Ok(link)
    }

    /// Takes replies until the daemon ends.
    async fn read(&self, buffer: &mut [u8]) -> io::Result<()> {
        while let Some((len, _)) = self.packets.receive(buffer).await? {
            let reply =
                Reply::decode(&buffer[..len]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let mut waiting = self.waiting();
            // The receivers have gone if the program has.
            match reply {
                Reply::Connected { number, .. } => {
                    let waiter = waiting.by_number.get_mut(&number);
                    let _gone = waiter.and_then(|waiter| waiter.opened.take()).map(|opened| opened.send(Ok(())));
                }
                Reply::Found { number, addresses } => {
                    let _gone = waiting.names.remove(&number).map(|found| found.send(Ok(addresses)));
                }
                Reply::Failed { number, failure } if waiting.names.contains_key(&number) => {
                    let _gone = waiting.names.remove(&number).map(|found| found.send(Err(failure)));
                }
                Reply::Failed { number, failure } => {
                    let waiter = waiting.by_number.remove(&number);
                    let _gone = waiter.and_then(|waiter| waiter.opened).map(|opened| opened.send(Err(failure)));
                }
                Reply::Ended { number, sent, received, failure } => {
                    if let Some(waiter) = waiting.by_number.remove(&number) {
                        let _gone = waiter.delivered.send(Delivered { sent, received, failure });
                    }
                }
                Reply::Accepted | Reply::Refused(_) | Reply::Status(_) | Reply::Stopping => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply without its request"));
                }
            }
        }
        Ok(())
    }

    /// A new number, and what will be said about it. `None` if the daemon has ended.
    #[expect(clippy::type_complexity, reason = "two receivers")]
    fn add(&self) -> Option<(u32, oneshot::Receiver<Result<(), Failure>>, oneshot::Receiver<Delivered>)> {
        let mut waiting = self.waiting();
        if waiting.is_over {
            return None;
        }
        let number = waiting.draw();
        let ((opened, when_opened), (delivered, when_delivered)) = (oneshot::channel(), oneshot::channel());
        waiting.by_number.insert(number, Waiter { opened: Some(opened), delivered });
        Some((number, when_opened, when_delivered))
    }

    /// A new number for a name, and what will be said about it. `None` if the daemon has ended.
    #[expect(clippy::type_complexity, reason = "a receiver")]
    fn add_name(&self) -> Option<(u32, oneshot::Receiver<Result<Vec<IpAddr>, Failure>>)> {
        let mut waiting = self.waiting();
        if waiting.is_over {
            return None;
        }
        let (number, (found, when_found)) = (waiting.draw(), oneshot::channel());
        waiting.names.insert(number, found);
        Some((number, when_found))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// A number that is not in use.
    fn draw(&mut self) -> u32 {
        while self.by_number.contains_key(&self.next) || self.names.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }
}

impl Wanted {
    /// Gives the socket to the daemon, and waits until its data are delivered.
    ///
    /// # Errors
    /// If the daemon has ended. The socket is reset then.
    pub(in crate::cli::forward) async fn carry(mut self, socket: Socket) -> io::Result<Delivered> {
        let lost = || io::Error::new(io::ErrorKind::ConnectionReset, "the daemon has ended");
        let socket = socket.pass()?;
        let request = Request::Carry { number: self.number }.encode();
        self.link.packets.send(&request, Some(socket.as_fd())).await.map_err(|_| lost())?;
        self.is_carried = true;
        drop(socket);
        (&mut self.delivered).await.map_err(|_| lost())
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if !self.is_carried && self.link.waiting().by_number.contains_key(&self.number) {
            // The number stays in use until the daemon has answered. If it has no space for this message,
            // or has ended, nothing is lost but memory of the daemon.
            let _told = self.link.packets.try_send(&Request::Cancel { number: self.number }.encode());
        }
    }
}
