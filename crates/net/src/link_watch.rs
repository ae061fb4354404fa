//! Notification of changes of the network interfaces, their addresses and the routes.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// Multicast groups RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR,
/// RTMGRP_IPV6_ROUTE (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// Maximum number of messages read at a time; further messages remain for the next wait.
const MESSAGES_MAX: usize = 256;

/// Polling interval where the system does not report changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Time within which changes count as one: a new device is reported with several messages, one for
/// each address, route and flag.
const SETTLE: Duration = Duration::from_millis(20);

/// Maximum number of [`SETTLE`] periods over which a series of close changes counts as one. A storm
/// of messages cannot delay the report for longer.
const SETTLES_MAX: u32 = 5;

/// Waits for changes of interfaces, addresses and routes of this host: on Linux of the network
/// namespace in which it was opened.
#[derive(Debug)]
pub struct LinkWatch {
    /// Socket for the notifications; `None` if the system refuses.
    changes: Option<OwnedFd>,
    wake: Arc<OwnedFd>,
    /// Polling interval if there are no notifications.
    look_interval: Duration,
}

/// Ends a wait of a [`LinkWatch`], from any thread.
#[derive(Debug, Clone)]
pub struct LinkWatchWaker(Arc<OwnedFd>);

impl LinkWatchWaker {
    /// Ends the wait in progress, or the next one.
    pub fn wake(&self) {
        // The write fails only if the counter is full, and then the wait ends anyway.
        let _full = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// Result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkNews {
    /// The interfaces may have changed: see [`interfaces`](crate::interfaces()).
    MayHaveChanged,
    /// Nothing has changed.
    None,
    /// The wait was ended by [`LinkWatchWaker::wake`].
    Woken,
}

impl LinkWatch {
    /// Opens the watch. If the system does not report changes, the second value is the reason, and
    /// [`wait`](Self::wait) reports a possible change every two seconds.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    pub fn open() -> io::Result<(Self, Option<io::Error>)> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (changes, refused) = match open_netlink(GROUPS) {
            Ok(socket) => (Some(socket), None),
            Err(error) => (None, Some(error)),
        };
        Ok((Self { changes, wake, look_interval: LOOK_INTERVAL }, refused))
    }

    /// Returns a waker with which another thread ends a wait.
    #[must_use]
    pub fn waker(&self) -> LinkWatchWaker {
        LinkWatchWaker(Arc::clone(&self.wake))
    }

    /// Waits for a change for at most `timeout`.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<LinkNews> {
        let Some(changes) = &self.changes else {
            // The caller must read the table again after a while.
            let woken = wait_for(&[&*self.wake], timeout.min(self.look_interval))?.is_some();
            return Ok(if woken { LinkNews::Woken } else { LinkNews::MayHaveChanged });
        };
        let sources = [&*self.wake, changes];
        match wait_for(&sources, timeout)? {
            None => return Ok(LinkNews::None),
            Some(0) => return Ok(LinkNews::Woken),
            Some(_) => drop_messages(changes)?,
        }
        for _ in 0..SETTLES_MAX {
            match wait_for(&sources, SETTLE)? {
                Some(1) => drop_messages(changes)?,
                _ => break,
            }
        }
        Ok(LinkNews::MayHaveChanged)
    }
}

/// Returns the index of the first descriptor that becomes readable; `None` if none does within
/// `timeout`.
pub(crate) fn wait_for(sources: &[&OwnedFd], timeout: Duration) -> io::Result<Option<usize>> {
    let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut polled: Vec<PollFd<'_>> = sources.iter().map(|source| PollFd::new(*source, PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => Ok(polled.iter().position(|source| !source.revents().is_empty())),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a socket that receives the kernel's notifications of these groups (rtnetlink(7)). Their
/// content is not needed: the tables are read again after any of them.
pub(crate) fn open_netlink(groups: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // NETLINK_ROUTE is protocol zero, the default.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Reads and drops the messages that have arrived, or some of them.
fn drop_messages(socket: &OwnedFd) -> io::Result<()> {
    // A message that does not fit is truncated, which is harmless.
    let mut buffer = [0; 16];
    for _ in 0..MESSAGES_MAX {
        match recv(socket, &mut buffer, RecvFlags::empty()) {
            // The kernel had to drop messages: that is also a change.
            Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_ends_the_wait() {
        let (mut watch, _refused) = LinkWatch::open().expect("descriptors are left");
        watch.waker().wake();
        // Another program may change a link at any time; the wake stays until it is seen.
        assert_eq!(watch.wait(Duration::from_secs(60)).expect("it works"), LinkNews::Woken);
    }

    #[test]
    fn without_reports_it_is_time_to_look_now_and_then() {
        let (mut watch, _refused) = LinkWatch::open().expect("descriptors are left");
        (watch.changes, watch.look_interval) = (None, Duration::from_millis(1));
        assert_eq!(watch.wait(Duration::from_secs(3600)).expect("it works"), LinkNews::MayHaveChanged);
        watch.waker().wake();
        assert_eq!(watch.wait(Duration::from_secs(3600)).expect("it works"), LinkNews::Woken);
    }
}
