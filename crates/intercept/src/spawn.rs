//! Starts a program with the filter.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command};

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
    let filter = filter::program(calls);
    let start = move || -> io::Result<(Child, Listener)> {
        let descriptor = install(&filter)?;
        Ok((command.spawn()?, Listener::new(descriptor)))
    };
    // A filter is one of a thread and of those that it starts. This one ends when it has started the program, so
    // that this process has the listener, and no filter. It makes none of the calls itself: nothing would answer.
    std::thread::scope(|scope| scope.spawn(start).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Installs the filter in this thread. Its listener is closed by an exec, so that the program does not have it.
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
