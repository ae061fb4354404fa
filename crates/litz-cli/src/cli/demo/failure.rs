//! Why a demo ends without a report.

/// Why there is no report.
#[derive(Debug)]
pub(super) enum Failure {
    /// A message for the user.
    Error(String),
    /// The user interrupted the demo.
    Interrupted,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Error(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::Error(message.to_owned())
    }
}
