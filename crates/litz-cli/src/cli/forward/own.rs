//! Connections that this process makes itself, for programs.

use std::net::IpAddr;
use std::sync::Arc;

use forward::address::{HostName, Target};
use forward::message::{Failure, Message, Reason};
use forwarding::frames;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use forwarding::session::{CONNECTIONS_MAX, Streams};
use forwarding::sessions::Sessions;

/// The connection to the server, and places for what it carries.
pub(super) struct Own {
    pub(super) sessions: Sessions,
    pub(super) places: Arc<Semaphore>,
}

impl Own {
    /// A place for a connection.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Asks the far host for a connection.
    pub(super) async fn open(&self, target: Target) -> Result<Streams, Failure> {
        let (send, mut recv) = self.request(&Message::Open { target }).await?;
        frames::answer(&mut recv).await?;
        Ok((send, recv))
    }

    /// Asks the far host for the addresses of a name: at least one.
    pub(super) async fn look_up(&self, name: HostName) -> Result<Vec<IpAddr>, Failure> {
        let (mut send, mut recv) = self.request(&Message::LookUp { name }).await?;
        let found = frames::addresses(&mut recv).await;
        // It fails only if the connection has ended.
        let _over = send.finish();
        found
    }

    async fn request(&self, request: &Message) -> Result<Streams, Failure> {
        let unreachable = |detail: &str| Failure::new(Reason::NetworkUnreachable, detail);
        let session = self.sessions.get().await.map_err(|why| unreachable(&why.to_string()))?;
        session.open(request).await.map_err(|error| unreachable(&error.to_string()))
    }

    /// Waits until no connection is carried.
    pub(super) async fn finished(&self) {
        let _all = self.places.acquire_many(CONNECTIONS_MAX as u32).await;
    }
}
