//! Connections that the kernel makes for a program, called by this process with a copy of the address
//! (`--strict`).
//!
//! ```text
//!  connect(socket, address) ─▶ copies of both ─▶ allowed? ─▶ connect(copy, copy) ─▶ result
//! ```
//!
//! The program's socket and its copy are one open file, so the program sees what it would see if its own call had
//! gone on. A call that blocks waits here for the connection, for a signal, and for the time that the
//! socket has (SO_SNDTIMEO).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use intercept::{Call, sockaddr};
use net::MonotonicClock;
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use socket2::{SockRef, Type};

use crate::cli::forward::calls::wait_for;

/// A call of connect that blocks returns after this time: one tick of the kernel's clock.
const SHORTEST: Duration = Duration::from_micros(1);

/// A socket, and the address that it is connected to.
pub(super) struct Direct {
    pub(super) socket: OwnedFd,
    pub(super) address: Vec<u8>,
}

/// Answers a call with the result of the kernel.
pub(super) async fn connect(call: Call, direct: Direct) {
    let Direct { socket, address } = direct;
    let result = match waits(&socket) {
        true => connect_and_wait(&call, Arc::new(socket), address.into()).await,
        false => sockaddr::connect(socket.as_fd(), &address),
    };
    call.answer(result.map(|()| 0));
}

/// Whether connecting takes time, and the program waits for it.
fn waits(socket: &OwnedFd) -> bool {
    SockRef::from(socket).r#type().is_ok_and(|kind| kind == Type::STREAM)
        && rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

async fn connect_and_wait(call: &Call, socket: Arc<OwnedFd>, address: Arc<[u8]>) -> Result<(), Errno> {
    let clock = MonotonicClock::start();
    let time_max = SockRef::from(&*socket).write_timeout().ok().flatten().map(units::Duration::from);
    let end = time_max.map(|time| clock.now() + time);
    loop {
        let (file, bytes) = (Arc::clone(&socket), Arc::clone(&address));
        let step = tokio::task::spawn_blocking(move || step(&file, &bytes)).await.expect("it does not panic");
        match step {
            Err(Errno::INPROGRESS | Errno::ALREADY) => {}
            result => return result,
        }
        // As the kernel has it: the connection goes on.
        if end.is_some_and(|end| clock.now() >= end) {
            return Err(Errno::INPROGRESS);
        }
        // Also where the signal asks to begin again (SA_RESTART).
        if call.has_signal() {
            return Err(Errno::INTR);
        }
        wait_for(Arc::clone(&socket), PollFlags::OUT).await;
    }
}

/// Begins a connection, or gets the result of one that has begun. The call blocks hardly: the socket cannot be
/// set to block no more, because its mode is that of the program's descriptor, too.
fn step(socket: &OwnedFd, address: &[u8]) -> Result<(), Errno> {
    /// Two threads of a program may connect the same socket, whose time has to be the program's at the end.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let reference = SockRef::from(socket);
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
    let time = reference.write_timeout().map_err(errno)?;
    reference.set_write_timeout(Some(SHORTEST)).map_err(errno)?;
    let result = sockaddr::connect(socket.as_fd(), address);
    reference.set_write_timeout(time).map_err(errno)?;
    result
}
