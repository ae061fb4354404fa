//! Notification of changes of rules, routes, addresses and links, and of one nftables table.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::link_watch::{open_netlink, wait_for};

/// Multicast groups RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV4_RULE,
/// RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE, and the group RTNLGRP_IPV6_RULE (19) (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;

/// Multicast group NFNLGRP_NFTABLES (7) (linux/netfilter/nfnetlink.h).
const GROUPS_OF_NFTABLES: u32 = 1 << 6;

/// Maximum number of messages read at a time; further messages remain for the next wait.
const MESSAGES_MAX: usize = 256;

/// Number of bytes read of a datagram. The kernel joins the messages about many nftables changes
/// into one of up to NLMSG_GOODSIZE (8 KiB, linux/netlink.h); a longer one counts as a change of
/// everything.
const DATAGRAM_BYTES: usize = 16 << 10;

/// Waits for changes in the network namespace in which it was opened.
#[derive(Debug)]
pub struct RoutingWatch {
    routes: OwnedFd,
    /// Socket for nftables changes, and the table's name.
    table: Option<(OwnedFd, String)>,
    wake: Arc<OwnedFd>,
}

/// Ends a wait of a [`RoutingWatch`], from any thread.
#[derive(Debug, Clone)]
pub struct RoutingWatchWaker(Arc<OwnedFd>);

/// Result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingNews {
    /// Whether rules, routes, addresses or links may have changed.
    pub routing: bool,
    /// Whether the nftables table may have changed.
    pub table: bool,
}

impl RoutingWatchWaker {
    /// Ends the wait in progress, or the next one.
    pub fn wake(&self) {
        // The write fails only if the counter is full, and then the wait ends anyway.
        let _full = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl RoutingWatch {
    /// Opens the watch.
    ///
    /// # Errors
    /// The system's error.
    pub fn open() -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { routes: open_netlink(GROUPS)?, table: None, wake })
    }

    /// Also watches the nftables table with this name, which needs CAP_NET_ADMIN. Tables whose
    /// names contain this name may be reported as well.
    ///
    /// # Errors
    /// The system's error.
    pub fn watch_table(&mut self, name: &str) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS_OF_NFTABLES))?;
        self.table = Some((socket, name.to_owned()));
        Ok(())
    }

    /// Returns a waker with which another thread ends a wait.
    #[must_use]
    pub fn waker(&self) -> RoutingWatchWaker {
        RoutingWatchWaker(Arc::clone(&self.wake))
    }

    /// Waits for a change for at most `timeout`.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<RoutingNews> {
        let table = self.table.as_ref().map(|(socket, _)| socket);
        let sources: Vec<&OwnedFd> = [&*self.wake, &self.routes].into_iter().chain(table).collect();
        let mut news = RoutingNews::default();
        if wait_for(&sources, timeout)?.is_none() {
            return Ok(news);
        }
        let _none = rustix::io::read(&*self.wake, &mut [0; 8]);
        take(&self.routes, |_| news.routing = true)?;
        if let Some((socket, name)) = &self.table {
            let is_in = |message: &[u8]| message.windows(name.len()).any(|part| part == name.as_bytes());
            take(socket, |message| news.table |= message.is_none_or(is_in))?;
        }
        Ok(news)
    }
}

/// Reads the datagrams that have arrived, or some of them; passes `None` for datagrams that the
/// kernel had to drop or truncate.
fn take(socket: &OwnedFd, mut each: impl FnMut(Option<&[u8]>)) -> io::Result<()> {
    let mut buffer = [0; DATAGRAM_BYTES];
    for _ in 0..MESSAGES_MAX {
        match recv(socket, &mut buffer, RecvFlags::TRUNC) {
            // This is the length of the whole datagram.
            Ok((_, len)) => each(buffer.get(..len)),
            Err(Errno::NOBUFS) => each(None),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
