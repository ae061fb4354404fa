//! A status in several messages. It lists each path of each server, so that it may not fit into one
//! message.

use super::{MESSAGE_LEN_MAX, Reply};
use crate::malformed::Malformed;

/// Length limit of a status over all its messages, in bytes. The status of 16 servers with 32 paths
/// each, and of all programs with all their publications, has about 640 KB.
pub const STATUS_LEN_MAX: usize = 1 << 20;

/// Length limit of the text in a message, after its version and type.
pub(super) const PART_LEN_MAX: usize = MESSAGE_LEN_MAX - 2;

impl Reply {
    /// Returns the messages that answer [`Request::Status`](super::Request::Status) with this text.
    /// Returns `None` if it is longer than [`STATUS_LEN_MAX`].
    #[must_use]
    pub fn status(text: &str) -> Option<Vec<Self>> {
        if text.len() > STATUS_LEN_MAX {
            return None;
        }
        let (mut replies, mut rest) = (Vec::new(), text);
        while rest.len() > PART_LEN_MAX {
            // Characters are not split, so that each text is UTF-8.
            let len = (0..=PART_LEN_MAX).rev().find(|len| rest.is_char_boundary(*len)).unwrap_or(0);
            let (part, others) = rest.split_at(len);
            replies.push(Self::StatusPart(part.to_owned()));
            rest = others;
        }
        replies.push(Self::Status(rest.to_owned()));
        Some(replies)
    }
}

/// The part of a status received so far.
#[derive(Debug, Default)]
pub struct StatusParts {
    text: String,
}

impl StatusParts {
    /// Adds the text of a [`Reply::StatusPart`].
    ///
    /// # Errors
    /// Fails if the status is longer than [`STATUS_LEN_MAX`].
    pub fn add(&mut self, part: &str) -> Result<(), Malformed> {
        if self.text.len() + part.len() > STATUS_LEN_MAX {
            return Err(Malformed("a status is too long"));
        }
        self.text.push_str(part);
        Ok(())
    }

    /// Returns the whole text, including the final [`Reply::Status`].
    ///
    /// # Errors
    /// Same errors as [`add`](Self::add).
    pub fn finish(mut self, end: &str) -> Result<String, Malformed> {
        self.add(end)?;
        Ok(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a status and decodes it again. Returns the number of messages.
    fn exchange(text: &str) -> usize {
        let mut messages = Reply::status(text).expect("it is short enough").into_iter().map(|reply| reply.encode());
        let (mut parts, count) = (StatusParts::default(), messages.len());
        let end = loop {
            let message = messages.next().expect("one is the last");
            assert!(message.len() <= MESSAGE_LEN_MAX);
            match Reply::decode(&message).expect("a reply") {
                Reply::StatusPart(part) => parts.add(&part).expect("it is short enough"),
                Reply::Status(end) => break end,
                other => panic!("{other:?}"),
            }
        };
        assert!(parts.finish(&end).expect("it is short enough") == text && messages.next().is_none());
        count
    }

    #[test]
    fn a_status_of_any_length_within_the_bound_arrives_whole() {
        for (len, messages) in [
            (0, 1),
            (PART_LEN_MAX, 1),
            (PART_LEN_MAX + 1, 2),
            (2 * PART_LEN_MAX, 2),
            (2 * PART_LEN_MAX + 1, 3),
            (STATUS_LEN_MAX, 33),
        ] {
            assert_eq!(exchange(&"x".repeat(len)), messages, "{len}");
        }
        // A letter of two bytes is not split.
        assert_eq!(exchange(&format!("x{}", "ü".repeat(PART_LEN_MAX / 2))), 2);
    }

    #[test]
    fn a_status_beyond_the_bound_is_neither_sent_nor_kept() {
        assert_eq!(Reply::status(&"x".repeat(STATUS_LEN_MAX + 1)), None);
        let mut parts = StatusParts::default();
        let part = "x".repeat(PART_LEN_MAX);
        (0..STATUS_LEN_MAX / PART_LEN_MAX).for_each(|_| parts.add(&part).expect("it is short enough"));
        assert_eq!(parts.add(&part), Err(Malformed("a status is too long")));
        assert!(parts.finish(&part).is_err());
    }
}
