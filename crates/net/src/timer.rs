//! A timer of nanoseconds that ends a sleep in `epoll`, which itself rounds up to milliseconds.

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

    /// A descriptor that becomes readable when the timer fires. Watched for edges, nobody has to read it: each firing is an
    /// edge of its own.
    #[derive(Debug)]
    pub struct FineTimer(OwnedFd);

    impl FineTimer {
        /// A timer that is not armed; none where the system has none, and sleeps are rounded.
        ///
        /// # Errors
        /// If the system gives out no descriptor.
        pub fn new() -> io::Result<Option<Self>> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            Ok(Some(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?)))
        }

        /// Fires after `span`, which is not zero, in place of what was armed before. False if it cannot.
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

    /// There is none here.
    #[derive(Debug)]
    pub enum FineTimer {}

    impl FineTimer {
        /// None.
        ///
        /// # Errors
        /// Never.
        pub fn new() -> io::Result<Option<Self>> {
            Ok(None)
        }

        /// Never called.
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
