//! What the handshake has settled, as far as the send half depends on it.

use units::Duration;
use wire::quic::{ConnectionId, Side, Version};

use crate::control::idle_timer::KEEP_ALIVES_PER_IDLE_TIMEOUT;

/// The longest interval between two repetitions of the BLOCKED frames.
const REPEAT_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The progress of the handshake.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) is_complete: bool,
    pub(super) is_confirmed: bool,
    /// Multipath was negotiated: acknowledgements name their path.
    pub(super) is_multipath: bool,
    /// The server has shown that it validated our address, or we are the server (RFC 9002, section
    /// 6.2.2.1).
    pub(super) peer_validated_us: bool,
}

impl Progress {
    pub(super) fn new(side: Side) -> Self {
        Self { is_complete: false, is_confirmed: false, is_multipath: false, peer_validated_us: side == Side::Server }
    }
}

/// The values in long headers.
#[derive(Debug)]
pub(super) struct LongHeaders {
    pub(super) version: Version,
    /// Our connection ID.
    pub(super) local_id: ConnectionId,
    /// Of Initial packets.
    pub(super) token: Vec<u8>,
}

/// The interval between repetitions of the BLOCKED frames, from the idle timeouts of both sides,
/// of which zero means none.
pub(super) fn repeat_interval(ours: Duration, theirs: Duration) -> Duration {
    let shortest = [ours, theirs].into_iter().filter(|timeout| !timeout.is_zero()).min();
    shortest.map_or(REPEAT_INTERVAL_MAX, |timeout| REPEAT_INTERVAL_MAX.min(timeout / KEEP_ALIVES_PER_IDLE_TIMEOUT))
}
