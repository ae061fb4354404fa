//! Errors of frames.

use std::fmt;

use crate::quic::error::ErrorCode;
use crate::quic::reader::UnexpectedEnd;

/// A frame that cannot be parsed. The peer is at fault; the connection is closed with `code`.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct FrameError {
    /// Type of the frame; 0 if the type could not be read.
    pub frame_type: u64,
    /// A human-readable description of the error. It is sent in the CONNECTION_CLOSE frame.
    pub reason: &'static str,
    /// The error code to close the connection with.
    pub code: ErrorCode,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: frame {:#x}: {}", self.code, self.frame_type, self.reason)
    }
}

impl std::error::Error for FrameError {}

/// An error in a frame of known type: the reason and the code of a [`FrameError`].
#[derive(Debug, Copy, Clone)]
pub(super) struct Fault {
    reason: &'static str,
    code: ErrorCode,
}

impl Fault {
    /// Returns an error answered with FRAME_ENCODING_ERROR.
    #[inline]
    pub(super) const fn encoding(reason: &'static str) -> Self {
        Self { reason, code: ErrorCode::FRAME_ENCODING_ERROR }
    }

    /// Returns an error answered with PROTOCOL_VIOLATION.
    #[inline]
    pub(super) const fn violation(reason: &'static str) -> Self {
        Self { reason, code: ErrorCode::PROTOCOL_VIOLATION }
    }

    #[inline]
    pub(super) const fn in_frame(self, frame_type: u64) -> FrameError {
        FrameError { frame_type, reason: self.reason, code: self.code }
    }
}

impl From<UnexpectedEnd> for Fault {
    #[inline]
    fn from(_: UnexpectedEnd) -> Self {
        Self::encoding("the packet ends inside the frame")
    }
}
