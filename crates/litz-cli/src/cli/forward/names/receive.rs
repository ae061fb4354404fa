//! Answers that a program receives: they come from a socket of this process, and have to come from the name
//! server that the program has asked.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use intercept::Call;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::{SockRef, Type};
use tokio::time::timeout;

use super::Names;
use crate::cli::forward::calls::wait_until_ready;
use crate::cli::forward::packet_calls::{self, PacketCall, wants_sender};

/// The longest answer that is passed on; a program's buffer is no longer than an answer by UDP.
const LEN_MAX: usize = super::ANSWER_LEN_MAX;

/// The socket of a program that a call receives from.
struct Source {
    socket: Arc<OwnedFd>,
    is_blocking: bool,
    /// The longest time that it waits for a packet (SO_RCVTIMEO).
    time_max: Option<Duration>,
}

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
        let socket = call.descriptor(call.argument(0));
        // The kernel says what is wrong with such a call.
        let (Ok(socket), Ok(time_max)) = (socket, packet_calls::time_max(&call)) else { return call.let_through() };
        let flags = packet_calls::receive_flags(&call);
        // Errors of the network have a queue of their own.
        if !self.asks(&socket) || flags.contains(RecvFlags::ERRQUEUE) {
            return call.let_through();
        }
        let result = self.receive_all(&call, Source::new(socket, flags), time_max).await;
        call.answer(result);
    }

    /// Receives the packets of a call. Returns what the call does: it fails if the first one fails, and an error of a
    /// later one ends it.
    async fn receive_all(&self, call: &Call, mut source: Source, time_max: Option<Duration>) -> Result<i64, Errno> {
        let end = time_max.map(|time| self.clock.now() + units::Duration::from(time));
        let (mut result, mut time_left) = (Ok(0), None);
        for index in 0..packet_calls::count(call) {
            match self.receive_one(call, &source, index).await {
                Err(error) if index == 0 => return Err(error),
                Err(_) => break,
                Ok(value) => result = Ok(value),
            }
            source.is_blocking &= !packet_calls::waits_for_one(call);
            // Only here, so that a call waits longer if no packet comes: as the kernel has it (recvmmsg(2)).
            time_left = end.map(|end| end.saturating_since(self.clock.now()));
            if time_left.is_some_and(units::Duration::is_zero) {
                break;
            }
        }
        if let Some(left) = time_left
            && packet_calls::tell_time_left(call, left.into()).is_err()
        {
            return Err(Errno::FAULT);
        }
        result
    }

    /// Receives the packet with this index. Returns what the call does if it is the last one.
    async fn receive_one(&self, call: &Call, source: &Source, index: u64) -> Result<i64, Errno> {
        let packet = PacketCall::of(call, index, &|at, buffer| call.read(at, buffer));
        let packet = packet.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::FAULT))?;
        let received = receive(call, &source.socket, &packet, source.is_blocking);
        let Received { bytes, len, sender } = match source.time_max {
            Some(time) => timeout(time, received).await.unwrap_or(Err(Errno::AGAIN)),
            None => received.await,
        }?;
        // Others may send to a socket that is not connected.
        let sender = sender.map(|sender| self.server_behind(sender).unwrap_or(sender));
        let told = call.with_caller(|caller| {
            let len = packet.hand_over(caller, &bytes, len, sender)?;
            packet_calls::finish_packet(call, caller, index, len)
        });
        told.map_err(|_| Errno::FAULT)
    }
}

impl Source {
    fn new(socket: OwnedFd, flags: RecvFlags) -> Self {
        let is_blocking = !flags.contains(RecvFlags::DONTWAIT)
            && rustix::fs::fcntl_getfl(&socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
        let time_max = SockRef::from(&socket).read_timeout().ok().flatten();
        Self { socket: Arc::new(socket), is_blocking, time_max }
    }
}

/// The next packet.
async fn receive(
    call: &Call,
    socket: &Arc<OwnedFd>,
    packet: &PacketCall,
    is_blocking: bool,
) -> Result<Received, Errno> {
    let mut bytes = vec![0; LEN_MAX.min(usize::try_from(packet.len()).unwrap_or(LEN_MAX))];
    // With its length, also if there is no space for it.
    let flags = packet.flags() | RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    loop {
        match rustix::net::recvfrom(socket, bytes.as_mut_slice(), flags) {
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
        wait_until_ready(Arc::clone(socket)).await;
    }
}
