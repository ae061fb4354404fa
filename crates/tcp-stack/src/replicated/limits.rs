//! The limits of a replicated stream.

/// Bytes that were written and not taken by the application of the peer, for each channel, at most: more
/// than the queues of a connection hold. It bounds the memory of the receiver.
pub(super) const WINDOW_PER_CHANNEL: u64 = 8 << 20;

/// The same in chunks: small writes make small ones.
pub(super) const CHUNKS_PER_CHANNEL: u64 = 4096;

/// Channels of a stream, at most.
pub(super) const CHANNELS_MAX: usize = 64;
