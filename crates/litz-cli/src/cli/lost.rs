//! [`Lost`]: why a connection that a command keeps open ended, or was not made.

use super::connect::ConnectFailure;

/// Why a connection ended, or was not made.
pub(crate) struct Lost {
    pub(crate) message: String,
    /// No other attempt can succeed.
    pub(crate) is_final: bool,
    /// By the user.
    pub(crate) is_interrupt: bool,
}

impl Lost {
    /// Another attempt may succeed.
    pub(crate) fn passing(message: String) -> Self {
        Self { message, is_final: false, is_interrupt: false }
    }

    /// No other attempt can succeed.
    pub(crate) fn last(message: String) -> Self {
        Self { message, is_final: true, is_interrupt: false }
    }

    /// The user ended the command.
    pub(crate) fn interrupt() -> Self {
        Self { message: "interrupted".to_owned(), is_final: true, is_interrupt: true }
    }
}

impl From<ConnectFailure> for Lost {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Silent(message) | ConnectFailure::NoSuchPath(message) => Self::passing(message),
            ConnectFailure::WrongHost(message) => Self::last(message),
            ConnectFailure::Interrupted => Self::interrupt(),
        }
    }
}
