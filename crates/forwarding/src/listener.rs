//! Listeners of this host, whose connections and packets go to the other end: those of `-L` on the
//! client's host, and those of `-R` on the server's.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::carry::{Answer, Broken, Carried, carry};
use forward::address::{Protocol, UnixPath};
use forward::message::Message;
use forward::spec::{Bind, Listen};
use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket as RawSocket, Type};
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::datagrams::forward_packets;
use super::events::Events;
use super::session::CONNECTIONS_MAX;
use super::sessions::Sessions;
use super::socket::Socket;

/// The pause of a listener that cannot accept, because the process has no more descriptors, for
/// instance.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Connections that the kernel keeps while this program does not accept.
const BACKLOG: i32 = 1024;

/// How often another port is tried if the chosen one is free for one address family only.
const PORTS_TRIED: u32 = 16;

/// The first port that every user may have, by default (`net.ipv4.ip_unprivileged_port_start`).
const FREE_PORT_MIN: u16 = 1024;

/// The host of a listener that is the user's, in words.
const THIS_HOST: &str = "this host";

/// What is done with the connections of a listener.
pub struct Way {
    /// The connection to the other end.
    pub sessions: Sessions,
    /// Request to the other end.
    pub request: RequestOf,
    /// The target, for the user.
    pub shown: String,
    /// Takes what becomes of the connections.
    pub events: Arc<dyn Events>,
    /// A permit for each connection, shared by all listeners.
    pub places: Arc<Semaphore>,
}

/// Makes the request for what came from an address.
pub type RequestOf = Box<dyn Fn(Option<SocketAddr>) -> Message + Send + Sync>;

/// As many places as connections may be open.
pub fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONNECTIONS_MAX))
}

/// Why a listener was not opened, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}", cannot_listen(.listen, .error, .host))]
pub struct ListenError {
    /// Where it was to listen.
    pub listen: Listen,
    /// The system's error.
    pub error: io::Error,
    /// The host of the listener, in words.
    host: &'static str,
}

/// Open sockets of a listener.
pub struct Bound {
    sockets: Vec<BoundSocket>,
    /// Where it listens, with the port that the system chose.
    pub listen: Listen,
}

enum BoundSocket {
    Tcp(TcpListener),
    Udp(UdpSocket),
    Unix(UnixListener, OwnPath),
}

/// Removes the path of a socket when it is dropped.
struct OwnPath(PathBuf);

impl Drop for OwnPath {
    fn drop(&mut self) {
        // Someone else may have removed it.
        let _gone = std::fs::remove_file(&self.0);
    }
}

impl Bound {
    /// Opens a listener of the user's host. Needs the runtime.
    ///
    /// # Errors
    /// If the first address cannot be used, or the port is in use on a later one. The message says what to do.
    pub fn open_here(listen: &Listen) -> Result<Self, ListenError> {
        Self::open(listen).map_err(|error| ListenError { listen: listen.clone(), error, host: THIS_HOST })
    }

    /// Opens a listener that a client asks its server for. Needs the runtime.
    ///
    /// # Errors
    /// Like [`open_here`](Self::open_here), with a message for the users of both.
    pub(crate) fn open_for_client(listen: &Listen) -> Result<Self, ListenError> {
        Self::open(listen).map_err(|error| ListenError { listen: listen.clone(), error, host: "the server's host" })
    }

    /// Opens the sockets. Needs the runtime.
    ///
    /// # Errors
    /// If the first address cannot be used, or the port is in use on a later one.
    fn open(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Unix(path) => {
                let sockets = vec![bind_unix(path)?];
                Ok(Self { sockets, listen: listen.clone() })
            }
            Listen::Port { protocol, bind, port } => {
                let mut tried = 1;
                loop {
                    match bind_ports(*protocol, *bind, *port) {
                        Err(error) if *port == 0 && tried < PORTS_TRIED && error.kind() == io::ErrorKind::AddrInUse => {
                            tried += 1;
                        }
                        bound => {
                            let (sockets, port) = bound?;
                            return Ok(Self {
                                sockets,
                                listen: Listen::Port { protocol: *protocol, bind: *bind, port },
                            });
                        }
                    }
                }
            }
        }
    }

    /// The first address that it listens on; none for a UNIX socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.sockets.first()? {
            BoundSocket::Tcp(socket) => socket.local_addr().ok(),
            BoundSocket::Udp(socket) => socket.local_addr().ok(),
            BoundSocket::Unix(..) => None,
        }
    }

    /// Accepts connections and takes packets until the task set is dropped. Connections that are
    /// accepted go on then.
    pub fn serve(self, way: &Arc<Way>, tasks: &mut JoinSet<()>) {
        for socket in self.sockets {
            let way = Arc::clone(way);
            match socket {
                BoundSocket::Tcp(listener) => {
                    let places = Arc::clone(&way.places);
                    let accept = move |socket, permit, origin| {
                        let way = Arc::clone(&way);
                        tokio::spawn(async move { way.forward(socket, Some(origin), permit).await });
                    };
                    tasks.spawn(accept_tcp(listener, places, accept));
                }
                BoundSocket::Unix(listener, path) => {
                    tasks.spawn(accept_unix(listener, path, way));
                }
                BoundSocket::Udp(socket) => {
                    tasks.spawn(forward_packets(Arc::new(socket), way));
                }
            }
        }
    }

    /// Its sockets, if it is UDP.
    pub fn into_udp(self) -> impl Iterator<Item = UdpSocket> {
        self.sockets.into_iter().filter_map(|socket| match socket {
            BoundSocket::Udp(socket) => Some(socket),
            BoundSocket::Tcp(_) | BoundSocket::Unix(..) => None,
        })
    }

    /// Like [`serve`](Self::serve), for TCP only, with another act for each connection. The act gets
    /// the permit of the connection and the address that it comes from.
    pub fn serve_with(
        self,
        places: &Arc<Semaphore>,
        act: impl Fn(Socket, OwnedSemaphorePermit, SocketAddr) + Clone + Send + 'static,
        tasks: &mut JoinSet<()>,
    ) {
        for socket in self.sockets {
            if let BoundSocket::Tcp(listener) = socket {
                tasks.spawn(accept_tcp(listener, Arc::clone(places), act.clone()));
            }
        }
    }
}

