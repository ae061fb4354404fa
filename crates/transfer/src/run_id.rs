//! The run id: distinguishes the runs of senders that have the same key and the same ticket.

use std::fmt;

use super::ticket::TicketError;

/// A random number that one run of a sender generates and sends with each of its attempts. A
/// receiver uses it to recognise a sender that has reconnected. It is not secret and proves
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId([u8; RUN_ID_LEN]);

impl RunId {
    /// Creates a new one.
    ///
    /// # Errors
    /// [`TicketError::Content`] if the system provides no randomness.
    pub fn generate() -> Result<Self, TicketError> {
        let mut bytes = [0; RUN_ID_LEN];
        #[expect(clippy::disallowed_methods, reason = "two runs must not draw the same id")]
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| TicketError::Content("the system provided no randomness"))?;
        Ok(Self(bytes))
    }

    /// Creates a run id as received.
    pub const fn from_bytes(bytes: [u8; RUN_ID_LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to send.
    pub const fn as_bytes(&self) -> &[u8; RUN_ID_LEN] {
        &self.0
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({:032x})", u128::from_be_bytes(self.0))
    }
}

/// Length of a run id in bytes: two random ones are equal with a probability of 2^-128.
const RUN_ID_LEN: usize = 16;
