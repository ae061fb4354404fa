//! Names that programs look up (`--dns`): their queries to the name servers of this host are answered by
//! this process, which asks the far host, too.
//!
//! ```text
//!  program's socket ── query ──▶ a socket of this process ──▶ this host's name server, or the far host
//!                   ◀─ answer ──                          ◀──
//! ```
//!
//! A program that connects a UDP socket to a name server is connected to a socket of this process on
//! loopback. One that names the server in each call that sends keeps its socket as it is, and this process
//! takes the query out of the call ([`send`](mod@send)). Both believe to have the answers from the name server:
//! recvfrom, recvmsg, recvmmsg and getpeername are taken over for such sockets ([`receive`](mod@receive)). TCP
//! connections to a name server are answered, too.
//!
//! | module | contents |
//! |---|---|
//! | [`question`] | queries and answers, as bytes |
//! | [`configured`] | the name servers of this host |
//! | [`places`] | how many queries are answered at a time |
//! | [`send`](mod@send) | queries that a program sends with an address |
//! | [`receive`](mod@receive) | answers that a program receives |

mod configured;
mod places;
mod question;
mod receive;
mod send;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use forward::address::HostName;
use forward::flows::Flows;
use forward::message::Reason;
use forwarding::events::Events;
use net::MonotonicClock;
use places::{Places, Turn};
use question::{Asked, Code, Wanted};
use socket2::{Domain, SockRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::engine::{Engine, NotOpened};
use super::report::Report;

/// Name servers that are stood for. Resolvers use three of those that are configured (`MAXNS`).
const SERVERS_MAX: usize = 16;

/// Queries that this host answers at a time. Further ones wait; those for which that takes too long, and those
/// beyond a number, are answered with SERVFAIL.
const QUERIES_MAX: usize = 64;

/// Those that the far host answers at a time, besides. They may take longer, if the link to it is lost.
const FAR_QUERIES_MAX: usize = 64;

/// Sockets of programs that may ask, and the time after their last query in which they may. This process
/// holds each of them so long, so that its port stays taken when the program has closed it: queries from
/// there are never those of another program.
const ASKING_MAX: usize = 256;
const ASKING_TIME: units::Duration = units::Duration::from_secs(3600);

/// The pause after an error of a socket for a name server, for example if there is no memory.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Sockets of programs that have sent queries with an address, and whose answers have to come from there. One that
/// is forgotten gets its next answers from loopback, until it sends again.
const SENDERS_MAX: usize = 1024;

/// Addresses whose names are kept, and how long.
const FOUND_MAX: usize = 4096;
const FOUND_TIME: units::Duration = units::Duration::from_secs(3600);

/// The longest query that is read. One for a name with extensions takes some 300 bytes.
const QUERY_LEN_MAX: usize = 4096;

/// The longest answer of a name server.
const ANSWER_LEN_MAX: usize = 65_535;

/// The time that this host's name server has, before the far host is asked. The C library asks again after
/// 5 seconds.
const HERE_TIME: Duration = Duration::from_secs(2);

/// The time after its last query after which a TCP connection is closed (RFC 7766, section 6.2.3).
const TCP_TIME: Duration = Duration::from_secs(30);

/// Which host looks up names.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(super) enum NamesFrom {
    /// This host, and the far host those that this host does not know
    Auto,
    /// The far host
    Far,
    /// This host
    Here,
}

/// Looks up names for the programs.
pub(super) struct Names {
    from: NamesFrom,
    engine: Arc<Engine>,
    report: Arc<Report>,
    /// The program, for the user.
    program: String,
    shared: Mutex<Shared>,
    queries: Places,
    far_queries: Places,
    clock: MonotonicClock,
}

struct Shared {
    /// The sockets of this process by the name server that each stands for.
    stand_ins: BTreeMap<SocketAddr, StandIn>,
    /// The sockets of programs that are connected to them.
    asking: Flows<SocketAddr, OwnedFd>,
    /// The kernel's numbers of those that are not, and have sent queries with an address.
    senders: Flows<u64, ()>,
    /// The names that the far host has found, by address.
    found: Flows<IpAddr, HostName>,
}

