//! [`DeviceEvents`]: announces packets of the TUN device to the thread of a driver.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use net::tun::Tun;
use quic_endpoint::EventHandler;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Reads a device in a thread that others need, too.
pub(crate) trait DeviceReader: Send + Sync {
    /// Whether there may be something to do for the driver's thread without an event.
    fn is_due(&self) -> bool;

    /// Reads some of what there is, in the driver's thread.
    fn read_in_place(&self);
}

/// Announces packets of a device to the driver's thread of each endpoint that has it as its handler. Devices come and
/// go, so this is an `epoll` instance that the driver's thread polls.
pub struct DeviceEvents {
    epoll: OwnedFd,
    attached: Mutex<Option<Attached>>,
}

struct Attached {
    tun: Tun,
    reader: Weak<dyn DeviceReader>,
    is_armed: bool,
}

impl DeviceEvents {
    /// Without a device.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub fn new() -> io::Result<Arc<Self>> {
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
    pub(crate) fn attach(&self, tun: Tun, reader: Weak<dyn DeviceReader>) {
        self.detach();
        *self.lock() = Some(Attached { tun, reader, is_armed: false });
    }

    /// Lets go of the device.
    pub(crate) fn detach(&self) {
        if let Err(error) = self.disarm() {
            tracing::warn!(%error, "the events of the TUN device cannot be ended");
        }
        self.lock().take();
    }

    /// Announces packets from now on, and those that wait. The device is added anew: the kernel announces nothing for one
    /// that was ready before and that nothing has asked since, as nothing asks this instance for its events.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.disarm()?;
        if let Some(Attached { tun, is_armed, .. }) = &mut *self.lock() {
            epoll::add(&self.epoll, tun, EventData::new_u64(0), EventFlags::IN)?;
            *is_armed = true;
        }
        Ok(())
    }

    /// Announces no packets from now on. An event may be on its way.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        if let Some(Attached { tun, is_armed, .. }) = &mut *self.lock()
            && std::mem::replace(is_armed, false)
        {
            epoll::delete(&self.epoll, tun)?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use net::tun::{OFFLOAD_HEADER_BYTES, TUN_BUFFER_BYTES, TunDevice};
    use rustix::time::Timespec;

    use super::*;

    struct NoReader;

    impl DeviceReader for NoReader {
        fn is_due(&self) -> bool {
            false
        }

        fn read_in_place(&self) {}
    }

    #[test]
    fn packets_that_wait_are_announced_once_it_is_armed() {
        let [mut near, mut far] = Tun::pair("test").expect("a pair");
        let events = DeviceEvents::new().expect("an instance");
        let reader: Arc<dyn DeviceReader> = Arc::new(NoReader);
        events.attach(near.clone(), Arc::downgrade(&reader));
        // As the driver's thread polls.
        let poll = epoll::create(CreateFlags::CLOEXEC).expect("an instance");
        epoll::add(&poll, events.descriptor(), EventData::new_u64(0), EventFlags::IN | EventFlags::ET).expect("added");
        let announced = || {
            let mut found = Vec::with_capacity(1);
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut found), Some(&Timespec::default())).expect("polled")
                > 0
        };
        let packet = [0; OFFLOAD_HEADER_BYTES + 20];
        let mut write = || far.write(&[IoSlice::new(&packet)]).expect("written");
        let mut read_all = || while near.read(&mut [0; TUN_BUFFER_BYTES]).is_ok() {};
        write();
        assert!(!announced(), "it is not armed");
        for _ in 0..3 {
            events.arm().expect("armed");
            assert!(announced(), "a packet waits");
            read_all();
            assert!(!announced());
            write();
            assert!(announced());
            read_all();
            events.disarm().expect("disarmed");
            write();
            assert!(!announced());
        }
        // What is read between is not missed either.
        events.arm().expect("armed");
        read_all();
        events.arm().expect("armed");
        let _earlier = announced();
        write();
        assert!(announced());
        events.detach();
        write();
        assert!(!announced());
    }
}
