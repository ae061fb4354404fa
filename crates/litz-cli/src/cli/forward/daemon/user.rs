//! The side of a program: asks the daemon for connections.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forward::address::{HostName, Target};
use forward::daemon::{FROM_DAEMON, MESSAGE_LEN_MAX, ProgramName, Reply, Request, SocketFrom};
use forward::message::{Failure, Reason};
use forward::spec::Listen;
use forwarding::carry::{Broken, Carried};
use forwarding::frames::PROMPT;
use forwarding::session::CONNECTIONS_MAX;
use forwarding::socket::Socket;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;

use super::packets::Packets;

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
struct Delivered {
    sent: u64,
    received: u64,
    failure: Option<Failure>,
}

/// Arrivals that the program has not begun to take. The daemon bounds those that it has not answered.
const ARRIVALS_MAX: usize = 64;

/// A place of the far host that is published. Dropping it ends the publication.
pub(in crate::cli::forward) struct Published {
    link: Arc<Link>,
    number: u32,
    arrivals: mpsc::Receiver<Arrival>,
}

/// A connection that has arrived at a publication. Dropping it refuses it.
pub(in crate::cli::forward) struct Arrival {
    wanted: Wanted,
    /// Where it comes from, as the far host sees it.
    pub(in crate::cli::forward) origin: Option<SocketAddr>,
}

/// A connection that the daemon has opened, and for which it waits for a socket. Dropping it closes it.
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
    publications: BTreeMap<u32, Publication>,
}

struct Publication {
    opened: Option<oneshot::Sender<Result<(), Failure>>>,
    arrivals: mpsc::Sender<Arrival>,
}

/// A connection, or an arrival, which is open from its begin.
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
            Err(failure) => return Ok(Err(failure)),
        };
        let (number, opened, delivered) = link.add().ok_or(Ended)?;
        let wanted = Wanted { link, number, delivered, is_carried: false };
        let request = Request::Connect { number, socket: SocketFrom::Program, target };
        wanted.link.packets.send(&request.encode(), &[]).await.map_err(|_| Ended)?;
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
            Err(failure) => return Ok(Err(failure)),
        };
        let (number, found) = link.add_name().ok_or(Ended)?;
        link.packets.send(&Request::LookUp { number, name }.encode(), &[]).await.map_err(|_| Ended)?;
        found.await.map_err(|_| Ended)
    }

    /// Lets the far host listen.
    pub(in crate::cli::forward) async fn publish(&self, listen: Listen) -> Result<Result<Published, Failure>, Ended> {
        let link = match self.link().await {
            Ok(link) => link,
            Err(failure) => return Ok(Err(failure)),
        };
        let (number, opened, arrivals) = link.add_publication().ok_or(Ended)?;
        let published = Published { link, number, arrivals };
        let request = Request::Publish { number, socket: SocketFrom::Program, listen };
        published.link.packets.send(&request.encode(), &[]).await.map_err(|_| Ended)?;
        match opened.await {
            Ok(Ok(())) => Ok(Ok(published)),
            Ok(Err(failure)) => Ok(Err(failure)),
            Err(_) => Err(Ended),
        }
    }

    /// The connection with the daemon, which may have been started again.
    async fn link(&self) -> Result<Arc<Link>, Failure> {
        let mut link = self.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.waiting().is_over) {
            return Ok(Arc::clone(link));
        }
        let new = Link::open(&self.path, &self.name).await;
        let new = new.map_err(|error| Failure::new(Reason::NetworkUnreachable, &explain(&self.path, &error)))?;
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
    packets.send(&request.encode(), &[]).await?;
    next_reply(packets, buffer).await
}

