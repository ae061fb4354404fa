//! `Listeners`: the ports that accept connections, with their bounds.
//!
//! ```text
//!            half-open ≤ half_open_max          waiting ≤ backlog + half_open_max
//!  SYN ──▶ [ half-open connections ] ──▶ [ connected, wait for accept ] ──▶ application
//!    │  full                                ▲
//!    └────▶ answered with a cookie ── ACK ──┘ if waiting < backlog
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tcp::Md5Key;
use units::Instant;

/// What a listening port bounds.
///
/// Begin with the default, and set others with the `with_` methods.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listen {
    /// Connections whose handshake is not complete, at most. Beyond it SYNs are answered with cookies,
    /// which keep nothing, but say less of what the peer offers. Default: 256; each takes about 3 KB.
    pub half_open_max: usize,
    /// Connected peers that the application has not accepted. From then on, SYNs and the last segments of
    /// handshakes with cookies are dropped, so that peers try again. Connections that are half-open then
    /// are still completed. Default: 1024.
    pub backlog: usize,
    /// The key of digests that each segment of all peers carries (RFC 2385). Segments without a right one
    /// are dropped. Default: none, and segments with one are dropped.
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

/// How many connected peers of a port wait for the application. Their cells count it.
pub(crate) type Waiting = Arc<AtomicUsize>;

/// The listening ports of one driver.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    by_port: BTreeMap<u16, Listener>,
    /// A cookie that was sent may come back until then.
    cookies_until: Option<Instant>,
}

#[derive(Debug)]
struct Listener {
    bounds: Listen,
    half_open: usize,
    waiting: Waiting,
}

/// What happens to a SYN.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It begins a connection.
    Connection,
    /// It is answered with a cookie.
    Cookie,
    /// It is dropped, because the application does not accept.
    Full,
}

impl Listeners {
    pub(crate) fn add(&mut self, port: u16, bounds: Listen) {
        self.by_port.insert(port, Listener { bounds, half_open: 0, waiting: Waiting::default() });
    }

    pub(crate) fn contains(&self, port: u16) -> bool {
        self.by_port.contains_key(&port)
    }

    /// Whether an acknowledgement to this port may complete a handshake with a cookie.
    pub(crate) fn may_complete(&self, port: u16) -> bool {
        self.cookies_until.is_some() && self.contains(port)
    }

    /// What happens to a SYN to `port`, which listens. `is_busy`: the driver has many half-open
    /// connections of all ports.
    pub(crate) fn admission(&self, port: u16, is_busy: bool) -> Admission {
        let Some(listener) = self.by_port.get(&port) else { return Admission::Full };
        if !self.has_space(port) {
            Admission::Full
        } else if is_busy || listener.half_open >= listener.bounds.half_open_max {
            Admission::Cookie
        } else {
            Admission::Connection
        }
    }

    /// Whether the application may get one more connected peer.
    pub(crate) fn has_space(&self, port: u16) -> bool {
        let has_space = |listener: &Listener| listener.waiting.load(Ordering::Relaxed) < listener.bounds.backlog;
        self.by_port.get(&port).is_some_and(has_space)
    }

    /// The key of the digests of a port's segments.
    pub(crate) fn md5(&self, port: u16) -> Option<&Md5Key> {
        self.by_port.get(&port)?.bounds.md5.as_ref()
    }

    /// Counts the connected peers of a port.
    pub(crate) fn waiting(&self, port: u16) -> Waiting {
        self.by_port.get(&port).map(|listener| Arc::clone(&listener.waiting)).unwrap_or_default()
    }

    pub(crate) fn on_half_open(&mut self, port: u16) {
        if let Some(listener) = self.by_port.get_mut(&port) {
            listener.half_open += 1;
        }
    }

    /// A half-open connection is complete, or was given up.
    pub(crate) fn on_half_open_left(&mut self, port: u16) {
        if let Some(listener) = self.by_port.get_mut(&port) {
            listener.half_open = listener.half_open.checked_sub(1).expect("it was counted");
        }
    }

    pub(crate) fn on_cookie_sent(&mut self, now: Instant) {
        self.cookies_until = Some(now + tcp::COOKIE_LIFETIME);
    }

    /// Whether a cookie that was sent may still come back.
    pub(crate) fn awaits_cookies(&mut self, now: Instant) -> bool {
        self.cookies_until = self.cookies_until.filter(|until| now < *until);
        self.cookies_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_half_open_ones_come_cookies_and_beyond_the_backlog_nothing() {
        let mut listeners = Listeners::default();
        listeners.add(80, Listen::default().with_half_open_max(2).with_backlog(1));
        listeners.add(81, Listen::default());
        assert_eq!(listeners.admission(80, true), Admission::Cookie, "the driver is busy");
        for _ in 0..2 {
            assert_eq!(listeners.admission(80, false), Admission::Connection);
            listeners.on_half_open(80);
        }
        assert_eq!(listeners.admission(80, false), Admission::Cookie);
        assert_eq!(listeners.admission(81, false), Admission::Connection, "each port has its own");
        listeners.on_half_open_left(80);
        assert_eq!(listeners.admission(80, false), Admission::Connection);
        listeners.waiting(80).fetch_add(1, Ordering::Relaxed);
        assert!(listeners.admission(80, false) == Admission::Full && !listeners.has_space(80));
        assert!(listeners.has_space(81) && !listeners.has_space(82));
    }

    #[test]
    fn acknowledgements_may_be_cookies_only_after_some_were_sent() {
        let mut listeners = Listeners::default();
        listeners.add(80, Listen::default());
        let now = Instant::ZERO;
        assert!(!listeners.may_complete(80) && !listeners.awaits_cookies(now));
        listeners.on_cookie_sent(now);
        assert!(listeners.may_complete(80) && !listeners.may_complete(81) && listeners.awaits_cookies(now));
        assert!(!listeners.awaits_cookies(now + tcp::COOKIE_LIFETIME) && !listeners.may_complete(80));
    }
}
