//! Calls that wait for an answer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::ioctl::{self, IntegerSetter, Opcode, Setter, Updater, opcode};

use crate::syscall::Syscall;
use crate::thread::{Descriptors, Thread, read_memory};

/// Requests of listeners (linux/seccomp.h).
const GROUP: u8 = b'!';
const RECEIVE: Opcode = opcode::read_write::<libc::seccomp_notif>(GROUP, 0);
const SEND: Opcode = opcode::read_write::<libc::seccomp_notif_resp>(GROUP, 1);
const ADD_DESCRIPTOR: Opcode = opcode::write::<libc::seccomp_notif_addfd>(GROUP, 3);
const IS_WAITING: Opcode = opcode::write::<u64>(GROUP, 2);
const SET_FLAGS: Opcode = opcode::write::<u64>(GROUP, 4);

/// Flag that wakes the supervisor on the processor of the caller, which waits for it
/// (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP). Waking another, sleeping processor costs some 30 us a
/// call.
const SYNC_WAKE_UP: usize = 1;

/// Receives the calls of a program and its children. Clones refer to the same listener. When the
/// last clone and all of its calls are dropped, further calls fail with ENOSYS.
#[derive(Clone, Debug)]
pub struct Listener {
    descriptor: Arc<OwnedFd>,
}

impl Listener {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        // SAFETY: the request has a number in place of a pointer.
        let request = unsafe { IntegerSetter::<SET_FLAGS>::new_usize(SYNC_WAKE_UP) };
        // SAFETY: as above. Kernels before Linux 6.6 do not know it.
        let _unknown = unsafe { ioctl::ioctl(&descriptor, request) };
        Self { descriptor: Arc::new(descriptor) }
    }

    /// Waits for the next call. Returns `None` when all processes with the filter have ended.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        loop {
            let mut ready = [PollFd::new(&*self.descriptor, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            if !ready[0].revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            let Some(notification) = self.take()? else { continue };
            let (id, data) = (notification.id, notification.data);
            match Syscall::of(data.nr) {
                Some(syscall) => {
                    let (listener, thread) = (self.clone(), notification.pid);
                    return Ok(Some(Call { listener, id, thread, syscall, arguments: data.args, is_answered: false }));
                }
                // The filter names no others.
                None => self.send(id, &let_through(id)),
            }
        }
    }

    /// Returns the next notification; `None` if its caller was killed.
    fn take(&self) -> io::Result<Option<libc::seccomp_notif>> {
        // SAFETY: the structure has integers only, and the kernel demands that they are zero.
        let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request fills a `struct seccomp_notif`.
        let request = unsafe { Updater::<RECEIVE, libc::seccomp_notif>::new(&mut notification) };
        // SAFETY: the request keeps no pointer to its argument.
        match unsafe { ioctl::ioctl(&*self.descriptor, request) } {
            Ok(()) => Ok(Some(notification)),
            Err(Errno::NOENT | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&self, id: u64, response: &libc::seccomp_notif_resp) {
        let mut response = *response;
        // SAFETY: the request reads a `struct seccomp_notif_resp`.
        let request = unsafe { Updater::<SEND, libc::seccomp_notif_resp>::new(&mut response) };
        // SAFETY: the request keeps no pointer to its argument. It fails if the caller was killed.
        let _gone = unsafe { ioctl::ioctl(&*self.descriptor, request) };
        debug_assert_eq!(response.id, id);
    }

    fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the request reads a number of 64 bits.
        let request = unsafe { Setter::<IS_WAITING, u64>::new(id) };
        // SAFETY: the request keeps no pointer to its argument.
        unsafe { ioctl::ioctl(&*self.descriptor, request) }.is_ok()
    }
}

fn let_through(id: u64) -> libc::seccomp_notif_resp {
    libc::seccomp_notif_resp { id, val: 0, error: 0, flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 }
}

/// A call that waits for an answer. Its caller continues when it is answered; a dropped call fails
/// with ECONNABORTED.
#[derive(Debug)]
pub struct Call {
    listener: Listener,
    id: u64,
    thread: u32,
    syscall: Syscall,
    arguments: [u64; 6],
    is_answered: bool,
}

impl Call {
    /// Returns the intercepted system call.
    #[must_use]
    pub const fn syscall(&self) -> Syscall {
        self.syscall
    }

