//! The algorithms by name.

use core::fmt;
use core::str::FromStr;

/// The available algorithms. Parsed and displayed as `newreno`, `cubic`, `bbr` and `prague`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 9002, section 7.3 and appendix B, with standard slow start.
    NewReno,
    /// RFC 9438, with HyStart++ (RFC 9406) in the first slow start.
    #[default]
    Cubic,
    /// BBRv3 (draft-ietf-ccwg-bbr-06). Needs delivery-rate samples: see [`super::AckEvent::rate`].
    Bbr,
    /// For networks with L4S queues (RFC 9330 to 9332) only: see [`super::prague`].
    Prague,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 4] = [Self::NewReno, Self::Cubic, Self::Bbr, Self::Prague];

    /// Returns the name in its displayed and parsed form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Prague => "prague",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error: the name is not a known algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseAlgorithmError {
    input: String,
}

impl fmt::Display for ParseAlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown congestion control algorithm {:?}: expected newreno, cubic, bbr or prague", self.input)
    }
}

impl std::error::Error for ParseAlgorithmError {}

impl FromStr for Algorithm {
    type Err = ParseAlgorithmError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(input.trim()));
        found.ok_or_else(|| ParseAlgorithmError { input: input.to_owned() })
    }
}
