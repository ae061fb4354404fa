//! Litz is a multipath QUIC transport: one connection uses several network interfaces and several
//! cores.
//!
//! An [`Endpoint`] owns sockets and runs connections on them; a [`Connection`] is QUIC v1 (RFC
//! 9000) or v2 (RFC 9369) with TLS 1.3; its [`SendStream`]s and [`RecvStream`]s are
//! [`std::io::Write`] and [`std::io::Read`]. Every call that may wait has a blocking form and one
//! whose name ends in `_async`; the latter runs on any executor.
//!
//! # Connecting
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use litz::identity::{self, KeyPair};
//! use litz::{Endpoint, EndpointConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Each host has a key pair; the client knows the fingerprint of the server's key.
//! let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
//! let server_tls = identity::server_config(&server_key, ["echo/1"])?;
//! let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
//! let address = server.local_addr();
//! let serving = std::thread::spawn(move || -> std::io::Result<()> {
//!     let connection = server.accept()?;
//!     let (mut answer, mut question) = connection.accept_bi()?;
//!     let mut words = String::new();
//!     question.read_to_string(&mut words)?;
//!     answer.write_all(words.to_uppercase().as_bytes())?;
//!     answer.finish()?;
//!     // Dropping the connection discards data in flight: wait until the peer has everything.
//!     answer.wait_finished()?;
//!     Ok(())
//! });
//!
//! let client = Endpoint::bind(EndpointConfig::loopback())?;
//! let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()], ["echo/1"])?;
//! let connection = client.connect(address, "litz", tls.config.clone())?;
//! let (mut question, mut answer) = connection.open_bi()?;
//! question.write_all(b"how fast?")?;
//! question.finish()?;
//! let mut words = String::new();
//! answer.read_to_string(&mut words)?;
//! assert_eq!(words, "HOW FAST?");
//! # serving.join().expect("the server does not panic")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Messages
//!
//! A message is sent with one call and received complete with one call. Messages may arrive in
//! another order, because none waits for a lost packet of another.
//!
//! ```
//! # use litz::identity::{self, KeyPair};
//! # use litz::{Endpoint, EndpointConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
//! # let server_tls = identity::server_config(&server_key, ["echo/1"])?;
//! # let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
//! # let client = Endpoint::bind(EndpointConfig::loopback())?;
//! # let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()], ["echo/1"])?;
//! let ours = client.connect(server.local_addr(), "litz", tls.config.clone())?;
//! let theirs = server.accept()?;
//! for number in 0..3_u8 {
//!     ours.send_message(vec![number; 1000].into())?;
//! }
//! let mut firsts: Vec<u8> = (0..3).map(|_| theirs.recv_message().map(|whole| whole[0])).collect::<Result<_, _>>()?;
//! firsts.sort();
//! assert_eq!(firsts, [0, 1, 2]);
//! # Ok(())
//! # }
//! ```
//!
//! # Classes of service
//!
//! A [`Class`] gives a message or a stream a priority, a rate limit with a burst, and a set of
//! paths that it may use. A connection has a rate limit and a priority among the connections of its
//! processor; with [`Placement::Connection`] it can choose its processor ([`ConnectOptions`]).
//! Classes are not sent to the peer: each side sets them for its own data.
//!
//! ```
//! # use litz::units::Rate;
//! # use litz::{Class, Endpoint, EndpointConfig, RateLimit, identity};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server_key, client_key) = (identity::KeyPair::generate()?, identity::KeyPair::generate()?);
//! # let server_tls = identity::server_config(&server_key, ["echo/1"])?;
//! # let server = Endpoint::bind(EndpointConfig::loopback().with_server_tls(server_tls))?;
//! # let client = Endpoint::bind(EndpointConfig::loopback())?;
//! # let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()], ["echo/1"])?;
//! let ours = client.connect(server.local_addr(), "litz", tls.config.clone())?;
//! let theirs = server.accept()?;
//! // A bulk transfer with a rate limit, and messages that are sent before it.
//! let mut bulk = ours.open_bi()?.0;
//! bulk.set_rate(Some(RateLimit::at(Rate::from_mbps(200))?));
//! bulk.set_priority(-1);
//! bulk.write_chunk(vec![0; 1 << 20].into())?;
//! ours.send_message_as(vec![7; 200].into(), &Class::of_priority(1))?;
//! assert_eq!(theirs.recv_message()?.len(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # Several paths
//!
//! A connection uses one path for each pair of sockets and addresses. Both sides must allow several
//! paths ([`TransportConfig::max_paths`]). The side that connected requests them, and
//! [`Connection::next_path_event`] reports the outcome of each request.
//!
//! ```
//! # use litz::identity::{self, KeyPair};
//! # use litz::{Endpoint, EndpointConfig, PathEvent, TransportConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
//! # let server_tls = identity::server_config(&server_key, ["echo/1"])?;
//! # let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()], ["echo/1"])?;
//! let transport = TransportConfig::default().with_max_paths(2);
//! let config = EndpointConfig::loopback().with_transport(transport);
//! let server = Endpoint::bind(config.clone().with_server_tls(server_tls))?;
//! let client = Endpoint::bind(config)?;
//! let ours = client.connect(server.local_addr(), "litz", tls.config.clone())?;
//! let theirs = server.accept()?;
//! for _ in 0..2 {
//!     ours.open_path(0, server.local_addr(), false)?;
//! }
//! let refused = loop {
//!     match ours.next_path_event()? {
//!         PathEvent::Opened { path, .. } => assert_eq!(path.0, 1),
//!         PathEvent::Refused { error, .. } => break error,
//!         _ => {}
//!     }
//! };
//! assert_eq!(refused, litz::OpenPathError::TooMany);
//! # drop(theirs);
//! # Ok(())
//! # }
//! ```
//!
//! # Without a thread
//!
//! [`Placement`] selects the threads that run the protocol. By default an endpoint has one thread.
//! With [`Placement::Inline`] it has none: the application's threads run the protocol inside their
//! own calls.
//!
//! # Overview
//!
//! | item | contents |
//! |---|---|
//! | [`Endpoint`], [`EndpointConfig`] | sockets, limits, connecting and accepting: start here |
//! | [`Connection`] | streams, datagrams, messages, closing |
//! | [`SendStream`], [`RecvStream`] | ordered bytes |
//! | [`JournalFolder`] | records of all inputs of each connection, in files for `litz replay`; its [`source`](JournalFolder::source) is for [`TransportConfig::journal`] |
//! | [`identity`] | host keys, TLS settings without certificates |
//! | [`paths`] | the choice of the address pairs that a connection uses |
//! | `daemon`, with the feature `daemon` | connections through `litz daemon`, over memory that is shared with it |
//! | `transfer`, with the feature `transfer` | trees of files over one connection, resumable and verified |
//! | `tcp`, with the feature `tcp` | TCP/IP in user space, on TUN and TAP devices and Ethernet interfaces |
//!
//! # Features
//!
//! No feature is enabled by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | tokio's `AsyncWrite` and `AsyncRead` for streams. Calls whose names end in `_async` do not need it |
//! | `tcp` | the module `tcp`, and with it the historical ciphers of its layers |
//! | `daemon` | the module `daemon` |
//! | `transfer` | the module `transfer` |
//!
//! Complete programs are in `examples/`: `echo`, `messages`, `datagrams`, `tokio` and `multipath`.
//! The `litz` command is in the package `litz-cli`.
#![forbid(unsafe_code)]