/// A socket of this process that stands for a name server.
#[derive(Clone)]
struct StandIn {
    address: SocketAddr,
    socket: Arc<UdpSocket>,
}

/// How a query comes, and is passed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Udp,
    Tcp,
}

impl Names {
    pub(super) fn new(from: NamesFrom, engine: Arc<Engine>, report: Arc<Report>, program: String) -> Arc<Self> {
        let shared = Shared {
            stand_ins: BTreeMap::new(),
            asking: Flows::new(ASKING_TIME, ASKING_MAX),
            senders: Flows::new(ASKING_TIME, SENDERS_MAX),
            found: Flows::new(FOUND_TIME, FOUND_MAX),
        };
        let (queries, far_queries) = (Places::new(QUERIES_MAX), Places::new(FAR_QUERIES_MAX));
        let (shared, clock) = (Mutex::new(shared), MonotonicClock::start());
        Arc::new(Self { from, engine, report, program, shared, queries, far_queries, clock })
    }

    /// Whether queries to this address are answered by this process.
    pub(super) fn are_asked_at(&self, address: SocketAddr) -> bool {
        self.from != NamesFrom::Here && configured::is_name_server(address)
    }

    /// Whether this socket of this host has to seem missing, so that programs ask the name servers.
    pub(super) fn hide(&self, path: &Path) -> bool {
        self.from == NamesFrom::Far && configured::is_service(path)
    }

    /// Whether a program has asked.
    pub(super) fn are_used(&self) -> bool {
        !self.lock().stand_ins.is_empty()
    }

    /// The name server that a program believes to be at `peer`, where a socket of this process stands for it.
    pub(super) fn server_behind(&self, peer: SocketAddr) -> Option<SocketAddr> {
        let canonical = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let shared = self.lock();
        let server = shared.stand_ins.iter().find(|(_, own)| own.address == canonical).map(|(server, _)| *server)?;
        Some(in_family_of(peer, server))
    }

    /// The name at which the far host has found this address.
    pub(super) fn name_of(&self, ip: IpAddr) -> Option<HostName> {
        self.lock().found.use_now(self.clock.now(), &ip.to_canonical()).cloned()
    }

    /// Connects a program's UDP socket to the one of this process that stands for `server`.
    ///
    /// # Errors
    /// If there are too many of them, or the system's error.
    pub(super) fn attach(self: &Arc<Self>, socket: OwnedFd, server: SocketAddr) -> io::Result<()> {
        let server = SocketAddr::new(server.ip().to_canonical(), server.port());
        let own = self.stand_in(server)?.address;
        let is_ipv6 = SockRef::from(&socket).domain()? == Domain::IPV6;
        let address = match own.ip() {
            IpAddr::V4(ip) if is_ipv6 => SocketAddr::new(ip.to_ipv6_mapped().into(), own.port()),
            _ => own,
        };
        rustix::net::connect(&socket, &address)?;
        let local = SockRef::from(&socket).local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let (now, mut shared) = (self.clock.now(), self.lock());
        let _closed = shared.asking.poll_idle(now);
        // If there are too many, the oldest one gets no more answers, and its resolver connects another one.
        let _oldest = shared.asking.insert(now, local, socket);
        Ok(())
    }

    /// The socket that stands for `server`.
    #[expect(clippy::disallowed_methods, reason = "a socket inside this host is the kernel's")]
    fn stand_in(self: &Arc<Self>, server: SocketAddr) -> io::Result<StandIn> {
        let mut shared = self.lock();
        if let Some(own) = shared.stand_ins.get(&server) {
            return Ok(own.clone());
        }
        if shared.stand_ins.len() == SERVERS_MAX {
            return Err(io::Error::other("programs ask too many name servers"));
        }
        let ip: IpAddr = if server.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let socket = std::net::UdpSocket::bind((ip, 0))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let own = StandIn { address, socket: Arc::new(UdpSocket::from_std(socket)?) };
        tokio::spawn(Arc::clone(self).serve(Arc::clone(&own.socket), server));
        shared.stand_ins.insert(server, own.clone());
        Ok(own)
    }

