//! Blocks of selective acknowledgements (RFC 2018).

use std::fmt;

use units::Seq32;

/// Maximum number of blocks that fit into the 40 bytes of options (RFC 2018, section 3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// Blocks of received data: the first number of each, and the one after its last. They are in wire
/// order: the first block contains the latest segment, or is a duplicate (RFC 2883).
#[derive(Copy, Clone, Default)]
pub struct SackBlocks {
    blocks: [(Seq32, Seq32); SACK_BLOCKS_MAX],
    /// Number of blocks, at most [`SACK_BLOCKS_MAX`].
    count: u8,
}

impl SackBlocks {
    /// Appends a block. Returns false, without a change, if there is no space for it.
    #[inline]
    pub fn push(&mut self, start: Seq32, end: Seq32) -> bool {
        let Some(block) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *block = (start, end);
        self.count += 1;
        true
    }

    /// Returns the blocks, in wire order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Seq32, Seq32)> + '_ {
        self.as_slice().iter().copied()
    }

    /// Returns the number of blocks.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns whether there is no block.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the blocks, in wire order.
    #[inline]
    pub fn as_slice(&self) -> &[(Seq32, Seq32)] {
        &self.blocks[..usize::from(self.count)]
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.iter().map(|(start, end)| start.get()..end.get());
        f.debug_list().entries(ranges).finish()
    }
}
