//! [`StartError`]: reasons why an engine could not be started.

use std::{fmt, io};

/// Reason why the engine could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is invalid, for the reason in the text.
    Configuration(String),
    /// The operating system refused an operation: its description and the error.
    System(&'static str, io::Error),
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        let kind = match &error {
            StartError::Configuration(_) => io::ErrorKind::InvalidInput,
            StartError::System(_, error) => error.kind(),
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(text) => f.write_str(text),
            Self::System(operation, error) => write!(f, "cannot {operation}: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(_, error) => Some(error),
            Self::Configuration(_) => None,
        }
    }
}