/// The next reply, if it comes in time.
pub(super) async fn next_reply(packets: &Packets, buffer: &mut [u8]) -> io::Result<Reply> {
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
            waiting.publications.clear();
        });
        Ok(link)
    }

    /// Takes replies until the daemon ends.
    async fn read(self: &Arc<Self>, buffer: &mut [u8]) -> io::Result<()> {
        while let Some((len, _)) = self.packets.receive(buffer).await? {
            let reply =
                Reply::decode(&buffer[..len]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            match reply {
                Reply::Arrived { publication, number, origin } => self.on_arrival(publication, number, origin),
                reply => self.waiting().on_reply(reply)?,
            }
        }
        Ok(())
    }

    /// A connection has arrived. Dropping it tells the daemon so, which needs the lock.
    fn on_arrival(self: &Arc<Self>, publication: u32, number: u32, origin: Option<SocketAddr>) {
        let (delivered, when_delivered) = oneshot::channel();
        let arrivals = {
            let mut waiting = self.waiting();
            waiting.by_number.insert(number, Waiter { opened: None, delivered });
            waiting.publications.get(&publication).map(|publication| publication.arrivals.clone())
        };
        let wanted = Wanted { link: Arc::clone(self), number, delivered: when_delivered, is_carried: false };
        // It is refused if the publication has just ended, or there are more than the daemon may tell of.
        let _refused = arrivals.map(|arrivals| arrivals.try_send(Arrival { wanted, origin }));
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

    /// A new number for a publication, and what will be said about it. `None` if the daemon has ended.
    #[expect(clippy::type_complexity, reason = "two receivers")]
    fn add_publication(&self) -> Option<(u32, oneshot::Receiver<Result<(), Failure>>, mpsc::Receiver<Arrival>)> {
        let mut waiting = self.waiting();
        if waiting.is_over {
            return None;
        }
        let (number, (opened, when_opened)) = (waiting.draw(), oneshot::channel());
        let (arrivals, when_arrived) = mpsc::channel(ARRIVALS_MAX);
        waiting.publications.insert(number, Publication { opened: Some(opened), arrivals });
        Some((number, when_opened, when_arrived))
    }

    /// Tells the daemon that a number is not wanted any more. The number stays in use until the daemon has
    /// answered. If it has no space for this message, or has ended, nothing is lost but memory of the daemon.
    fn cancel(&self, number: u32) {
        let _told = self.packets.try_send(&Request::Cancel { number }.encode());
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// A number that is not in use.
    fn draw(&mut self) -> u32 {
        while self.by_number.contains_key(&self.next)
            || self.names.contains_key(&self.next)
            || self.publications.contains_key(&self.next)
        {
            self.next = Self::after(self.next);
        }
        let number = self.next;
        self.next = Self::after(number);
        number
    }

    /// The next one of those that programs choose.
    const fn after(number: u32) -> u32 {
        number.wrapping_add(1) & !FROM_DAEMON
    }

    /// Tells those who wait. They have gone if the program has.
    fn on_reply(&mut self, reply: Reply) -> io::Result<()> {
        match reply {
            Reply::Connected { number, .. } => {
                let waiter = self.by_number.get_mut(&number);
                let _gone = waiter.and_then(|waiter| waiter.opened.take()).map(|opened| opened.send(Ok(())));
            }
            Reply::Found { number, addresses } => {
                let _gone = self.names.remove(&number).map(|found| found.send(Ok(addresses)));
            }
            Reply::Published { number, .. } => {
                let publication = self.publications.get_mut(&number);
                let _gone = publication.and_then(|of| of.opened.take()).map(|opened| opened.send(Ok(())));
            }
            Reply::Failed { number, failure } => self.on_failed(number, failure),
            Reply::Ended { number, sent, received, failure } => {
                if let Some(waiter) = self.by_number.remove(&number) {
                    let _gone = waiter.delivered.send(Delivered { sent, received, failure });
                }
            }
            Reply::Accepted
            | Reply::Refused(_)
            | Reply::Arrived { .. }
            | Reply::StatusPart(_)
            | Reply::Status(_)
            | Reply::Stopping => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a reply without its request"));
            }
        }
        Ok(())
    }

    fn on_failed(&mut self, number: u32, failure: Failure) {
        if let Some(found) = self.names.remove(&number) {
            let _gone = found.send(Err(failure));
        } else if let Some(publication) = self.publications.remove(&number) {
            let _gone = publication.opened.map(|opened| opened.send(Err(failure)));
        } else if let Some(Waiter { opened, delivered }) = self.by_number.remove(&number) {
            match opened {
                Some(opened) => drop(opened.send(Err(failure))),
                None => drop(delivered.send(Delivered { sent: 0, received: 0, failure: Some(failure) })),
            }
        }
    }
}

impl Published {
    /// The next connection that has arrived. None if the publication has ended, because the daemon has.
    pub(in crate::cli::forward) async fn next(&mut self) -> Option<Arrival> {
        self.arrivals.recv().await
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if self.link.waiting().publications.contains_key(&self.number) {
            self.link.cancel(self.number);
        }
    }
}

impl Arrival {
    /// As [`Wanted::carry`].
    pub(in crate::cli::forward) async fn carry(self, socket: Socket, carried: &Carried) -> Result<(), Broken> {
        self.wanted.carry(socket, carried).await
    }

    /// Says why it is not taken.
    pub(in crate::cli::forward) async fn decline(mut self, failure: Failure) {
        let wanted = &mut self.wanted;
        wanted.is_carried = true;
        let request = Request::Decline { number: wanted.number, failure };
        // It fails if the daemon has ended.
        let _over = wanted.link.packets.send(&request.encode(), &[]).await;
    }
}

impl Wanted {
    /// Gives the socket to the daemon, and waits until its data are delivered. The socket is reset if the daemon
    /// ends.
    pub(in crate::cli::forward) async fn carry(self, socket: Socket, carried: &Carried) -> Result<(), Broken> {
        let delivered = self.deliver(socket).await.map_err(Broken::Local)?;
        carried.sent.store(delivered.sent, Ordering::Relaxed);
        carried.received.store(delivered.received, Ordering::Relaxed);
        delivered.failure.map_or(Ok(()), |failure| Err(Broken::Stream(failure.to_string())))
    }

    async fn deliver(mut self, socket: Socket) -> io::Result<Delivered> {
        let lost = || io::Error::new(io::ErrorKind::ConnectionReset, "the daemon has ended");
        let socket = socket.pass()?;
        let request = Request::Carry { number: self.number }.encode();
        self.link.packets.send(&request, &[socket.as_fd()]).await.map_err(|_| lost())?;
        self.is_carried = true;
        drop(socket);
        (&mut self.delivered).await.map_err(|_| lost())
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if !self.is_carried && self.link.waiting().by_number.contains_key(&self.number) {
            self.link.cancel(self.number);
        }
    }
}
