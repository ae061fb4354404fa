//! [`ListeningPorts`]: the ports of a stack that accept connections, with their bounds.
//!
//! ```text
//!            half-open ≤ half_open_max          waiting ≤ backlog + half_open_max
//!  SYN ──▶ [ half-open connections ] ──▶ [ connected, wait for accept ] ──▶ application
//!    │  full                                ▲
//!    └────▶ answered with a cookie ── ACK ──┘ if waiting < backlog
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use driver::sync::lock;
use tcp::Md5Key;
use units::Instant;

use crate::application::TcpShared;

/// First port that a stack chooses itself (RFC 6335, section 6).
const DYNAMIC_FIRST: u16 = 49_152;

/// Limits of a listening port.
///
/// Begin with the default, and set others with the `with_` methods.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listen {
    /// Limit on connections with an incomplete handshake. Beyond it SYNs are answered with cookies,
    /// which need no memory, but keep less of the peer's offer. Default: 256; each takes about 3
    /// KB.
    pub half_open_max: usize,
    /// Limit on connected peers that the application has not accepted. Beyond it, SYNs and the last
    /// segments of handshakes with cookies are dropped, so that peers try again. Connections that
    /// are already half-open are still completed. Default: 1024.
    pub backlog: usize,
    /// Key of the digests that each segment of all peers carries (RFC 2385). Segments without a
    /// correct digest are dropped. Default: none; segments with a digest are dropped.
    pub md5: Option<Md5Key>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { half_open_max: 256, backlog: 1024, md5: None }
    }
}

impl Listen {
    /// Sets [`half_open_max`](Self::half_open_max).
    #[must_use]
    pub fn with_half_open_max(self, half_open_max: usize) -> Self {
        Self { half_open_max, ..self }
    }

    /// Sets [`backlog`](Self::backlog).
    #[must_use]
    pub fn with_backlog(self, backlog: usize) -> Self {
        Self { backlog, ..self }
    }

    /// Sets [`md5`](Self::md5).
    #[must_use]
    pub fn with_md5(self, key: Md5Key) -> Self {
        Self { md5: Some(key), ..self }
    }
}

/// Reason why a port does not listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenError {
    /// A listener has this port.
    InUse(u16),
    /// All ports that the stack may choose have listeners.
    NoneFree,
    /// The stack is closed.
    Closed,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(port) => write!(f, "port {port} has a listener: close it, or choose another port"),
            Self::NoneFree => f.write_str("all ports that the stack may choose have listeners: close some"),
            Self::Closed => f.write_str("the stack is closed"),
        }
    }
}

impl std::error::Error for ListenError {}

/// A port that accepts connections, shared by the drivers and the handles of its stack.
#[derive(Debug)]
pub struct Port {
    /// Number of its queue of connections: a later listener on the same port has a different one.
    pub(crate) queue: u64,
    pub(crate) port: u16,
    bounds: Listen,
    /// Number of connections with an incomplete handshake.
    half_open: AtomicUsize,
    /// Number of connected peers that wait for the application. Their cells count it.
    waiting: AtomicUsize,
}

impl Port {
    /// Returns whether the application may get one more connected peer.
    fn has_space(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < self.bounds.backlog
    }

    pub(crate) fn on_half_open(&self) {
        self.half_open.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a half-open connection was completed or given up.
    pub(crate) fn on_half_open_left(&self) {
        let before = self.half_open.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "it was counted");
    }

    pub(crate) fn on_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_accepted(&self) {
        let before = self.waiting.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "it was counted");
    }
}

/// Ports of a stack that accept connections. Its drivers and handles share them.
#[derive(Debug, Default)]
pub struct ListeningPorts {
    table: Mutex<Ports>,
    /// Version of the table, incremented at each change. Drivers have copies of it, so that a flood
    /// takes no lock.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Ports {
    by_port: BTreeMap<u16, Arc<Port>>,
    /// Number of queues used.
    queues: u64,
}

impl ListeningPorts {
    /// Accepts connections to `port` within these limits; zero lets the stack choose. `shared`
    /// belongs to any of its drivers.
    ///
    /// # Errors
    /// Fails if the port has a listener, none is free, or the stack is closed.
    pub fn listen(&self, shared: &TcpShared, port: u16, bounds: Listen) -> Result<Arc<Port>, ListenError> {
        let port = self.add(port, bounds)?;
        if shared.common.open_queue(port.queue) {
            return Ok(port);
        }
        self.remove(&port);
        Err(ListenError::Closed)
    }

