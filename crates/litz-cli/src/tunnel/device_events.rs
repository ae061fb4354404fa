//! [`DeviceEvents`]: announces packets of the TUN device to the thread of a driver.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use litz::EventHandler;
use net::tun::Tun;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Reads a device in a thread that others need, too.
pub(super) trait DeviceReader: Send + Sync {
    /// Whether there may be something to do for the driver's thread without an event.
    fn is_due(&self) -> bool;

    /// Reads some of what there is, in the driver's thread.
    fn read_in_place(&self);
}

/// Announces packets of a device to the driver's thread of each endpoint that has it as its handler. Devices come and
/// go, so this is an `epoll` instance that the driver's thread polls.
pub(crate) struct DeviceEvents {
    epoll: OwnedFd,
    attached: Mutex<Option<Attached>>,
}

struct Attached {
    tun: Tun,
    reader: Weak<dyn DeviceReader>,
}

impl DeviceEvents {
    /// Without a device.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Arc::new(Self { epoll, attached: Mutex::new(None) }))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> Option<Arc<dyn DeviceReader>> {
        self.lock().as_ref()?.reader.upgrade()
    }

    /// Takes a device, whose packets are announced to `reader` once that is [armed](Self::arm). There is one at a time.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn attach(&self, tun: Tun, reader: Weak<dyn DeviceReader>) -> io::Result<()> {
        self.detach();
        epoll::add(&self.epoll, &tun, EventData::new_u64(0), EventFlags::empty())?;
        *self.lock() = Some(Attached { tun, reader });
        Ok(())
    }

    /// Lets go of the device.
    pub(super) fn detach(&self) {
        if let Some(Attached { tun, .. }) = self.lock().take()
            && let Err(error) = epoll::delete(&self.epoll, &tun)
        {
            tracing::warn!(%error, "the events of the TUN device cannot be ended");
        }
    }

    /// Announces packets from now on, and those that wait.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn arm(&self) -> io::Result<()> {
        self.set(EventFlags::IN)
    }

    /// Announces no packets from now on. An event may be on its way.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn disarm(&self) -> io::Result<()> {
        self.set(EventFlags::empty())
    }

    fn set(&self, flags: EventFlags) -> io::Result<()> {
        match &*self.lock() {
            Some(Attached { tun, .. }) => Ok(epoll::modify(&self.epoll, tun, EventData::new_u64(0), flags)?),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for DeviceEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceEvents").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl EventHandler for DeviceEvents {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn is_due(&self) -> bool {
        self.reader().is_some_and(|reader| reader.is_due())
    }

    fn handle_event(&self) {
        if let Some(reader) = self.reader() {
            reader.read_in_place();
        }
    }
}
