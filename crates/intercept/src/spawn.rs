//! Starts a program with the filter.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::net::{
    AddressFamily, MMsgHdr, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmmsg, socketpair,
};

use crate::filter;
use crate::notification::Listener;
use crate::syscall::Syscall;

/// Starts `command` with a filter for `calls` that it and its children keep. Neither can gain privileges by
/// programs with the set-user-ID bit (PR_SET_NO_NEW_PRIVS), which the kernel demands of users without
/// CAP_SYS_ADMIN.
///
/// # Errors
/// If the kernel has no user notifications (before Linux 5.19), another supervisor is in charge already,
/// or the program cannot be started.
pub fn spawn(mut command: Command, calls: &[Syscall]) -> io::Result<(Child, Listener)> {
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let filter = filter::program(calls);
    // SAFETY: between fork and exec only system calls are made: nothing allocates or locks.
    unsafe { command.pre_exec(move || pass(there.as_fd(), install(&filter)?.as_fd())) };
    let child = command.spawn()?;
    // Without the command, this is the only process that could still send.
    drop(command);
    Ok((child, Listener::new(receive(here.as_fd())?)))
}

/// Installs the filter in this thread. Its listener is closed by an exec.
fn install(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    rustix::thread::set_no_new_privs(true)?;
    // The kernel only reads it.
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // Signals that do not kill wait for the answer. Otherwise each would begin the call anew.
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the kernel copies the program, which is `len` instructions long.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Sends a descriptor to the other end of a pair of sockets: with sendmmsg, because a filter that this thread has
/// already may stop sendmsg, and the supervisor does not listen yet.
fn pass(to: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [IoSlice::new(&[0])];
    sendmmsg(to, &mut [MMsgHdr::new(&byte, &mut control)], SendFlags::empty())?;
    Ok(())
}

/// Receives the descriptor that the program has sent before it was started.
fn receive(from: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)?;
    let found = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
