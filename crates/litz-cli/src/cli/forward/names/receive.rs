//! Answers that a program receives: they come from a socket of this process, and have to come from the name
//! server that the program has asked.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use intercept::Call;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::SockRef;
use tokio::time::timeout;

use super::Names;
use crate::cli::forward::calls::{wait_until_ready, write_address};

/// The longest answer that is passed on; a program's buffer is no longer than an answer by UDP.
const LEN_MAX: usize = super::ANSWER_LEN_MAX;

impl Names {
    /// Whether the program's socket is one that asks: the kernel receives from others.
    pub(in crate::cli::forward) fn may_receive(&self, call: &Call) -> bool {
        self.are_used() && self.asked_by(call).is_some()
    }

    /// The program's socket, and the name server to which it believes to be connected.
    fn asked_by(&self, call: &Call) -> Option<(OwnedFd, SocketAddr)> {
        let socket = call.with_caller(|caller| caller.descriptor(call.argument(0))).ok()?;
        let peer = SockRef::from(&socket).peer_addr().ok()?.as_socket()?;
        let server = self.server_behind(peer)?;
        Some((socket, server))
    }

    /// Receives in place of the kernel if the program's socket is one that asks.
    pub(in crate::cli::forward) async fn receive(&self, call: Call) {
        let Some((socket, server)) = self.asked_by(&call) else { return call.let_through() };
        let flags = RecvFlags::from_bits_retain(call.argument(3) as u32);
        let is_blocking = !flags.contains(RecvFlags::DONTWAIT)
            && rustix::fs::fcntl_getfl(&socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
        let time = SockRef::from(&socket).read_timeout().ok().flatten();
        let waited = receive(&call, socket, flags, is_blocking);
        let received = match time {
            Some(time) => timeout(time, waited).await.unwrap_or(Err(Errno::AGAIN)),
            None => waited.await,
        };
        let result = received.and_then(|(bytes, len)| hand_over(&call, &bytes, len, server));
        call.answer(result);
    }
}

/// The next packet: its bytes, and the length that the call returns.
async fn receive(
    call: &Call,
    mut socket: OwnedFd,
    flags: RecvFlags,
    is_blocking: bool,
) -> Result<(Vec<u8>, usize), Errno> {
    let mut bytes = vec![0; LEN_MAX.min(usize::try_from(call.argument(2)).unwrap_or(LEN_MAX))];
    loop {
        match rustix::net::recv(&socket, bytes.as_mut_slice(), flags | RecvFlags::DONTWAIT) {
            Ok((filled, len)) => {
                bytes.truncate(filled);
                return Ok((bytes, len));
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

fn hand_over(call: &Call, bytes: &[u8], len: usize, server: SocketAddr) -> Result<i64, Errno> {
    let written = call.with_caller(|caller| {
        caller.write(call.argument(1), bytes)?;
        write_address(caller, call.argument(4), call.argument(5), server)
    });
    written.map(|()| len as i64).map_err(|_| Errno::FAULT)
}
