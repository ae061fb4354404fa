//! Cases that are run against every peer in both roles, and the table of their results.
//!
//! `peers/README.md` describes the programs and their protocol. [`peers`] lists them, [`cases`] what
//! is tried, [`process`] runs a program, [`ours`] is Litz in either role, and [`relay`] lies between
//! the two: it makes faults and reports what passed, so that a case does not have to believe either
//! side.

pub mod cases;
pub mod http3;
pub mod ours;
pub mod peers;
pub mod process;
pub mod relay;
pub mod run;
pub mod table;

use std::sync::LazyLock;

use aws_lc_rs::digest;

/// The pattern repeats after this many bytes, a prime, so that a misplaced chunk shows.
pub const PERIOD: usize = 65_521;

/// The pattern, often enough for a chunk at any offset.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |index: usize| ((index % PERIOD) as u32).wrapping_mul(2_654_435_761) >> 24;
    (0..PERIOD + crate::pattern::CHUNK_LEN).map(|index| byte(index) as u8).collect()
});

/// The bytes of the pattern at `offset`; `len` is at most [`CHUNK_LEN`](crate::pattern::CHUNK_LEN).
pub fn pattern(offset: u64, len: usize) -> &'static [u8] {
    let start = (offset % PERIOD as u64) as usize;
    &PATTERN[start..start + len]
}

/// Bytes as 64 hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of the first `len` bytes of the pattern.
pub fn pattern_hash(len: u64) -> digest::Digest {
    let (mut hash, mut offset) = (digest::Context::new(&digest::SHA256), 0);
    while offset < len {
        let chunk = (len - offset).min(crate::pattern::CHUNK_LEN as u64) as usize;
        hash.update(pattern(offset, chunk));
        offset += chunk as u64;
    }
    hash.finish()
}
