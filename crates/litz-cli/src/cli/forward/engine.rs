//! What makes and carries the connections of a program: this process, or the daemon of this host.

use std::net::IpAddr;
use std::sync::Arc;

use forward::address::{HostName, Target};
use forward::message::Failure;
use forwarding::carry::{Answer, Broken, Carried, carry};
use forwarding::session::Streams;
use forwarding::socket::Socket;
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};

use super::daemon::user::{Daemon, Wanted};
use super::own::Own;

pub(super) enum Engine {
    Own(Own),
    Daemon(Arc<Daemon>),
}

/// A connection that is open at the far host, and not carried yet. Dropping it closes it.
pub(super) enum Opened {
    Own(Streams),
    Daemon(Wanted),
}

/// Why there is no connection.
pub(super) enum NotOpened {
    Failed(Failure),
    /// The daemon has ended.
    Lost,
}

/// A place for a connection, until it is dropped.
pub(super) enum Place<'a> {
    Own(#[expect(dead_code, reason = "it is held")] OwnedSemaphorePermit),
    Daemon(#[expect(dead_code, reason = "it is held")] SemaphorePermit<'a>),
}

impl Engine {
    /// Waits for a place.
    pub(super) async fn place(&self) -> Option<Place<'_>> {
        match self {
            Self::Own(own) => own.place().await.map(Place::Own),
            Self::Daemon(daemon) => daemon.place().await.map(Place::Daemon),
        }
    }

    /// Asks for a connection to `target`.
    pub(super) async fn open(&self, target: Target) -> Result<Opened, NotOpened> {
        match self {
            Self::Own(own) => own.open(target).await.map(Opened::Own).map_err(NotOpened::Failed),
            Self::Daemon(daemon) => match daemon.open(target).await {
                Ok(Ok(wanted)) => Ok(Opened::Daemon(wanted)),
                Ok(Err(failure)) => Err(NotOpened::Failed(failure)),
                Err(_ended) => Err(NotOpened::Lost),
            },
        }
    }

    /// Asks for the addresses of a name: at least one.
    pub(super) async fn look_up(&self, name: HostName) -> Result<Vec<IpAddr>, NotOpened> {
        match self {
            Self::Own(own) => own.look_up(name).await.map_err(NotOpened::Failed),
            Self::Daemon(daemon) => match daemon.look_up(name).await {
                Ok(found) => found.map_err(NotOpened::Failed),
                Err(_ended) => Err(NotOpened::Lost),
            },
        }
    }

    /// Waits until no connection is carried.
    pub(super) async fn finished(&self) {
        match self {
            Self::Own(own) => own.finished().await,
            Self::Daemon(daemon) => daemon.finished().await,
        }
    }
}

impl Opened {
    /// Carries the data of a socket of this host until both directions have ended.
    pub(super) async fn carry(self, socket: Socket, carried: &Carried) -> Result<(), Broken> {
        match self {
            Self::Own(streams) => carry(socket, streams, carried, Answer::Given).await,
            Self::Daemon(wanted) => wanted.carry(socket, carried).await,
        }
    }
}
