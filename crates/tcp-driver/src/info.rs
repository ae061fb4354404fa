//! [`TcpInfo`]: the state of a connection as an application sees it.

use tcp::{Connection, ReceiveStats, SendStats, State};
use units::Duration;

/// The state of a connection at one moment, and its counters.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TcpInfo {
    /// The state of RFC 9293, section 3.3.2.
    pub state: State,
    /// The smoothed round trip; a third of a second before it is measured.
    pub rtt: Duration,
    /// The congestion window, bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes of data in a full segment.
    pub segment: u64,
    /// Bytes that were written and not yet sent.
    pub unsent: u64,
    /// Bytes that were received and wait in the connection for their reader.
    pub readable: u64,
    /// Counters of what was sent.
    pub sent: SendStats,
    /// Counters of what was received.
    pub received: ReceiveStats,
}

impl TcpInfo {
    pub(crate) fn of(connection: &Connection) -> Self {
        let (congestion_window, in_flight) = connection.congestion();
        let stats = connection.stats();
        Self {
            state: connection.state(),
            rtt: connection.rtt(),
            congestion_window,
            in_flight,
            segment: connection.segment(),
            unsent: connection.unsent(),
            readable: connection.readable() as u64,
            sent: stats.send,
            received: stats.receive,
        }
    }
}
