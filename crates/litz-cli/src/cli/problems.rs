//! Problems of many files that have one cause, such as a full disk: a few of them are shown, the rest is
//! counted.

use transfer::{FileError, FileErrorKind};

/// The problems of a transfer, by kind.
#[derive(Default)]
pub(crate) struct Problems(Vec<Counted>);

struct Counted {
    kind: FileErrorKind,
    shown: u32,
    hidden: u64,
}

impl Problems {
    /// Counts `error`. Returns whether it is one of the first of its kind, which are shown.
    pub(crate) fn is_shown(&mut self, error: &FileError) -> bool {
        let index = self.0.iter().position(|counted| counted.kind == error.kind).unwrap_or_else(|| {
            self.0.push(Counted { kind: error.kind, shown: 0, hidden: 0 });
            self.0.len() - 1
        });
        let counted = &mut self.0[index];
        if counted.shown < SHOWN_MAX {
            counted.shown += 1;
            return true;
        }
        counted.hidden += 1;
        false
    }

    /// The kinds of which some were not shown since the last call, and how many.
    pub(crate) fn take_hidden(&mut self) -> Vec<(u64, FileErrorKind)> {
        let hidden = self.0.iter_mut().filter(|counted| counted.hidden > 0);
        hidden.map(|counted| (std::mem::take(&mut counted.hidden), counted.kind)).collect()
    }
}

/// Lines of one kind that tell more than their number.
const SHOWN_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_of_each_kind_are_shown_and_the_rest_is_counted() {
        let mut problems = Problems::default();
        let error = |kind| FileError::new(kind, "receiver: no space");
        let shown = (0..4886).filter(|_| problems.is_shown(&error(FileErrorKind::NoSpace))).count();
        assert_eq!(shown, 10);
        assert!(problems.is_shown(&error(FileErrorKind::Exists)));
        assert_eq!(problems.take_hidden(), [(4876, FileErrorKind::NoSpace)]);
        assert!(problems.take_hidden().is_empty());
    }
}
