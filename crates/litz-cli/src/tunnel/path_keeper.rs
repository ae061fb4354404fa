//! [`PathKeeper`]: keeps paths that carry nothing known to routers that translate addresses.

use bytes::Bytes;
use litz::{Connection, DatagramPaths};
use net::MonotonicClock;
use units::{Duration, Instant};

/// How often each path carries a packet. Routers forget a flow of UDP after as little as 30 s (RFC 9000, section
/// 10.1.2), and one that was started again has forgotten all: until the client sends, nothing gets through to
/// it on that path. Keep-alives of QUIC are of the connection, and one busy path makes them unnecessary.
const INTERVAL: Duration = Duration::from_secs(5);

/// A connection of a client.
pub(crate) struct PathKeeper {
    connection: Connection,
    clock: MonotonicClock,
    next: Instant,
}

impl PathKeeper {
    pub(crate) fn new(connection: Connection) -> Self {
        let clock = MonotonicClock::start();
        Self { connection, next: clock.now() + INTERVAL, clock }
    }

    /// Sends a datagram without items on each path if it is time. It does not count as use of a path for the
    /// order of flows.
    pub(crate) fn look(&mut self) {
        let now = self.clock.now();
        if now >= self.next {
            self.next = now + INTERVAL;
            // The connection has ended, or so much waits that each path carries packets.
            let _unneeded = self.connection.send_datagram_on(Bytes::new(), DatagramPaths::Copies(u8::MAX));
        }
    }
}
