//! Errors at the start of links.

use core::fmt;
use std::error::Error;

/// The links could not be started. The message names the link and the remedy.
#[derive(Debug)]
pub struct StartError {
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StartError {
    pub(crate) const fn new(what: String) -> Self {
        Self { what, source: None }
    }

    /// Creates an error that concerns `what`.
    pub(crate) fn with_source(what: String, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { what, source: Some(error.into()) }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