    /// Returns an argument, as held by the register.
    ///
    /// # Panics
    /// Panics if `index` is not below 6.
    #[must_use]
    pub const fn argument(&self, index: usize) -> u64 {
        self.arguments[index]
    }

    /// Calls `look` with the caller, and returns the result if the caller still waits: otherwise
    /// its number may belong to another process.
    ///
    /// # Errors
    /// Returns the error of `look`, or `NotFound` if the caller was killed.
    pub fn with_caller<T>(&self, look: impl FnOnce(&Thread) -> io::Result<T>) -> io::Result<T> {
        let found = Thread::open(self.thread).and_then(|thread| {
            if !self.listener.is_waiting(self.id) {
                return Err(io::ErrorKind::NotFound.into());
            }
            look(&thread)
        });
        if self.listener.is_waiting(self.id) { found } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Returns a duplicate of one of the caller's descriptors, for the same open file. It costs
    /// less than [`with_caller`](Self::with_caller). Duplicates are never reused for later calls:
    /// between two calls, the program may have closed or replaced its descriptor without a call
    /// that is seen here.
    ///
    /// # Errors
    /// Fails if there is no such descriptor, or the caller was killed.
    pub fn descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        let descriptors = Descriptors::open(self.thread)?;
        // If the caller still waits, these descriptors are its own, and not those of a later
        // process.
        if self.listener.is_waiting(self.id) {
            descriptors.duplicate(number)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// Reads memory like [`read`](Self::read), at lower cost: if the caller was killed, it may be
    /// another process's memory. That is sufficient for letting the call through, because then it
    /// has no effect.
    ///
    /// # Errors
    /// Fails if there is no such memory.
    pub fn glance(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        match read_memory(self.thread, address, buffer) {
            Err(error) if error.raw_os_error() != Some(libc::EFAULT) => {
                // Where this is not permitted, the other way may be.
                self.with_caller(|caller| caller.read(address, buffer))
            }
            read => read,
        }
    }

    /// Reads the caller's memory from `address` on. It costs less than
    /// [`with_caller`](Self::with_caller), which opens the caller.
    ///
    /// # Errors
    /// Fails if there is no such memory, or the caller was killed.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.glance(address, buffer)?;
        if self.listener.is_waiting(self.id) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Completes the call with this value, or fails it with the error.
    pub fn answer(mut self, result: Result<i64, Errno>) {
        self.respond(result);
    }

    /// Completes the call with a new descriptor in the caller, for the same open file as this one.
    ///
    /// # Errors
    /// Fails if the caller was killed, or may have no more descriptors: the call then fails with
    /// that error.
    pub fn answer_with_descriptor(mut self, descriptor: BorrowedFd<'_>, is_closed_on_exec: bool) -> io::Result<()> {
        let request = libc::seccomp_notif_addfd {
            id: self.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: descriptor.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if is_closed_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the request reads a `struct seccomp_notif_addfd`.
        let request = unsafe { Setter::<ADD_DESCRIPTOR, libc::seccomp_notif_addfd>::new(request) };
        // SAFETY: the request keeps no pointer to its argument.
        match unsafe { ioctl::ioctl(&*self.listener.descriptor, request) } {
            Ok(()) => {
                self.is_answered = true;
                Ok(())
            }
            Err(error) => {
                self.respond(Err(error));
                Err(error.into())
            }
        }
    }

    /// Returns whether the caller has a signal to handle, which it does after the call. A call let
    /// through then ends with it, as without a filter.
    #[must_use]
    pub fn has_signal(&self) -> bool {
        self.with_caller(|caller| caller.has_signal()).unwrap_or(true)
    }

    /// Lets the kernel run the call as if there were no filter. The kernel reads descriptors and
    /// memory again, which other threads may have changed since they were inspected
    /// (seccomp_unotify(2)): this is no way to permit a call with certain arguments.
    /// [`sockaddr::connect`](crate::sockaddr::connect) makes a call with a copy of them.
    pub fn let_through(mut self) {
        self.is_answered = true;
        self.listener.send(self.id, &let_through(self.id));
    }

    fn respond(&mut self, result: Result<i64, Errno>) {
        self.is_answered = true;
        let (val, error) = match result {
            Ok(value) => (value, 0),
            Err(error) => (0, -error.raw_os_error()),
        };
        self.listener.send(self.id, &libc::seccomp_notif_resp { id: self.id, val, error, flags: 0 });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_answered {
            self.respond(Err(Errno::CONNABORTED));
        }
    }
}
