//! Bytes that are different at every offset, so that a misplaced chunk shows.

/// Writers and readers move chunks of this many bytes.
pub const CHUNK_LEN: usize = 64 * 1024;

/// Fills `bytes`, which begin at `offset` of the stream.
pub fn fill(offset: u64, bytes: &mut [u8]) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        let at = offset + index as u64;
        *byte = (at ^ (at >> 8) ^ (at >> 17).wrapping_mul(31)) as u8;
    }
}

/// Checks bytes as they come.
#[derive(Debug, Default)]
pub struct Checker {
    offset: u64,
    expected: Vec<u8>,
}

impl Checker {
    /// Takes the next bytes.
    ///
    /// # Panics
    /// If they are not those of the pattern.
    pub fn take(&mut self, bytes: &[u8]) {
        self.expected.resize(bytes.len(), 0);
        fill(self.offset, &mut self.expected);
        assert!(self.expected == bytes, "wrong bytes in the {} after offset {}", bytes.len(), self.offset);
        self.offset += bytes.len() as u64;
    }

    /// How many bytes were right.
    pub fn taken(&self) -> u64 {
        self.offset
    }
}
