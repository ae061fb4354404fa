//! The rows of a profile: the driver's stages, the larger ones in parts.

use litz::{Stage, StageKind};
use serde::Serialize;

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Sending,
    Receiving,
}

/// A part of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The stage has no parts.
    Whole,
    /// Moving the payload.
    Copy,
    /// The packet cipher.
    Cipher,
    /// The header cipher.
    HeaderCipher,
    /// What a batch costs however many packets it has: what the receive half does.
    Absorb,
    /// The rest of the stage.
    Rest,
    /// Reading from a file.
    FileRead,
    /// Hashing what was read or written.
    FileHash,
    /// Writing to a file.
    FileWrite,
}

/// How a figure was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// By the clock, in the run.
    Metered,
    /// By the clock, alone, between the calls of the same run, on buffers of the same size.
    Calibrated,
    /// What was metered for the stage, less what was calibrated for its other parts.
    Rest,
}

/// Who may do it, as the bounds count it.
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

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) stage: Stage,
    pub(crate) part: Part,
}

impl End {
    /// Its name in files and for people.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Sending => "sending",
            Self::Receiving => "receiving",
        }
    }

    /// What the stage is divided into at this end, the rest last. Data are sealed here and opened there; the other way
    /// go acknowledgements, too few to divide.
    pub(crate) const fn parts(self, stage: Stage) -> &'static [Part] {
        match (self, stage) {
            (Self::Sending, Stage::Seal) => &[Part::Copy, Part::Cipher, Part::HeaderCipher, Part::Rest],
            (Self::Receiving, Stage::OpenAbsorb) => &[Part::Cipher, Part::HeaderCipher, Part::Absorb, Part::Rest],
            (Self::Receiving, Stage::Application) => &[Part::Copy, Part::Rest],
            (_, Stage::Waiting | Stage::TakenAway) => &[],
            _ => &[Part::Whole],
        }
    }

    /// The rows that a file adds.
    pub(crate) const fn file_parts(self) -> &'static [Part] {
        match self {
            Self::Sending => &[Part::FileRead, Part::FileHash],
            Self::Receiving => &[Part::FileHash, Part::FileWrite],
        }
    }
}

impl Subject {
    /// A row of the file's.
    pub(crate) const fn file(part: Part) -> Self {
        Self { stage: Stage::Application, part }
    }

    /// Its name in files: never changes.
    pub(crate) fn id(self) -> String {
        let part = match self.part {
            Part::Whole => return self.stage.id().to_owned(),
            Part::Copy => "copy",
            Part::Cipher => "cipher",
            Part::HeaderCipher => "header_cipher",
            Part::Absorb => "absorb",
            Part::Rest => "rest",
            Part::FileRead => return "file.read".to_owned(),
            Part::FileHash => return "file.hash".to_owned(),
            Part::FileWrite => return "file.write".to_owned(),
        };
        format!("{}.{part}", self.stage.id())
    }

    /// Its name for people.
    pub(crate) fn label(self, end: End) -> String {
        let acknowledgements = match (end, self.stage) {
            (End::Sending, Stage::OpenAbsorb | Stage::RecvCall | Stage::Route)
            | (End::Receiving, Stage::Plan | Stage::Seal | Stage::Report | Stage::SendCall) => " (acks)",
            _ => "",
        };
        let (stage, part) = match (self.stage, self.part) {
            (stage, Part::Whole) => return format!("{}{acknowledgements}", stage.label()),
            (Stage::OpenAbsorb, Part::Absorb) => return "absorb".to_owned(),
            (Stage::OpenAbsorb, Part::Rest) => ("open", "headers and parsing"),
            (Stage::OpenAbsorb, Part::Cipher) => ("open", "cipher"),
            (Stage::OpenAbsorb, Part::HeaderCipher) => ("open", "header cipher"),
            (Stage::Application, Part::Rest) => ("application", "the calls it makes"),
            (Stage::Application, Part::Copy) => ("application", "copy"),
            (Stage::Seal, Part::Rest) => ("seal", "headers"),
            (_, Part::FileRead) => ("file", "read"),
            (_, Part::FileHash) => ("file", "hash"),
            (_, Part::FileWrite) => ("file", "write"),
            (stage, Part::Copy) => (stage.label(), "copy"),
            (stage, Part::Cipher) => (stage.label(), "cipher"),
            (stage, Part::HeaderCipher) => (stage.label(), "header cipher"),
            (stage, Part::Absorb) => (stage.label(), "absorb"),
            (stage, Part::Rest) => (stage.label(), "rest"),
        };
        format!("{stage}: {part}")
    }

    pub(crate) const fn source(self) -> Source {
        match self.part {
            Part::Whole => Source::Metered,
            Part::Rest => Source::Rest,
            _ => Source::Calibrated,
        }
    }

    pub(crate) const fn kind(self) -> Kind {
        match (self.stage, self.part) {
            (_, Part::Copy | Part::Cipher | Part::HeaderCipher) => Kind::Parallel,
            // Any thread reads, hashes and writes a segment of its own.
            (_, Part::FileRead | Part::FileHash | Part::FileWrite) => Kind::Parallel,
            (_, Part::Absorb) => Kind::Serial,
            (Stage::OpenAbsorb, Part::Rest) => Kind::Parallel,
            (stage, _) => match stage.kind() {
                StageKind::Parallel => Kind::Parallel,
                StageKind::System => Kind::System,
                // Acknowledgements are short: absorbing them is the work, and it is serial.
                _ => Kind::Serial,
            },
        }
    }

    /// Whether the budget of the plan counts it: all but cipher, copy, system calls and what is the file's.
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
    fn every_row_has_a_name_of_its_own_and_divided_stages_have_a_rest() {
        for end in [End::Sending, End::Receiving] {
            let (mut ids, mut labels) = (BTreeSet::new(), BTreeSet::new());
            for stage in Stage::ALL {
                let parts = end.parts(stage);
                assert!(parts.len() <= 1 || parts.last() == Some(&Part::Rest), "{stage:?}");
                for part in parts {
                    let subject = Subject { stage, part: *part };
                    assert!(ids.insert(subject.id()) && labels.insert(subject.label(end)), "{subject:?}");
                }
            }
        }
    }

    #[test]
    fn the_budget_leaves_out_cipher_copy_and_system_calls() {
        let besides = |stage, part| Subject { stage, part }.is_besides();
        assert!(!besides(Stage::Seal, Part::Cipher) && !besides(Stage::Application, Part::Copy));
        assert!(!besides(Stage::SendCall, Part::Whole) && !besides(Stage::Poll, Part::Whole));
        assert!(besides(Stage::Seal, Part::Rest) && besides(Stage::OpenAbsorb, Part::Absorb));
    }
}
