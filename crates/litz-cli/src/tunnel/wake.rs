//! Wakes a thread that waits for the device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// An event that a thread waits for together with a descriptor. Clones are the same event.
#[derive(Clone, Debug)]
pub(crate) struct WakeEvent {
    event: Arc<OwnedFd>,
}

impl WakeEvent {
    /// # Errors
    /// If the process has too many open files.
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { event: Arc::new(event) })
    }

    pub(crate) fn wake(&self) {
        // It fails only when the counter is full: then the thread is woken already.
        let _full = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::new(self.clone()))
    }

    /// Waits until `readable` can be read, the event has happened, or the time is over.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn wait(&self, readable: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
        let mut polled = [
            PollFd::from_borrowed_fd(readable, PollFlags::IN),
            PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN),
        ];
        let timeout = timeout.map(rustix::time::Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if polled[1].revents().contains(PollFlags::IN) {
            self.take()?;
        }
        Ok(())
    }

    /// Whether the event has happened since it was last waited for or taken.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn take(&self) -> io::Result<bool> {
        let mut count = [0; 8];
        match rustix::io::read(&self.event, &mut count) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Wake for WakeEvent {
    fn wake(self: Arc<Self>) {
        WakeEvent::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        WakeEvent::wake(self);
    }
}
