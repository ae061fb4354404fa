//! [`TcpInfo`]: an application's view of the state of a connection.

use tcp::{Connection, ReceiveStats, SendStats, State};
use units::Duration;

/// The state of a connection at one moment, and its counters.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TcpInfo {
    /// The state of RFC 9293, section 3.3.2.
    pub state: State,
    /// Smoothed round trip; a third of a second before the first measurement.
    pub rtt: Duration,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes of data in a full segment.
    pub segment: u64,
    /// Bytes written and not sent.
    pub unsent: u64,
    /// Bytes received that wait in the connection for their reader.
    pub readable: u64,
    /// Counters of the send half.
    pub sent: SendStats,
    /// Counters of the receive half.
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
