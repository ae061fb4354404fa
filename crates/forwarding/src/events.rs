//! [`Events`]: what becomes of forwarded connections and flows.

use std::fmt::Display;

use super::carry::{Broken, Carried};

/// A forwarded connection or flow, for the user.
#[derive(Clone, Debug)]
pub struct Label {
    /// Tells it from the others.
    pub number: u64,
    /// Where it came from: an address, or the client.
    pub from: String,
    /// Where it leads.
    pub target: String,
}

/// Takes what becomes of forwarded connections and flows. The tasks that carry them call it, and wait for it.
pub trait Events: Send + Sync {
    /// Returns a number and a name for a connection or a flow.
    fn label(&self, from: &dyn Display, target: &dyn Display) -> Label;

    /// It is connected.
    fn opened(&self, label: &Label);

    /// It is not connected, for a `reason` in one word, and a message that says more.
    fn refused(&self, label: &Label, reason: &str, message: &str);

    /// It has ended, after so many bytes, and in order or not.
    fn closed(&self, label: &Label, carried: &Carried, result: &Result<(), Broken>);
}