    /// Keeps in mind that a program has sent a query from its socket with this number.
    fn note_sent(&self, number: u64) {
        let (now, mut shared) = (self.clock.now(), self.lock());
        let _forgotten = (shared.senders.poll_idle(now), shared.senders.insert(now, number, ()));
    }

    fn has_sent(&self, number: u64) -> bool {
        self.lock().senders.use_now(self.clock.now(), &number).is_some()
    }

    /// Answers the queries that come to a socket.
    async fn serve(self: Arc<Self>, socket: Arc<UdpSocket>, server: SocketAddr) {
        let mut buffer = [0; QUERY_LEN_MAX];
        loop {
            let (len, origin) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // The answer by ICMP to an answer that its program does not wait for any more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => {
                    tracing::warn!(%error, "the socket for a name server");
                    tokio::time::sleep(ERROR_PAUSE).await;
                    continue;
                }
            };
            // Queries of other programs get no answer.
            if self.lock().asking.use_now(self.clock.now(), &origin).is_none() {
                continue;
            }
            // Before there is a task, so that their number is bounded.
            let Some(turn) = self.queries.turn() else {
                refuse(&socket, origin, &buffer[..len]);
                continue;
            };
            let (names, socket, query) = (Arc::clone(&self), Arc::clone(&socket), buffer[..len].to_vec());
            tokio::spawn(async move { names.answer_to(&socket, origin, server, &query, turn).await });
        }
    }

    /// Answers a query that has come from `origin`, with the socket that stands for `server`.
    async fn answer_to(&self, own: &UdpSocket, origin: SocketAddr, server: SocketAddr, query: &[u8], turn: Turn) {
        let answer = match self.queries.place(turn).await {
            Some(place) => self.answer(server, query, Over::Udp, place).await,
            None => question::failed(query),
        };
        // A message that is no query has no answer.
        if let Some(answer) = answer
            && let Err(error) = own.send_to(&answer, origin).await
        {
            tracing::info!(%error, "an answer about a name");
        }
    }

    /// Answers the queries of a TCP connection, until the program closes it.
    ///
    /// # Errors
    /// Why it ended otherwise.
    pub(super) async fn serve_tcp(&self, mut stream: TcpStream, server: SocketAddr) -> io::Result<()> {
        loop {
            // The length comes before each message (RFC 1035, section 4.2.2).
            let len = match timeout(TCP_TIME, stream.read_u16()).await {
                Ok(Ok(len)) => usize::from(len),
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Ok(()),
            };
            if len > QUERY_LEN_MAX {
                let mut header = [0; question::HEADER_LEN];
                timeout(TCP_TIME, stream.read_exact(&mut header)).await??;
                if let Some(answer) = question::malformed(&header) {
                    timeout(TCP_TIME, stream.write_all(&[&(answer.len() as u16).to_be_bytes(), &answer[..]].concat()))
                        .await??;
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a query is too long"));
            }
            let mut query = vec![0; len];
            timeout(TCP_TIME, stream.read_exact(&mut query)).await??;
            let place = match self.queries.turn() {
                Some(turn) => self.queries.place(turn).await,
                None => None,
            };
            let answer = match place {
                Some(place) => self.answer(server, &query, Over::Tcp, place).await,
                None => question::failed(&query),
            };
            let answer = answer.ok_or_else(|| io::Error::other("a query has no answer"))?;
            let len = u16::try_from(answer.len()).map_err(|_| io::ErrorKind::InvalidData)?;
            timeout(TCP_TIME, stream.write_all(&[&len.to_be_bytes(), &answer[..]].concat())).await??;
        }
    }

    /// The answer to a query for `server`; `None` if there is none.
    async fn answer(
        &self,
        server: SocketAddr,
        query: &[u8],
        over: Over,
        place: OwnedSemaphorePermit,
    ) -> Option<Vec<u8>> {
        let Some(plain) = question::query(query) else { return question::malformed(query) };
        let here = match self.from {
            NamesFrom::Far => None,
            NamesFrom::Auto | NamesFrom::Here => ask(server, query, over).await,
        };
        // Another failure stands: a name server that validates says so of a forged name (RFC 4035, section 5.5),
        // and one that filters may refuse.
        if here.as_ref().is_some_and(|here| !question::is_unknown(here)) {
            return here;
        }
        let Some(asked) = question::asked(&plain) else { return here };
        let code = match asked {
            Asked::Addresses(wanted) => {
                // Without it: a far host that does not answer delays no names that this host knows.
                drop(place);
                // The far host may know the name, whatever this host says.
                let Some(turn) = self.far_queries.turn() else { return question::failed(query) };
                let Some(_far_place) = self.far_queries.place(turn).await else { return question::failed(query) };
                match self.look_up(&wanted).await {
                    Ok(addresses) => return question::answer_with(&plain, &addresses, wanted.is_ipv6),
                    Err(code) => code,
                }
            }
            Asked::NoHost => Code::NoSuchName,
            Asked::Other => Code::NotImplemented,
        };
        // The answer of this host stands if the far host knows no more.
        here.or_else(|| question::answer_without(&plain, code))
    }

    /// Asks the far host. The error is what the program is told.
    async fn look_up(&self, wanted: &Wanted) -> Result<Vec<IpAddr>, Code> {
        let name = &wanted.name;
        let label = self.report.label(&self.program, &format_args!("the name {name}"));
        let found = match self.engine.look_up(name.clone()).await {
            Ok(found) => found,
            Err(NotOpened::Failed(failure)) if failure.reason == Reason::NameNotFound => {
                tracing::info!(%failure, "the far host");
                return Err(Code::NoSuchName);
            }
            Err(NotOpened::Failed(failure)) => {
                self.report.refused(&label, failure.reason.name(), &failure.to_string());
                let is_refused = failure.reason == Reason::NotAllowed;
                return Err(if is_refused { Code::Refused } else { Code::Failed });
            }
            Err(NotOpened::Lost) => {
                self.report.refused(&label, "daemon_ended", "the daemon has ended");
                return Err(Code::Failed);
            }
        };
        // Here they would mean this host.
        let usable = |ip: &IpAddr| !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast());
        let found: Vec<IpAddr> = found.into_iter().filter(usable).collect();
        if found.is_empty() {
            let message = "the far host knows only addresses of its own loopback: no other host can use them";
            self.report.refused(&label, "loopback", message);
            return Err(Code::NoSuchName);
        }
        let (now, mut shared) = (self.clock.now(), self.lock());
        for ip in &found {
            let _forgotten = shared.found.insert(now, *ip, name.clone());
        }
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers a query that it is not served. A socket that is full does not take the answer: the program asks again.
fn refuse(own: &UdpSocket, origin: SocketAddr, query: &[u8]) {
    if let Some(answer) = question::failed(query)
        && let Err(error) = own.try_send_to(&answer, origin)
    {
        tracing::info!(%error, "an answer about a name");
    }
}

/// `address` as a socket has it whose peer is `peer`.
fn in_family_of(peer: SocketAddr, address: SocketAddr) -> SocketAddr {
    match (peer, address.ip()) {
        (SocketAddr::V6(_), IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// The answer of this host's name server; `None` if it does not answer in time.
async fn ask(server: SocketAddr, query: &[u8], over: Over) -> Option<Vec<u8>> {
    let answer = async {
        match over {
            Over::Udp => ask_by_udp(server, query).await,
            Over::Tcp => ask_by_tcp(server, query).await,
        }
    };
    match timeout(HERE_TIME, answer).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::info!(%server, %error, "a name server of this host");
            None
        }
        Err(_) => None,
    }
}

async fn ask_by_udp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // The kernel draws the port (RFC 5452, section 9.2).
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; ANSWER_LEN_MAX];
    loop {
        let len = socket.recv(&mut buffer).await?;
        if question::is_reply(query, &buffer[..len]) {
            buffer.truncate(len);
            return Ok(buffer);
        }
    }
}

async fn ask_by_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(query.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&len.to_be_bytes(), query].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    if question::is_reply(query, &answer) { Ok(answer) } else { Err(io::ErrorKind::InvalidData.into()) }
}
