//! A transfer that was agreed upon over ssh: the one sender, and what it may store.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use litz::identity::PublicKey;
use transfer::{Filter, RelativePath};

/// Terms of a receiver that serves one sender, whose key it knows.
#[derive(Clone, Debug)]
pub(crate) struct Invitation {
    pub(crate) sender: PublicKey,
    /// The names that may be at the top of what is sent; any, if not given.
    pub(crate) roots: Option<BTreeSet<RelativePath>>,
    /// Whether to delete what the sent directories do not have, and the names to keep: at the wish of this
    /// host's user, or of the one who came by ssh.
    pub(crate) delete: Option<Filter>,
    pub(crate) peer: Arc<dyn Peer>,
}

/// The other end of the ssh connection.
pub(crate) trait Peer: Debug + Send + Sync {
    /// Begins to watch the connection. Called once, when this process has given up its rights.
    fn watch(&self);

    /// Passes the receiver's ticket on.
    ///
    /// # Errors
    /// A message for the user.
    fn announce(&self, ticket: &str) -> Result<(), String>;

    /// Whether the ssh connection has ended.
    fn has_left(&self) -> bool;

    /// Whether the receiver is to end although its transfer is not complete: its status, or a message.
    /// `is_idle` says that no sender is connected.
    fn ending(&self, is_idle: bool) -> Option<Result<u8, String>>;
}