/// The message for an error of [`Bound::open`], with what to do. `host` is that of the listener, in words.
fn cannot_listen(listen: &Listen, error: &io::Error, host: &str) -> String {
    let advice = match (error.kind(), listen) {
        (io::ErrorKind::AddrInUse, Listen::Port { .. }) => {
            // A port of the far host may be a published one, which is that of the program and not any.
            let any = if host == THIS_HOST { ", or 0 for any" } else { "" };
            format!("another program of {host} has this port: choose another one{any}")
        }
        (io::ErrorKind::AddrInUse, Listen::Unix(_)) => {
            format!("{host} has a file or the socket of another program there: choose another path")
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            format!("{host} does not have this address; `ip address` there lists those that it has")
        }
        (io::ErrorKind::PermissionDenied, Listen::Port { port: 1..FREE_PORT_MIN, .. }) => {
            "ports below 1024 need a privilege: choose a higher port".to_owned()
        }
        (io::ErrorKind::NotFound, Listen::Unix(_)) => format!("{host} has no such folder"),
        _ => return format!("cannot listen on {listen}: {error}"),
    };
    format!("cannot listen on {listen}: {error} ({advice})")
}

fn bind_ports(protocol: Protocol, bind: Bind, port: u16) -> io::Result<(Vec<BoundSocket>, u16)> {
    let (mut sockets, mut chosen) = (Vec::new(), port);
    for mut address in bind.addresses(port) {
        address.set_port(chosen);
        match bind_port(protocol, address) {
            Ok((socket, port)) => {
                chosen = port;
                sockets.push(socket);
            }
            // A host without the other address family.
            Err(error) if !sockets.is_empty() && error.kind() != io::ErrorKind::AddrInUse => {
                tracing::info!(%address, %error, "not listening");
            }
            Err(error) => return Err(error),
        }
    }
    Ok((sockets, chosen))
}

#[expect(clippy::disallowed_methods, reason = "a forwarded port is the kernel's")]
fn bind_port(protocol: Protocol, address: SocketAddr) -> io::Result<(BoundSocket, u16)> {
    let ty = if protocol == Protocol::Tcp { Type::STREAM } else { Type::DGRAM };
    let socket = RawSocket::new(Domain::for_address(address), ty, None)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if protocol == Protocol::Udp {
        socket.bind(&address.into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        let port = socket.local_addr()?.port();
        return Ok((BoundSocket::Udp(socket), port));
    }
    // Connections of an earlier run may be in TIME-WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into())?;
    let port = listener.local_addr()?.port();
    Ok((BoundSocket::Tcp(listener), port))
}

/// Only this user may connect, as with ssh. The path of a program that has ended is replaced.
#[expect(clippy::disallowed_methods, reason = "a forwarded socket is the kernel's")]
fn bind_unix(path: &UnixPath) -> io::Result<BoundSocket> {
    let path = path.as_path();
    let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Linux gives the path the mode of its socket.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let address = SockAddr::unix(path)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    socket.listen(BACKLOG)?;
    let own = OwnPath(path.to_owned());
    Ok(BoundSocket::Unix(UnixListener::from_std(socket.into())?, own))
}

/// Whether it is the path of a socket that no program listens on.
#[expect(clippy::disallowed_methods, reason = "a forwarded socket is the kernel's")]
fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && std::os::unix::net::UnixStream::connect(path).err().is_some_and(refuses)
}

/// Accepts connections while there are places for them. Those that wait are the kernel's.
async fn accept_tcp(
    listener: TcpListener,
    places: Arc<Semaphore>,
    act: impl Fn(Socket, OwnedSemaphorePermit, SocketAddr),
) {
    loop {
        let Ok(permit) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, origin)) => act(Socket::tcp(stream), permit, origin),
            Err(error) => pause(&error).await,
        }
    }
}

async fn accept_unix(listener: UnixListener, _path: OwnPath, way: Arc<Way>) {
    loop {
        let Ok(permit) = Arc::clone(&way.places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let way = Arc::clone(&way);
                tokio::spawn(async move { way.forward(Socket::unix(stream), None, permit).await });
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "a connection cannot be accepted");
    tokio::time::sleep(ERROR_PAUSE).await;
}

impl Way {
    /// Carries a connection to the other end.
    async fn forward(&self, socket: Socket, origin: Option<SocketAddr>, _permit: OwnedSemaphorePermit) {
        let from = origin.map_or_else(|| "a local program".to_owned(), |origin| origin.to_string());
        let label = self.events.label(&from, &self.shown);
        let session = match self.sessions.get().await {
            Ok(session) => session,
            Err(why) => return self.events.refused(&label, "not_connected", &why.to_string()),
        };
        let streams = match session.open(&(self.request)(origin)).await {
            Ok(streams) => streams,
            Err(error) => return self.events.refused(&label, "not_opened", &error.to_string()),
        };
        let carried = Carried::default();
        let result = carry(socket, streams, &carried, Answer::Awaited(&|| self.events.opened(&label))).await;
        match &result {
            Err(Broken::Refused(failure)) => {
                self.events.refused(&label, failure.reason.name(), &failure.to_string());
            }
            result => self.events.closed(&label, &carried, result),
        }
    }
}
