//! Datagrams between clients and a server on one machine, through emulated links.
//!
//! ```text
//!   client ──▶ front socket ──▶ forward link ──▶ one socket a client ──▶ server
//!          ◀──              ◀── backward link ◀──                   ◀──
//! ```
//!
//! Each link is a thread with a front socket of its own. To the server, each client has a port of its own, as behind a
//! translating router. ECN marks pass.

mod batch;
mod clients;
mod station;

use std::net::SocketAddr;

use net::{DatagramSocket, MonotonicClock, UdpSocket, UdpSocketOptions};
use netem::{Change, LinkConfig};
use units::Rng;

use crate::worker::Worker;
use crate::{ChangeError, Direction, Ended, LINKS_MAX, LinkReport, Running, StartError};
use station::RelayStation;

pub use clients::CLIENTS_MAX;

/// One link of a relay.
#[derive(Clone, Debug)]
pub struct RelayLink {
    /// What reports call it.
    pub name: String,
    /// Where clients send to; port 0 is any.
    pub listen: SocketAddr,
    /// Where the server listens. `None` until [`Relay::set_server`]: what arrives before is dropped.
    pub server: Option<SocketAddr>,
    /// The model towards the server. Packets are UDP payloads: the headers that a real link would carry with them are
    /// [`LinkConfig::overhead_bytes`].
    pub forward: LinkConfig,
    /// The model towards the clients.
    pub backward: LinkConfig,
}

/// Links that run. Dropping it stops them.
pub struct Relay {
    running: Running,
    local_addrs: Vec<SocketAddr>,
}

impl Relay {
    /// Opens the front sockets and starts to emulate. The same `seed` and the same datagrams at the same times meet the same
    /// faults.
    ///
    /// # Errors
    /// [`StartError`]: settings that describe no link, or an address that cannot be had.
    pub fn start(links: Vec<RelayLink>, seed: u64) -> Result<Self, StartError> {
        if links.len() > LINKS_MAX {
            return Err(StartError::new(format!("{} links: at most {LINKS_MAX} run at a time", links.len())));
        }
        let clock = MonotonicClock::start();
        let root = Rng::from_seed(seed);
        let mut local_addrs = Vec::with_capacity(links.len());
        let mut stations = Vec::with_capacity(links.len());
        for (index, link) in links.into_iter().enumerate() {
            let what = || format!("link {}", link.name);
            for config in [&link.forward, &link.backward] {
                config.validate().map_err(|error| StartError::from(what(), error))?;
            }
            let front = UdpSocket::open(&UdpSocketOptions::new(link.listen))
                .map_err(|error| StartError::from(what(), error))?;
            local_addrs.push(front.local_addr().map_err(|error| StartError::from(what(), error))?);
            stations.push(RelayStation::new(link, front, &root.split(&format!("link {index}"))));
        }
        let workers = stations
            .into_iter()
            .map(|station| {
                let what = format!("link {}", station.name());
                Worker::start(clock, station).map_err(|error| StartError::from(what, error))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { running: Running::new(workers), local_addrs })
    }

    /// Where clients of a link send to. Links count from zero.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn local_addr(&self, link: usize) -> SocketAddr {
        self.local_addrs[link]
    }

    /// Says where the server of a link listens, from now on: what comes from elsewhere is dropped.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn set_server(&self, link: usize, server: SocketAddr) -> Result<(), ChangeError> {
        self.running.worker(link)?.set_server(server)
    }

    /// The links, to [change](Running::change), [cut](Running::cut) or [restore](Running::restore) them.
    #[must_use]
    pub const fn running(&self) -> &Running {
        &self.running
    }

    /// The links without their addresses.
    #[must_use]
    pub fn into_running(self) -> Running {
        self.running
    }

    /// See [`Running::change`].
    ///
    /// # Errors
    /// See there.
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
