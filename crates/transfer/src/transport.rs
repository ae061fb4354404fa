//! The transport parameters that a transfer needs.

use quic_endpoint::TransportConfig;

use super::segment::BASE_LOG2_DEFAULT;

/// Number of data streams that the receiver reads concurrently, and so that the sender may have
/// open.
///
/// Paths with different delays deliver their parts of a segment at different times, and a segment
/// occupies its stream until its last byte has arrived. The other streams must keep the faster
/// paths busy until then: 64 MiB are 1.8 Gb/s for 300 ms.
pub const STREAMS_MAX: usize = 16;

/// Credit of a stream before its first byte is read: a segment of the usual length, its frame and
/// hash. So no segment waits for stream credit.
const STREAM_WINDOW: u64 = (1 << BASE_LOG2_DEFAULT) + (64 << 10);

/// Returns `base` with the stream limits and flow-control credit of a transfer, for either end.
///
/// Every stream has a reader, so all arriving data is read and its connection credit is returned.
/// No stream can block the others by holding the credit.
#[must_use]
pub fn transport(base: TransportConfig) -> TransportConfig {
    let (stream_window, connection_window) = (STREAM_WINDOW.min(base.stream_window_max), base.connection_window_max);
    base.with_max_concurrent_uni_streams(STREAMS_MAX as u64)
        .with_stream_window(stream_window)
        .with_connection_window(connection_window)
}
