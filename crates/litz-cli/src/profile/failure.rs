//! Why there is no profile.

/// Why there is no profile.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A message for the user.
    Error(String),
    /// The user interrupted the command.
    Interrupted,
}

/// The message of an error.
pub(super) fn to_message(error: impl std::fmt::Display) -> String {
    error.to_string()
}
