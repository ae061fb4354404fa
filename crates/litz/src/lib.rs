//! One connection over every link and every core, each strand encrypted.
//!
//! An [`Endpoint`] owns sockets and runs connections on them; a [`Connection`] is QUIC v1 (RFC 9000) with TLS 1.3; its
//! [`SendStream`]s and [`RecvStream`]s are [`std::io::Write`] and [`std::io::Read`], and tokio's `AsyncWrite` and `AsyncRead`.
//! Every call that may wait has a blocking form and one that ends in `_async`; the latter run on any executor.
//!
//! # Hosts are known by their keys
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
//! let server = Endpoint::bind(EndpointConfig {
//!     server_tls: Some(identity::server_config(&server_key)?),
//!     ..EndpointConfig::loopback()
//! })?;
//! let address = server.local_addr();
//! let serving = std::thread::spawn(move || -> std::io::Result<()> {
//!     let connection = server.accept()?;
//!     let (mut answer, mut question) = connection.accept_bi()?;
//!     let mut words = String::new();
//!     question.read_to_string(&mut words)?;
//!     answer.write_all(words.to_uppercase().as_bytes())?;
//!     answer.finish()?;
//!     // Closing a connection throws away what is under way: wait until the peer has it.
//!     answer.wait_finished()?;
//!     Ok(())
//! });
//!
//! let client = Endpoint::bind(EndpointConfig::loopback())?;
//! let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()])?;
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
//! A message is sent with one call and taken whole with one call; the two sides run on in between. Messages overtake each
//! other, because none waits for a lost packet of another.
//!
//! ```
//! # use litz::identity::{self, KeyPair};
//! # use litz::{Endpoint, EndpointConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
//! # let server_tls = Some(identity::server_config(&server_key)?);
//! # let server = Endpoint::bind(EndpointConfig { server_tls, ..EndpointConfig::loopback() })?;
//! # let client = Endpoint::bind(EndpointConfig::loopback())?;
//! # let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()])?;
//! let ours = client.connect(server.local_addr(), "litz", tls.config.clone())?;
//! let theirs = server.accept()?;
//! for number in 0..3_u8 {
//!     ours.send_message(vec![number; 1000].into())?;
//! }
//! let mut firsts: Vec<u8> = (0..3).map(|_| theirs.get_message().map(|whole| whole[0])).collect::<Result<_, _>>()?;
//! firsts.sort();
//! assert_eq!(firsts, [0, 1, 2]);
//! # Ok(())
//! # }
//! ```
//!
//! # Classes of service
//!
//! Streams, messages and connections that share hosts and links need not be equal. A [`Class`] gives a message or a stream a
//! priority, a rate with a burst, and the paths it may take; a connection has a rate, a priority among those of its processor, and
//! with [`Placement::Connection`] a processor of its own choice ([`ConnectOptions`]). Nothing of this is on the wire: each side
//! chooses for what it sends.
//!
//! ```
//! # use litz::units::Rate;
//! # use litz::{Class, Endpoint, EndpointConfig, RateLimit, identity};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (server_key, client_key) = (identity::KeyPair::generate()?, identity::KeyPair::generate()?);
//! # let server_tls = Some(identity::server_config(&server_key)?);
//! # let server = Endpoint::bind(EndpointConfig { server_tls, ..EndpointConfig::loopback() })?;
//! # let client = Endpoint::bind(EndpointConfig::loopback())?;
//! # let tls = identity::client_config(&client_key, &[server_key.public().fingerprint()])?;
//! let ours = client.connect(server.local_addr(), "litz", tls.config.clone())?;
//! let theirs = server.accept()?;
//! // A bulk transfer that leaves room, and messages that go before it.
//! let mut bulk = ours.open_bi()?.0;
//! bulk.set_rate(Some(RateLimit::at(Rate::from_mbps(200))?));
//! bulk.set_priority(-1);
//! bulk.write_chunk(vec![0; 1 << 20].into())?;
//! ours.send_message_as(vec![7; 200].into(), &Class::of_priority(1))?;
//! assert_eq!(theirs.get_message()?.len(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # Without a thread
//!
//! [`Placement`] says which processor runs the protocol. By default an endpoint has one thread. With
//! [`Placement::Inline`] it has none: the application's threads run the protocol inside their own calls.
//!
//! # What is where
//!
//! | item | what it holds |
//! |---|---|
//! | [`Endpoint`], [`EndpointConfig`] | sockets, limits, connecting and accepting: start here |
//! | [`Connection`] | streams, datagrams, messages, the end |
//! | [`SendStream`], [`RecvStream`] | bytes |
//! | [`JournalFolder`] | everything that goes into each connection, in files for `litz replay`; its [`source`](JournalFolder::source) is for [`TransportConfig::journal`] |
//! | [`identity`] | keys, tickets, TLS settings without certificates |
//! | [`paths`] | which pairs of addresses a transfer uses |
//! | [`transfer`] | the file protocol of the `litz` command |
#![forbid(unsafe_code)]

mod connection;
mod endpoint;
pub mod identity;
pub mod paths;
mod stream;
pub mod transfer;

pub use connection::Connection;
pub use endpoint::{BindError, ConnectError, Endpoint, EndpointConfig};
pub use engine::{
    AcceptStreamError, Closed, ConnectOptions, Costs, DatagramError, JournalFolder, LAP_MAX, LiveSocket, MessageError,
    OpenError, PROCESSORS_MAX, Placement, PlacementError, ReadError, Readiness, SplitStats, Stage, StageKind,
    StageStats, Traffic, WorkerStats, WriteError,
};
pub use net::{UdpSocket, UdpSocketOptions};
pub use quic::session::ExportError;
pub use quic::{
    AckPolicy, BURST_LEAST, Class, JournalSink, JournalSource, PATH_SET_MAX, PATHS_MAX, PathId, PathSet, PathSetError,
    PathState, PathStats, Policy, RateLimit, RateLimitError, RetransmissionPolicy, Side, Stats, Strategy, StreamId,
    Strip, TraceSink, TransportConfig,
};
pub use stream::{RecvStream, SendStream};
/// Durations, rates and sizes, as [`TransportConfig`] takes them.
pub use units;

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
