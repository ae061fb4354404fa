//! Takes over system calls of unmodified programs, with seccomp user notifications
//! (seccomp_unotify(2)).
//!
//! ```text
//!  program            kernel                       supervisor, in this process
//!  connect() ──▶ filter: notify, stop the thread ──▶ Listener::receive ─▶ Call
//!            ◀── result ◀─────────────────────────── Call::answer, or Call::let_through
//! ```
//!
//! The filter is a property of the program and of all processes that it starts, whatever language they
//! are written in and however they are linked. Calls that the filter does not name cost some tens of
//! nanoseconds more; the others wait for the supervisor.
//!
//! | item | holds |
//! |---|---|
//! | [`spawn`] | starts a program with a filter |
//! | [`Listener`], [`Call`] | calls that wait, and their answers |
//! | [`Thread`] | the caller: its memory and its descriptors |
//! | [`sockaddr`] | socket addresses as the kernel writes them |
//!
//! It is no security boundary. A program can reach the kernel in ways that the filter does not see, such
//! as io_uring.

mod filter;
mod notification;
pub mod sockaddr;
mod spawn;
mod thread;

pub use notification::{Call, Listener};
pub use spawn::spawn;
pub use thread::Thread;

/// A system call that can be taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syscall {
    /// connect(2).
    Connect,
    /// getpeername(2).
    GetPeerName,
}

impl Syscall {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Connect, Self::GetPeerName];

    const fn number(self) -> u32 {
        (match self {
            Self::Connect => libc::SYS_connect,
            Self::GetPeerName => libc::SYS_getpeername,
        }) as u32
    }

    fn of(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|syscall| u32::try_from(number) == Ok(syscall.number()))
    }
}
