//! Connections of programs, each carried by one of the stack.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use forward::address::Address;
use forward::socks::{MESSAGE_LEN_MAX, Reply, Request, put_reply};
use forwarding::carry::{Carried, Local, carry_between};
use forwarding::events::{Events, Label};
use forwarding::handshakes::{Handshake, Handshakes};
use forwarding::socket::Socket;
use forwarding::socks::{negotiate, refuse};
use litz::tcp::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tunnel_end::terminate::local::StackConnection;

use super::network::Network;
use super::udp;
use crate::cli::forward::report::Report;

/// What all connections share.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) network: Arc<Network>,
    pub(super) report: Arc<Report>,
    /// A permit for each connection and flow.
    pub(super) places: Arc<Semaphore>,
    pub(super) handshakes: Arc<Handshakes>,
}

impl Front {
    /// Serves a client of the SOCKS proxy.
    pub(super) fn serve_proxy(&self, socket: Socket, permit: OwnedSemaphorePermit, origin: SocketAddr) {
        let front = self.clone();
        tokio::spawn(async move {
            if let Err(error) = front.serve(socket, origin).await {
                tracing::info!(%origin, %error, "a client of the SOCKS proxy");
            }
            drop(permit);
        });
    }

    async fn serve(&self, socket: Socket, origin: SocketAddr) -> io::Result<()> {
        let mut early = BytesMut::with_capacity(MESSAGE_LEN_MAX);
        let handshake = self.handshakes.begin();
        match negotiate(socket, &mut early, &handshake).await? {
            (socket, Request::Connect(target)) => self.answer(socket, origin, &target, early, handshake).await,
            (socket, Request::Associate) => {
                drop(handshake);
                udp::relay(self, socket, origin).await
            }
            (socket, Request::Unsupported) => refuse(socket, Reply::UnsupportedCommand).await,
        }
    }

    /// Connects to `target`, answers, and carries the connection. `early` is what the client sent after its
    /// request.
    async fn answer(
        &self,
        socket: Socket,
        origin: SocketAddr,
        target: &Address,
        early: BytesMut,
        handshake: Handshake,
    ) -> io::Result<()> {
        let label = self.report.label(&origin, target);
        let connected = tokio::select! {
            connected = self.network.connect(target) => connected,
            // The client does not want it any more.
            error = socket.failed() => return Err(error),
            () = handshake.ended() => return refuse(socket, Reply::Failed).await,
        };
        match connected {
            Ok(stream) => {
                let mut reply = Vec::new();
                put_reply(Reply::Succeeded, stream.local_addr(), &mut reply);
                socket.write_all(&reply).await?;
                drop(handshake);
                let carried = Carried::default();
                if !early.is_empty() {
                    carried.sent.fetch_add(early.len() as u64, std::sync::atomic::Ordering::Relaxed);
                    stream.write_chunk_async(early.freeze()).await.map_err(io::Error::other)?;
                }
                self.carry(&label, socket, stream, &carried).await;
                Ok(())
            }
            Err(failure) => {
                self.report.refused(&label, failure.reason.name(), &failure.to_string());
                refuse(socket, failure.reason.into()).await
            }
        }
    }

    /// Serves a connection of a forwarded port.
    pub(super) fn serve_target(
        &self,
        socket: Socket,
        permit: OwnedSemaphorePermit,
        origin: SocketAddr,
        target: Address,
    ) {
        let front = self.clone();
        tokio::spawn(async move {
            let label = front.report.label(&origin, &target);
            let connected = tokio::select! {
                connected = front.network.connect(&target) => connected,
                // The program does not want it any more.
                _ = socket.failed() => return,
            };
            match connected {
                Ok(stream) => front.carry(&label, socket, stream, &Carried::default()).await,
                // Dropping the socket resets it.
                Err(failure) => front.report.refused(&label, failure.reason.name(), &failure.to_string()),
            }
            drop(permit);
        });
    }

    async fn carry(&self, label: &Label, socket: Socket, stream: TcpStream, carried: &Carried) {
        self.report.opened(label);
        let result = carry_between(socket, StackConnection::new(stream), carried).await;
        self.report.closed(label, carried, &result);
    }
}
