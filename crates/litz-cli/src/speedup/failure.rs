//! Why there is no result.

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A message for the user.
    Error(String),
    /// The user interrupted the command.
    Interrupted,
}