    /// Accepts connections to `port` within these limits; zero lets the stack choose.
    fn add(&self, port: u16, bounds: Listen) -> Result<Arc<Port>, ListenError> {
        let mut table = lock(&self.table);
        let port = match port {
            0 => {
                let is_free = |port: &u16| !table.by_port.contains_key(port);
                (DYNAMIC_FIRST..=u16::MAX).find(is_free).ok_or(ListenError::NoneFree)?
            }
            port if table.by_port.contains_key(&port) => return Err(ListenError::InUse(port)),
            port => port,
        };
        table.queues += 1;
        let (half_open, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let added = Arc::new(Port { queue: table.queues, port, bounds, half_open, waiting });
        table.by_port.insert(port, Arc::clone(&added));
        self.version.fetch_add(1, Ordering::Release);
        Ok(added)
    }

    /// Stops accepting connections.
    pub(crate) fn remove(&self, port: &Arc<Port>) {
        let mut table = lock(&self.table);
        if table.by_port.get(&port.port).is_some_and(|known| Arc::ptr_eq(known, port)) {
            table.by_port.remove(&port.port);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// One driver's view of the listening ports.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    ports: Arc<ListeningPorts>,
    /// Copy of this version of the table.
    by_port: BTreeMap<u16, Arc<Port>>,
    version: u64,
    /// Time until which a sent cookie may come back.
    cookies_until: Option<Instant>,
}

/// Verdict on a SYN.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The SYN begins a connection.
    Connection,
    /// The SYN is answered with a cookie.
    Cookie,
    /// The SYN is dropped, because the application does not accept.
    Full,
}

impl Listeners {
    pub(crate) fn new(ports: Arc<ListeningPorts>) -> Self {
        Self { ports, ..Self::default() }
    }

    /// Copies changes of the table. Called before each packet that belongs to no connection.
    pub(crate) fn refresh(&mut self) {
        let version = self.ports.version.load(Ordering::Acquire);
        if version != self.version {
            let table = lock(&self.ports.table);
            self.by_port.clone_from(&table.by_port);
            // The table does not change while it is locked.
            self.version = self.ports.version.load(Ordering::Acquire);
        }
    }

    pub(crate) fn get(&self, port: u16) -> Option<&Arc<Port>> {
        self.by_port.get(&port)
    }

    pub(crate) fn contains(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    /// Returns whether an acknowledgement of no connection may complete a handshake with a cookie.
    pub(crate) const fn may_complete(&self) -> bool {
        self.cookies_until.is_some()
    }

    /// Returns the verdict on a SYN to the listening `port`. `is_busy`: the driver has many
    /// half-open connections of all ports.
    pub(crate) fn admission(&self, port: u16, is_busy: bool) -> Admission {
        let Some(port) = self.get(port) else { return Admission::Full };
        if !port.has_space() {
            Admission::Full
        } else if is_busy || port.half_open.load(Ordering::Relaxed) >= port.bounds.half_open_max {
            Admission::Cookie
        } else {
            Admission::Connection
        }
    }

    /// Returns whether the application may get one more connected peer.
    pub(crate) fn has_space(&self, port: u16) -> bool {
        self.get(port).is_some_and(|port| port.has_space())
    }

    /// Returns the key of the digests of a port's segments.
    pub(crate) fn md5(&self, port: u16) -> Option<&Md5Key> {
        self.get(port)?.bounds.md5.as_ref()
    }

    pub(crate) fn on_cookie_sent(&mut self, now: Instant) {
        self.cookies_until = Some(now + tcp::COOKIE_LIFETIME);
    }

    /// Returns whether a sent cookie may still come back.
    pub(crate) fn awaits_cookies(&mut self, now: Instant) -> bool {
        self.cookies_until = self.cookies_until.filter(|until| now < *until);
        self.cookies_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners() -> (Arc<ListeningPorts>, Listeners) {
        let ports = Arc::<ListeningPorts>::default();
        (Arc::clone(&ports), Listeners::new(ports))
    }

    #[test]
    fn beyond_the_half_open_ones_come_cookies_and_beyond_the_backlog_nothing() {
        let (ports, mut listeners) = listeners();
        let port = ports.add(80, Listen::default().with_half_open_max(2).with_backlog(1)).unwrap();
        ports.add(81, Listen::default()).unwrap();
        listeners.refresh();
        assert_eq!(listeners.admission(80, true), Admission::Cookie, "the driver is busy");
        for _ in 0..2 {
            assert_eq!(listeners.admission(80, false), Admission::Connection);
            port.on_half_open();
        }
        assert_eq!(listeners.admission(80, false), Admission::Cookie);
        assert_eq!(listeners.admission(81, false), Admission::Connection, "each port has its own");
        port.on_half_open_left();
        assert_eq!(listeners.admission(80, false), Admission::Connection);
        port.on_waiting();
        assert!(listeners.admission(80, false) == Admission::Full && !listeners.has_space(80));
        assert!(listeners.has_space(81) && !listeners.has_space(82));
        port.on_accepted();
        assert!(listeners.has_space(80));
    }

    #[test]
    fn acknowledgements_may_be_cookies_only_after_some_were_sent() {
        let (_, mut listeners) = listeners();
        let now = Instant::ZERO;
        assert!(!listeners.may_complete() && !listeners.awaits_cookies(now));
        listeners.on_cookie_sent(now);
        assert!(listeners.may_complete() && listeners.awaits_cookies(now));
        assert!(!listeners.awaits_cookies(now + tcp::COOKIE_LIFETIME) && !listeners.may_complete());
    }

    #[test]
    fn a_port_has_one_listener_at_a_time_and_zero_means_any() {
        let (ports, mut listeners) = listeners();
        let first = ports.add(80, Listen::default()).unwrap();
        assert_eq!(ports.add(80, Listen::default()).unwrap_err(), ListenError::InUse(80));
        let chosen = [0, 0].map(|port| ports.add(port, Listen::default()).unwrap().port);
        assert_eq!(chosen, [DYNAMIC_FIRST, DYNAMIC_FIRST + 1]);
        assert!(!listeners.contains(80), "it has not looked");
        listeners.refresh();
        assert!(listeners.contains(80) && listeners.contains(DYNAMIC_FIRST));
        ports.remove(&first);
        let second = ports.add(80, Listen::default()).unwrap();
        assert_ne!(first.queue, second.queue);
        // A listener closed before does not close the new one.
        ports.remove(&first);
        listeners.refresh();
        assert!(listeners.contains(80));
        ports.remove(&second);
        listeners.refresh();
        assert!(!listeners.contains(80));
    }
}
