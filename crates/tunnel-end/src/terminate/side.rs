//! [`Side`]: what this side of terminated connections has.

use std::time::Duration;

use tcp_stack::TcpStack;
use tunnel::UrgentKinds;

/// How long an attempt waits for a stream, of which the peer bounds the number.
pub(crate) const STREAM_TIME: Duration = Duration::from_secs(10);

/// This side of terminated connections.
pub(crate) struct Side {
    pub(crate) stack: TcpStack,
    /// Kinds of data that pass others.
    pub(crate) urgent: UrgentKinds,
}
