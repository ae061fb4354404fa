//! Bytes in place of payload, which no journal contains.

use std::sync::LazyLock;

use bytes::Bytes;

/// Maximum number of bytes that one call may take of a chunk.
const ZEROS_LEN: usize = 64 << 20;

/// Zeros shared by all chunks of all replays. They are allocated once, because mapping and
/// unmapping them costs more than a short replay. Pages that no replay touches take no memory.
static ZEROS: LazyLock<&[u8]> = LazyLock::new(|| vec![0; ZEROS_LEN].leak());

/// Returns all zeros.
pub fn all() -> Bytes {
    Bytes::from_static(*ZEROS)
}

/// Returns `len` zeros, or all of them if there are fewer. No send buffer takes more.
pub fn take(len: usize) -> Bytes {
    all().slice(..len.min(ZEROS_LEN))
}
