//! A UDP relay: datagrams between clients and a server on one machine, through emulated links.
//!
//! ```text
//!   client ──▶ front socket ──▶ forward link ──▶ one socket per client ──▶ server
//!          ◀──              ◀── backward link ◀──                     ◀──
//! ```
//!
//! Each link has its own thread and front socket. Each client has its own port towards the server,
//! as behind a NAT. ECN marks are preserved.

mod batch;
mod clients;
mod link_io;

use std::net::SocketAddr;

use net::{DatagramSocket, MonotonicClock, UdpSocket, UdpSocketOptions};
use netem::{Change, LinkConfig};
use units::Rng;

use super::error::StartError;
use super::report::LinkReport;
use super::running::{Direction, Ended, Running};
use super::worker::ChangeError;
use crate::worker::{LINKS_MAX, Worker};
use link_io::RelayIo;

pub use clients::CLIENTS_MAX;

/// One link of a relay.
#[derive(Clone, Debug)]
pub struct RelayLink {
    /// Name in reports.
    pub name: String,
    /// Address for clients; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address of the server. `None` until [`Relay::set_server`]; datagrams that arrive earlier are
    /// dropped.
    pub server: Option<SocketAddr>,
    /// Model towards the server. Packets are UDP payloads; the headers of a real link are accounted
    /// for by [`LinkConfig::overhead_bytes`].
    pub forward: LinkConfig,
    /// Model towards the clients.
    pub backward: LinkConfig,
}

/// Running links. Dropping it stops them.
#[derive(Debug)]
pub struct Relay {
    running: Running,
    local_addrs: Vec<SocketAddr>,
}

impl Relay {
    /// Opens the front sockets and starts the emulation. The same `seed` and the same datagrams at
    /// the same times meet the same faults.
    ///
    /// # Errors
    /// Returns a [`StartError`] for invalid settings, or if an address cannot be bound.
    pub fn start(links: Vec<RelayLink>, seed: u64) -> Result<Self, StartError> {
        if links.len() > LINKS_MAX {
            return Err(StartError::new(format!("{} links: at most {LINKS_MAX} can run simultaneously", links.len())));
        }
        let clock = MonotonicClock::start();
        let root = Rng::from_seed(seed);
        let mut local_addrs = Vec::with_capacity(links.len());
        let mut link_ios = Vec::with_capacity(links.len());
        for (index, link) in links.into_iter().enumerate() {
            let what = || format!("link {}", link.name);
            for config in [&link.forward, &link.backward] {
                config.validate().map_err(|error| StartError::with_source(what(), error))?;
            }
            let front = UdpSocket::open(&UdpSocketOptions::new(link.listen))
                .map_err(|error| StartError::with_source(what(), error))?;
            local_addrs.push(front.local_addr().map_err(|error| StartError::with_source(what(), error))?);
            link_ios.push(RelayIo::new(link, front, &root.split(&format!("link {index}"))));
        }
        let workers = link_ios
            .into_iter()
            .map(|link_io| {
                let what = format!("link {}", link_io.name());
                Worker::start(clock, link_io).map_err(|error| StartError::with_source(what, error))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { running: Running::new(workers), local_addrs })
    }

    /// Returns the address for clients of a link. Links count from zero.
    ///
    /// # Panics
    /// Panics if there is no such link.
    #[must_use]
    pub fn local_addr(&self, link: usize) -> SocketAddr {
        self.local_addrs[link]
    }

    /// Sets the server's address of a link. Datagrams from other sources are dropped.
    ///
    /// # Errors
    /// Fails if there is no such link.
    pub fn set_server(&self, link: usize, server: SocketAddr) -> Result<(), ChangeError> {
        self.running.worker(link)?.set_server(server)
    }

    /// Returns the running links, to [change](Running::change), [cut](Running::cut) or
    /// [restore](Running::restore).
    #[must_use]
    pub const fn running(&self) -> &Running {
        &self.running
    }

    /// Returns the running links without their addresses.
    #[must_use]
    pub fn into_running(self) -> Running {
        self.running
    }

    /// See [`Running::change`].
    ///
    /// # Errors
    /// Same errors as there.
    pub fn change(&self, link: usize, direction: Direction, change: Change) -> Result<(), ChangeError> {
        self.running.change(link, direction, change)
    }

    /// See [`Running::stats`].
    #[must_use]
    pub fn stats(&self) -> Vec<LinkReport> {
        self.running.stats()
    }

    /// See [`Running::stop`].
    #[must_use]
    pub fn stop(self) -> Ended {
        self.running.stop()
    }
}
