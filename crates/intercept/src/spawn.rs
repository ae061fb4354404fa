//! Starts a program with the filter.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command};

use crate::filter;
use crate::notification::Listener;
use crate::syscall::Syscall;

/// Starts `command` with a filter for `calls`, which it and its children keep. None of them can
/// gain privileges by programs with the set-user-ID bit (PR_SET_NO_NEW_PRIVS): the kernel requires
/// this of users without CAP_SYS_ADMIN.
///
/// # Errors
/// Fails if the kernel has no user notifications (before Linux 5.19), another supervisor is active
/// already, or the program cannot be started.
pub fn spawn(mut command: Command, calls: &[Syscall]) -> io::Result<(Child, Listener)> {
    let filter = filter::program(calls);
    let start = move || -> io::Result<(Child, Listener)> {
        let descriptor = install(&filter)?;
        Ok((command.spawn()?, Listener::new(descriptor)))
    };
    // A filter applies to a thread and to the threads and processes that it starts. This thread
    // ends after starting the program, so that this process has the listener, and no filter. It
    // makes none of the calls itself: they would not be answered.
    std::thread::scope(|scope| scope.spawn(start).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Installs the filter in this thread. An exec closes its listener, so that the program does not
/// have it.
fn install(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    rustix::thread::set_no_new_privs(true)?;
    // The kernel only reads it.
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // Signals that do not kill wait for the answer. Otherwise each would restart the call.
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
