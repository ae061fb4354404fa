//! Intercepts system calls of unmodified programs, with seccomp user notifications
//! (seccomp_unotify(2)).
//!
//! ```text
//!  program            kernel                       supervisor, in this process
//!  connect() ──▶ filter: notify, stop the thread ──▶ Listener::receive ─▶ Call
//!            ◀── result ◀─────────────────────────── Call::answer, or Call::let_through
//! ```
//!
//! The filter applies to the program and all processes that it starts, whatever their language and
//! linkage. Calls that the filter does not name cost some tens of nanoseconds more; the others wait
//! for the supervisor.
//!
//! | item | holds |
//! |---|---|
//! | [`spawn`] | starts a program with a filter |
//! | [`Listener`], [`Call`] | calls that wait, and their answers |
//! | [`Syscall`] | system calls that can be intercepted |
//! | [`Thread`] | the caller: its memory and its descriptors |
//! | [`sockaddr`] | socket addresses in the kernel's format |
//! | [`socket`] | properties of sockets |
//!
//! It is no security boundary. A program can reach the kernel in ways that the filter does not see, such
//! as io_uring.

mod filter;
mod notification;
pub mod sockaddr;
pub mod socket;
mod spawn;
mod syscall;
mod thread;

pub use notification::{Call, Listener};
pub use spawn::spawn;
pub use syscall::Syscall;
pub use thread::Thread;
