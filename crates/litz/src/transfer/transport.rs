//! What a transfer needs of the connection under it.

use crate::TransportConfig;

use super::segment::BASE_LOG2_DEFAULT;

/// Data streams that the receiver reads at the same time, and so how many the sender may have open.
///
/// Paths of unlike delay finish their parts of a segment at different times, and the segment keeps its stream until the last
/// byte is there. The others must suffice for the faster paths until then: 64 MiB are 1.8 Gb/s for 300 ms.
pub const STREAMS_MAX: usize = 16;

/// Bytes that a stream may bring before anybody reads it: a segment of the usual length, its frame and hash. So no segment
/// waits for credit of its own.
const STREAM_WINDOW: u64 = (1 << BASE_LOG2_DEFAULT) + (64 << 10);

/// `base` with the streams and credit that suit a transfer, at either end.
///
/// Every stream has a reader, so whatever arrives is read, and the credit that it held comes back: no stream can hold so much
/// that the others wait for ever.
#[must_use]
pub fn transport(base: TransportConfig) -> TransportConfig {
    TransportConfig {
        max_concurrent_uni_streams: STREAMS_MAX as u64,
        stream_window: STREAM_WINDOW.min(base.stream_window_max),
        connection_window: base.connection_window_max,
        ..base
    }
}
