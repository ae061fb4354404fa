//! The limits of a replicated stream.

/// Limit per channel on bytes written and not taken by the peer's application: more than the queues
/// of a connection hold. It bounds the memory of the receiver.
pub(super) const WINDOW_PER_CHANNEL: u64 = 8 << 20;

/// The same limit in chunks: small writes make small chunks.
pub(super) const CHUNKS_PER_CHANNEL: u64 = 4096;

/// Limit on the channels of a stream.
pub(super) const CHANNELS_MAX: usize = 64;
