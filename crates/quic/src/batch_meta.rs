//! What a driver knows of datagrams that arrived together, besides their bytes and addresses.

use units::Ecn;

/// How datagrams that arrived together lie in their buffer, and how the network marked them.
///
/// A plain `usize` converts to the stride of datagrams that are Not-ECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMeta {
    /// Bytes of each datagram but the last, which may be shorter. At least 1.
    pub stride: usize,
    /// The ECN codepoint of all of them; `None` is Not-ECT.
    pub ecn: Option<Ecn>,
}

impl BatchMeta {
    /// With a stride that divides.
    pub(crate) fn checked(self) -> Self {
        Self { stride: self.stride.max(1), ..self }
    }

    /// How many datagrams `len` bytes are.
    pub(crate) fn count_in(&self, len: usize) -> u64 {
        len.div_ceil(self.stride) as u64
    }
}

impl From<usize> for BatchMeta {
    fn from(stride: usize) -> Self {
        Self { stride, ecn: None }
    }
}
