//! What others see of the packets of a link.

use std::sync::Arc;

use units::Instant;

/// A packet at one end of a link.
#[derive(Debug)]
pub struct TappedPacket<'a> {
    /// The time, of the clock with which the links were started.
    pub at: Instant,
    /// From left to right.
    pub is_forward: bool,
    /// It enters the link; otherwise it leaves it.
    pub is_sent: bool,
    /// The IP packet. The checksum of a packet that the kernel has not completed is incomplete.
    pub ip: &'a [u8],
}

/// Gets every packet of a link at both its ends, on the thread of the link, which waits for it.
pub type Tap = Arc<dyn Fn(&TappedPacket<'_>) + Send + Sync>;
