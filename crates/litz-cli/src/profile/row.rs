//! The rows of a profile: the driver's activities, the larger ones divided into parts.

use litz::{Activity, ActivityKind};
use serde::Serialize;

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Sending,
    Receiving,
}

/// A part of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole activity, which is not divided.
    Whole,
    /// Copying the payload.
    Copy,
    /// The packet cipher.
    Cipher,
    /// Header protection.
    HeaderCipher,
    /// The cost of a batch regardless of its number of packets: the work of the receive half.
    Absorb,
    /// The rest of the activity.
    Rest,
    /// Reading from a file.
    FileRead,
    /// Hashing the data read or written.
    FileHash,
    /// Writing to a file.
    FileWrite,
}

/// How a figure was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// Measured by the clock in the run.
    Metered,
    /// Measured separately, between the calls of the same run, on buffers of the same size.
    Calibrated,
    /// The metered activity less the calibrated costs of its other parts.
    Rest,
}

/// Whether processors can share the work, for the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Serial,
    Parallel,
    System,
}

impl Kind {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Parallel => "parallel",
            Self::System => "system",
        }
    }
}

/// The subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) activity: Activity,
    pub(crate) part: Part,
}

impl End {
    /// The name in files and in tables.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Sending => "sending",
            Self::Receiving => "receiving",
        }
    }

    /// The parts of the activity at this end, with the rest last. The sending end seals data and the
    /// receiving end opens it. The acknowledgements in the other direction are too few to divide.
    pub(crate) const fn parts(self, activity: Activity) -> &'static [Part] {
        match (self, activity) {
            (Self::Sending, Activity::Seal) => &[Part::Copy, Part::Cipher, Part::HeaderCipher, Part::Rest],
            (Self::Receiving, Activity::OpenAbsorb) => &[Part::Cipher, Part::HeaderCipher, Part::Absorb, Part::Rest],
            (Self::Receiving, Activity::Application) => &[Part::Copy, Part::Rest],
            (_, Activity::Waiting | Activity::TakenAway) => &[],
            _ => &[Part::Whole],
        }
    }

    /// The additional rows for files.
    pub(crate) const fn file_parts(self) -> &'static [Part] {
        match self {
            Self::Sending => &[Part::FileRead, Part::FileHash],
            Self::Receiving => &[Part::FileHash, Part::FileWrite],
        }
    }
}

impl Subject {
    /// A row for files.
    pub(crate) const fn file(part: Part) -> Self {
        Self { activity: Activity::Application, part }
    }

    /// The stable name in files.
    pub(crate) fn id(self) -> String {
        let part = match self.part {
            Part::Whole => return self.activity.id().to_owned(),
            Part::Copy => "copy",
            Part::Cipher => "cipher",
            Part::HeaderCipher => "header_cipher",
            Part::Absorb => "absorb",
            Part::Rest => "rest",
            Part::FileRead => return "file.read".to_owned(),
            Part::FileHash => return "file.hash".to_owned(),
            Part::FileWrite => return "file.write".to_owned(),
        };
        format!("{}.{part}", self.activity.id())
    }

    /// The name in tables.
    pub(crate) fn label(self, end: End) -> String {
        let acknowledgements = match (end, self.activity) {
            (End::Sending, Activity::OpenAbsorb | Activity::RecvCall | Activity::Route)
            | (End::Receiving, Activity::Plan | Activity::Seal | Activity::Report | Activity::SendCall) => " (acks)",
            _ => "",
        };
        let (activity, part) = match (self.activity, self.part) {
            (activity, Part::Whole) => return format!("{}{acknowledgements}", activity.label()),
            (Activity::OpenAbsorb, Part::Absorb) => return "absorb".to_owned(),
            (Activity::OpenAbsorb, Part::Rest) => ("open", "headers and parsing"),
            (Activity::OpenAbsorb, Part::Cipher) => ("open", "cipher"),
            (Activity::OpenAbsorb, Part::HeaderCipher) => ("open", "header cipher"),
            (Activity::Application, Part::Rest) => ("application", "the calls it makes"),
            (Activity::Application, Part::Copy) => ("application", "copy"),
            (Activity::Seal, Part::Rest) => ("seal", "headers"),
            (_, Part::FileRead) => ("file", "read"),
            (_, Part::FileHash) => ("file", "hash"),
            (_, Part::FileWrite) => ("file", "write"),
            (activity, Part::Copy) => (activity.label(), "copy"),
            (activity, Part::Cipher) => (activity.label(), "cipher"),
            (activity, Part::HeaderCipher) => (activity.label(), "header cipher"),
            (activity, Part::Absorb) => (activity.label(), "absorb"),
            (activity, Part::Rest) => (activity.label(), "rest"),
        };
        format!("{activity}: {part}")
    }

    pub(crate) const fn source(self) -> Source {
        match self.part {
            Part::Whole => Source::Metered,
            Part::Rest => Source::Rest,
            _ => Source::Calibrated,
        }
    }

    pub(crate) const fn kind(self) -> Kind {
        match (self.activity, self.part) {
            (_, Part::Copy | Part::Cipher | Part::HeaderCipher) => Kind::Parallel,
            // Any thread can read, hash and write its own segment.
            (_, Part::FileRead | Part::FileHash | Part::FileWrite) => Kind::Parallel,
            (_, Part::Absorb) => Kind::Serial,
            (Activity::OpenAbsorb, Part::Rest) => Kind::Parallel,
            (activity, _) => match activity.kind() {
                ActivityKind::Parallel => Kind::Parallel,
                ActivityKind::System => Kind::System,
                // Acknowledgements are short: their cost is mostly absorbing, which is serial.
                _ => Kind::Serial,
            },
        }
    }

    /// Whether the budget counts the row: all rows except cipher, copy, system calls and files.
    pub(crate) fn is_besides(self) -> bool {
        let excepted = matches!(
            self.part,
            Part::Copy | Part::Cipher | Part::HeaderCipher | Part::FileRead | Part::FileHash | Part::FileWrite
        );
        !excepted && self.kind() != Kind::System
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn row_names_are_unique_and_divided_activities_have_a_rest() {
        for end in [End::Sending, End::Receiving] {
            let (mut ids, mut labels) = (BTreeSet::new(), BTreeSet::new());
            for activity in Activity::ALL {
                let parts = end.parts(activity);
                assert!(parts.len() <= 1 || parts.last() == Some(&Part::Rest), "{activity:?}");
                for part in parts {
                    let subject = Subject { activity, part: *part };
                    assert!(ids.insert(subject.id()) && labels.insert(subject.label(end)), "{subject:?}");
                }
            }
        }
    }

    #[test]
    fn the_budget_excludes_cipher_copy_and_system_calls() {
        let besides = |activity, part| Subject { activity, part }.is_besides();
        assert!(!besides(Activity::Seal, Part::Cipher) && !besides(Activity::Application, Part::Copy));
        assert!(!besides(Activity::SendCall, Part::Whole) && !besides(Activity::Poll, Part::Whole));
        assert!(besides(Activity::Seal, Part::Rest) && besides(Activity::OpenAbsorb, Part::Absorb));
    }
}
