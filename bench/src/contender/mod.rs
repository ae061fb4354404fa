//! The contenders: the same tests with each library, configured alike.

mod blaster;
mod litz;
#[cfg(feature = "quiche")]
mod quiche;
mod quinn_family;
#[cfg(feature = "s2n-quic")]
mod s2n_quic;
mod tcp;
mod tcp_tls;
mod udp;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::work::{Figures, Job, Test};
use blaster::Protection;
use litz::Litz;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// Litz driven by the caller's thread: one thread per side
    LitzInline,
    /// The same, busy polling for as long as a round trip may take
    LitzPolling,
    /// Litz with its engine thread: two threads per side
    LitzThread,
    /// The upper limit: copy, seal, GSO; GRO, open, copy; nothing else
    Blaster,
    /// The same without a cipher
    BlasterClear,
    /// A raw UDP socket, one datagram at a time
    Udp,
    /// Kernel TCP without encryption
    Tcp,
    /// Kernel TCP with TLS 1.3
    TcpTls,
    /// quinn on a current-thread runtime: one thread per side
    Quinn,
    /// noq, quinn's fork, in the same way
    #[cfg(feature = "noq")]
    Noq,
    /// s2n-quic on a current-thread runtime: one thread per side
    #[cfg(feature = "s2n-quic")]
    S2nQuic,
    /// quiche in a plain loop with GSO and GRO: one thread per side
    #[cfg(feature = "quiche")]
    Quiche,
}

impl Name {
    /// Whether it takes part in `test`.
    pub fn does(self, test: Test) -> bool {
        match self {
            Self::LitzInline => test != Test::File,
            Self::LitzPolling => test == Test::RequestResponse,
            // Its placement.
            Self::LitzThread => test != Test::KeyUpdate,
            Self::Quinn => !matches!(test, Test::IdleParked | Test::File | Test::KeyUpdate),
            Self::Blaster | Self::BlasterClear | Self::Tcp | Self::TcpTls => test == Test::Bulk,
            Self::Udp => test == Test::RequestResponse,
            #[cfg(feature = "noq")]
            Self::Noq => !matches!(test, Test::IdleParked | Test::File | Test::KeyUpdate),
            #[cfg(feature = "s2n-quic")]
            Self::S2nQuic => !matches!(test, Test::Idle | Test::IdleParked | Test::File | Test::KeyUpdate),
            #[cfg(feature = "quiche")]
            Self::Quiche => matches!(test, Test::Bulk | Test::RequestResponse),
        }
    }
}

/// A contender's error, with its own message.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server that runs in the background of this process.
pub trait Server {
    /// Its address.
    fn address(&self) -> SocketAddr;
    /// The figures measured so far.
    fn figures(&self) -> Figures;
}

/// A server whose thread writes its figures to shared memory.
struct Background {
    address: SocketAddr,
    figures: Arc<Mutex<Figures>>,
}

impl Server for Background {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn figures(&self) -> Figures {
        self.figures.lock().map(|figures| figures.clone()).unwrap_or_default()
    }
}

/// Starts a server.
pub fn server(name: Name, job: &Job, listen: SocketAddr) -> Result<Box<dyn Server>, Failure> {
    match name {
        Name::LitzInline => litz::server(Litz::INLINE, job, listen),
        Name::LitzPolling => litz::server(Litz::POLLING, job, listen),
        Name::LitzThread => litz::server(Litz::THREAD, job, listen),
        Name::Blaster => blaster::server(Protection::Aes128Gcm, job, listen),
        Name::BlasterClear => blaster::server(Protection::Clear, job, listen),
        Name::Udp => udp::server(listen),
        Name::Tcp => tcp::server(job, listen),
        Name::TcpTls => tcp_tls::server(job, listen),
        Name::Quinn => quinn_family::quinn::server(job, listen),
        #[cfg(feature = "noq")]
        Name::Noq => quinn_family::noq::server(job, listen),
        #[cfg(feature = "s2n-quic")]
        Name::S2nQuic => s2n_quic::server(job, listen),
        #[cfg(feature = "quiche")]
        Name::Quiche => quiche::server(job, listen),
    }
}

/// Runs the test against a server of the same contender.
pub fn drive(name: Name, job: &Job, remote: SocketAddr) -> Result<Figures, Failure> {
    match name {
        Name::LitzInline => litz::drive(Litz::INLINE, job, remote),
        Name::LitzPolling => litz::drive(Litz::POLLING, job, remote),
        Name::LitzThread => litz::drive(Litz::THREAD, job, remote),
        Name::Blaster => blaster::drive(Protection::Aes128Gcm, job, remote),
        Name::BlasterClear => blaster::drive(Protection::Clear, job, remote),
        Name::Udp => udp::drive(job, remote),
        Name::Tcp => tcp::drive(job, remote),
        Name::TcpTls => tcp_tls::drive(job, remote),
        Name::Quinn => quinn_family::quinn::drive(job, remote),
        #[cfg(feature = "noq")]
        Name::Noq => quinn_family::noq::drive(job, remote),
        #[cfg(feature = "s2n-quic")]
        Name::S2nQuic => s2n_quic::drive(job, remote),
        #[cfg(feature = "quiche")]
        Name::Quiche => quiche::drive(job, remote),
    }
}
