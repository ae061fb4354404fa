//! Answers that a program receives: they come from a socket of this process, and have to come from the name
//! server that the program has asked.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use intercept::Call;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::{SockRef, Type};
use tokio::time::timeout;

use super::Names;
use crate::cli::forward::calls::wait_until_ready;
use crate::cli::forward::packet_calls::{PacketCall, wants_sender};

/// The longest answer that is passed on; a program's buffer is no longer than an answer by UDP.
const LEN_MAX: usize = super::ANSWER_LEN_MAX;

/// A packet: its bytes as far as there is space, its length, and where it comes from.
struct Received {
    bytes: Vec<u8>,
    len: usize,
    sender: Option<SocketAddr>,
}

impl Names {
    /// Whether a program's socket is one that asks: the kernel receives from others.
    pub(in crate::cli::forward) fn may_receive(&self, call: &Call) -> bool {
        self.are_used()
            && wants_sender(call).is_ok_and(|wants| wants)
            && call.descriptor(call.argument(0)).is_ok_and(|socket| self.asks(&socket))
    }

    /// Whether a socket asks: it is connected to one of this process, or has sent with the address of a name server.
    fn asks(&self, socket: &OwnedFd) -> bool {
        let reference = SockRef::from(socket);
        if reference.r#type().ok() != Some(Type::DGRAM) {
            return false;
        }
        match reference.peer_addr() {
            Ok(peer) => peer.as_socket().is_some_and(|peer| self.server_behind(peer).is_some()),
            Err(_) => reference.cookie().is_ok_and(|number| self.has_sent(number)),
        }
    }

    /// Receives in place of the kernel if the program's socket is one that asks.
    pub(in crate::cli::forward) async fn receive(&self, call: Call) {
        let found =
            call.with_caller(|caller| Ok((caller.descriptor(call.argument(0))?, PacketCall::of(&call, caller)?)));
        // The kernel says what is wrong with such a call.
        let Ok((socket, packet)) = found else { return call.let_through() };
        // Errors of the network have a queue of their own.
        if !self.asks(&socket) || packet.flags().contains(RecvFlags::ERRQUEUE) {
            return call.let_through();
        }
        let is_blocking = !packet.flags().contains(RecvFlags::DONTWAIT)
            && rustix::fs::fcntl_getfl(&socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
        let time = SockRef::from(&socket).read_timeout().ok().flatten();
        let waited = receive(&call, socket, &packet, is_blocking);
        let received = match time {
            Some(time) => timeout(time, waited).await.unwrap_or(Err(Errno::AGAIN)),
            None => waited.await,
        };
        let result = received.and_then(|received| self.hand_over(&call, &packet, &received));
        call.answer(result);
    }

    fn hand_over(&self, call: &Call, packet: &PacketCall, received: &Received) -> Result<i64, Errno> {
        let Received { bytes, len, sender } = received;
        // Others may send to a socket that is not connected.
        let sender = sender.map(|sender| self.server_behind(sender).unwrap_or(sender));
        call.with_caller(|caller| packet.hand_over(caller, bytes, *len, sender)).map_err(|_| Errno::FAULT)
    }
}

/// The next packet.
async fn receive(call: &Call, mut socket: OwnedFd, packet: &PacketCall, is_blocking: bool) -> Result<Received, Errno> {
    let mut bytes = vec![0; LEN_MAX.min(usize::try_from(packet.len()).unwrap_or(LEN_MAX))];
    // With its length, also if there is no space for it.
    let flags = packet.flags() | RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    loop {
        match rustix::net::recvfrom(&socket, bytes.as_mut_slice(), flags) {
            Ok((filled, len, sender)) => {
                bytes.truncate(filled);
                let sender = sender.and_then(|sender| SocketAddr::try_from(sender).ok());
                return Ok(Received { bytes, len, sender });
            }
            Err(Errno::AGAIN) if is_blocking => {}
            Err(error) => return Err(error),
        }
        // Also where the signal asks to begin again (SA_RESTART): the kernel alone can do that, and would name
        // another sender.
        if call.has_signal() {
            return Err(Errno::INTR);
        }
        socket = wait_until_ready(socket).await;
    }
}