#[cfg(feature = "daemon")]
pub mod daemon;

#[doc(inline)]
pub use quic_endpoint::{
    AcceptStreamError, AckPolicy, Activity, ActivityKind, AddressValidation, Addresses, Algorithm, BURST_MIN,
    BindError, Class, Closed, CongestionSnapshot, ConnectError, ConnectOptions, Connection, ConnectionId, Costs,
    DatagramError, DatagramPaths, EcnState, Endpoint, EndpointConfig, ErrorCode, EventHandler, ExportError, Incoming,
    Interface, InterfaceAddress, JournalFolder, JournalSink, JournalSource, LAP_MAX, LiveSocket, MessageError,
    MigrateError, OpenError, OpenPathError, PATH_SET_MAX, PATHS_MAX, PROCESSORS_MAX, PathEvent, PathId, PathSet,
    PathSetError, PathState, PathStats, PathWait, Placement, PlacementError, Policy, RateCap, RateLimit,
    RateLimitError, ReadError, Readiness, ReceiveStats, ReceiveWorkerStats, ReceivedDatagram, RecvStream,
    ReplaceableSocket, RetransmissionPolicy, RetryError, SendStats, SendStream, SessionSummary, Side, SocketOpenError,
    SocketSwitch, StartError, Stats, Strategy, StreamId, StridedBytes, TraceSink, Traffic, TransportConfig,
    TransportError, UdpSocket, UdpSocketOptions, Version, Versions, WorkerPoolStats, WorkerStats, WriteError, identity,
    paths,
};
/// TCP/IP in this process, on TUN and TAP devices and Ethernet interfaces. Requires the feature
/// `tcp`.
#[cfg(feature = "tcp")]
pub use tcp_stack as tcp;
/// File transfers: trees of files over one authenticated connection, resumable and verified.
/// Requires the feature `transfer`.
#[cfg(feature = "transfer")]
pub use transfer;
/// Durations, rates and sizes used by [`TransportConfig`].
pub use units;

/// Code blocks of documents, compiled with the documentation; `tests/documents.rs` asserts that
/// every document is included.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    pub struct Readme;

    #[doc = include_str!("../../../docs/guide/run.md")]
    pub struct GuideOfRun;

    #[doc = include_str!("../../../docs/guide/tcp.md")]
    pub struct GuideOfTcp;
}
