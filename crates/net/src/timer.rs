//! A timer with nanosecond resolution that wakes `epoll`, whose own timeout is rounded up to
//! milliseconds.

#[cfg(target_os = "linux")]
pub use linux::FineTimer;
#[cfg(not(target_os = "linux"))]
pub use none::FineTimer;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use units::Duration;

    /// A descriptor that becomes readable when the timer expires. With edge-triggered polling it
    /// need not be read: each expiry is a separate edge.
    #[derive(Debug)]
    pub struct FineTimer(OwnedFd);

    impl FineTimer {
        /// Creates a disarmed timer. `None` if the system has no such timer; timeouts are then
        /// rounded.
        ///
        /// # Errors
        /// If the system has no free descriptor.
        pub fn new() -> io::Result<Option<Self>> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            Ok(Some(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?)))
        }

        /// Arms the timer to expire after `span`, which must not be zero. Replaces an earlier
        /// setting. Returns false on failure.
        pub fn arm(&self, span: Duration) -> bool {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let nanos = span.as_nanos();
            let it_value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value }).is_ok()
        }
    }

    impl AsRawFd for FineTimer {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::io;

    use units::Duration;

    /// A timer that is not available on this system.
    #[derive(Debug)]
    pub enum FineTimer {}

    impl FineTimer {
        /// Returns `Ok(None)` always.
        ///
        /// # Errors
        /// Never fails.
        pub fn new() -> io::Result<Option<Self>> {
            Ok(None)
        }

        /// Never runs, because no value of this type exists.
        pub fn arm(&self, _span: Duration) -> bool {
            match *self {}
        }
    }

    #[cfg(unix)]
    impl std::os::fd::AsRawFd for FineTimer {
        fn as_raw_fd(&self) -> std::os::fd::RawFd {
            match *self {}
        }
    }
}
