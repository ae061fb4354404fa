//! Bytes in the place of payload, which no journal has.

use std::sync::LazyLock;

use bytes::Bytes;

/// The most bytes that one call may take of a chunk.
const ZEROS_LEN: usize = 64 << 20;

/// Zeros that all chunks of all replays share. Made once, because mapping and unmapping them costs
/// more than a short replay. Pages that no replay touches take no memory.
static ZEROS: LazyLock<&[u8]> = LazyLock::new(|| vec![0; ZEROS_LEN].leak());

/// All of them.
pub fn all() -> Bytes {
    Bytes::from_static(*ZEROS)
}

/// As many of `len` as there are. No send buffer takes more.
pub fn take(len: usize) -> Bytes {
    all().slice(..len.min(ZEROS_LEN))
}
