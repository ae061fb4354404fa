//! [`Side`]: what this side of terminated connections has.

use std::time::Duration;

use litz::tcp::TcpStack;
use tunnel::UrgentKinds;

/// How long an attempt waits for a stream, of which the peer bounds the number.
pub(super) const STREAM_TIME: Duration = Duration::from_secs(10);

/// This side of terminated connections.
pub(super) struct Side {
    pub(super) stack: TcpStack,
    /// Kinds of data that pass others.
    pub(super) urgent: UrgentKinds,
}
