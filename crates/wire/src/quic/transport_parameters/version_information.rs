//! Versions that an endpoint uses and offers (RFC 9368 §3).

use crate::quic::reader::{Reader, UnexpectedEnd};

/// The parameter `version_information`: the versions that an endpoint uses and offers.
#[derive(Debug, Clone, Eq, PartialEq)]
pub struct VersionInformation {
    /// The version that the sender has chosen for the connection.
    pub chosen: u32,
    /// From a client: the versions with which it can continue, the preferred one first; `chosen` is
    /// one of them. From a server: the versions that it supports.
    pub available: Vec<u32>,
}

/// Reason why the value of the parameter is rejected.
pub(super) enum Refused {
    Length,
    Zero,
}

impl From<UnexpectedEnd> for Refused {
    fn from(_: UnexpectedEnd) -> Self {
        Self::Length
    }
}

impl VersionInformation {
    /// Parses the value (RFC 9368 §3).
    pub(super) fn parse(value: &mut Reader<'_>) -> Result<Self, Refused> {
        let chosen = value.u32()?;
        let mut available = Vec::with_capacity(value.remaining() / 4);
        while !value.is_empty() {
            available.push(value.u32()?);
        }
        // "If an endpoint receives a Chosen Version equal to zero, or any Available Version equal to
        // zero, it MUST treat it as a parsing failure" (RFC 9368 §4).
        if chosen == 0 || available.contains(&0) {
            return Err(Refused::Zero);
        }
        Ok(Self { chosen, available })
    }

    /// Returns the value in the format of [`Self::parse`].
    pub(super) fn value(&self) -> Vec<u8> {
        [self.chosen].iter().chain(&self.available).flat_map(|version| version.to_be_bytes()).collect()
    }
}
