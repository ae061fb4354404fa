//! The error of reading untrusted bytes.

use wire::quic::UnexpectedEnd;

/// Error for malformed bytes; the text is the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

impl From<UnexpectedEnd> for Malformed {
    fn from(_: UnexpectedEnd) -> Self {
        Self("a field is cut off")
    }
}
