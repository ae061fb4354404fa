//! Both ends of a connection: the daemon's end, and the descriptors that it passes to the program.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::blocking::{Reader, Writer};
use crate::memory::{Direction, Memory};
use crate::ring::{Consumer, Producer};

/// Number of descriptors passed to a program.
pub const PASSED: usize = 3;

/// The end of the daemon.
#[derive(Debug)]
pub struct DaemonEnd {
    /// Ring of the program's output, and its socket, which does not block.
    pub from_program: (Consumer<Arc<Memory>>, UnixStream),
    /// Ring of the program's input, and its socket, which does not block.
    pub to_program: (Producer<Arc<Memory>>, UnixStream),
}

/// Creates a connection: the daemon's end, and the descriptors for the program: the memory, the
/// socket of the ring to the daemon, and that of the ring to the program. The program gets nothing
/// else of this process.
///
/// # Errors
/// Returns the system's error.
///
/// # Panics
/// Panics under the conditions of [`Memory::create`].
pub fn create(ring_len: usize) -> io::Result<(DaemonEnd, [OwnedFd; PASSED])> {
    let (memory, file) = Memory::create(ring_len)?;
    let ((from_program, to_daemon), (to_program, from_daemon)) = (UnixStream::pair()?, UnixStream::pair()?);
    from_program.set_nonblocking(true)?;
    to_program.set_nonblocking(true)?;
    let end = DaemonEnd {
        from_program: (memory.consumer(Direction::ToDaemon), from_program),
        to_program: (memory.producer(Direction::ToProgram), to_program),
    };
    Ok((end, [file, to_daemon.into(), from_daemon.into()]))
}

/// Creates the end of the program from the passed descriptors.
///
/// # Errors
/// Same errors as [`Memory::open`].
pub fn open([file, to_daemon, from_daemon]: [OwnedFd; PASSED]) -> io::Result<(Reader, Writer)> {
    let memory = Memory::open(file)?;
    let reader = Reader::new(memory.consumer(Direction::ToProgram), from_daemon.into());
    Ok((reader, Writer::new(memory.producer(Direction::ToDaemon), to_daemon.into())))
}
