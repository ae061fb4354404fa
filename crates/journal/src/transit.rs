//! Messages in transit between a connection and its detached receive half, in a replay.

use std::collections::VecDeque;

/// Maximum number of messages of one kind in transit: more than the rings of any engine hold.
const IN_TRANSIT_MAX: usize = 4096;

/// The recorded result and the different one of the replay, as text.
pub type Mismatch = (String, String);

/// Messages of one kind that were given but not taken yet.
#[derive(Debug)]
pub struct InTransit<T>(VecDeque<(u64, T)>);

impl<T> Default for InTransit<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> InTransit<T> {
    /// Puts a message in transit, after a check of its number.
    ///
    /// # Errors
    /// If there is no message, it has another number, or too many are in transit.
    pub fn give(&mut self, given: Option<(u64, T)>, number: u64) -> Result<(), Mismatch> {
        let expected = || format!("number {number}");
        let given = given.ok_or_else(|| (expected(), "nothing to give".to_owned()))?;
        if given.0 != number {
            return Err((expected(), format!("number {}", given.0)));
        }
        if self.0.len() >= IN_TRANSIT_MAX {
            return Err((format!("at most {IN_TRANSIT_MAX} in transit"), "more".to_owned()));
        }
        self.0.push_back(given);
        Ok(())
    }

    /// Takes the message of this number; earlier ones were lost.
    ///
    /// # Errors
    /// If it was not given.
    pub fn take(&mut self, number: u64) -> Result<T, Mismatch> {
        while let Some((given, message)) = self.0.pop_front() {
            if given == number {
                return Ok(message);
            }
        }
        Err((format!("number {number}"), "none of this number was given".to_owned()))
    }

    /// Returns the messages in transit.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, message)| message)
    }
}
