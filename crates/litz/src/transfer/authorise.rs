//! Who may send: the receiver's decision, and what the sender shows for it.

use std::path::PathBuf;

use crate::identity::{AllowList, Proof, ProofContext, Refusal, Secret, TicketStore};

/// What the sender has to show besides its key.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A ticket's secret: the sender proves it, and demands the receiver's proof.
    Ticket(Secret),
    /// Nothing: the receiver is expected to have our key on its list.
    Key,
}

/// The receiver's side of the decision. Made anew for each connection.
pub trait Authoriser: Send {
    /// Whether the sender of `context`, having shown `proof`, may send. Returns our proof to send back, if the sender
    /// gave one.
    ///
    /// # Errors
    /// The reason to tell the sender.
    fn authorise(&mut self, context: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal>;

    /// Everything that the sender listed is in place. Not called if anything failed.
    ///
    /// # Errors
    /// Why that could not be noted, in words for the receiver's user.
    fn complete(&mut self) -> Result<(), String>;
}

/// Lets in whoever proves a ticket of a store.
#[derive(Debug)]
pub struct TicketAuthoriser {
    store: TicketStore,
    directory: PathBuf,
    now_unix: u64,
    accepted: Option<String>,
}

/// Lets in the keys of a list, time after time.
#[derive(Debug)]
pub struct KeyAuthoriser {
    list: AllowList,
}

impl TicketAuthoriser {
    /// For tickets that were issued for `directory` (in these very bytes), judged at `now_unix` (seconds since 1970).
    pub fn new(store: TicketStore, directory: PathBuf, now_unix: u64) -> Self {
        Self { store, directory, now_unix, accepted: None }
    }

    /// The id of the ticket by which the sender was let in, once it was.
    pub fn accepted(&self) -> Option<&str> {
        self.accepted.as_deref()
    }
}

impl KeyAuthoriser {
    /// For the keys of `list`.
    pub fn new(list: AllowList) -> Self {
        Self { list }
    }
}

impl Authoriser for TicketAuthoriser {
    fn authorise(&mut self, context: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        let proof = proof.ok_or(Refusal::UnknownOrWrongProof)?;
        let accepted = self.store.decide(self.now_unix, &self.directory, context, proof)?;
        self.accepted = Some(accepted.id);
        Ok(Some(accepted.proof))
    }

    fn complete(&mut self) -> Result<(), String> {
        match &self.accepted {
            Some(id) => self.store.complete(id).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

impl Authoriser for KeyAuthoriser {
    fn authorise(&mut self, context: &ProofContext, _proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        // A sender with a ticket expects a proof that only its issuer can give: it will go away by itself.
        if self.list.allows(&context.sender()) { Ok(None) } else { Err(Refusal::KeyNotAllowed) }
    }

    fn complete(&mut self) -> Result<(), String> {
        Ok(())
    }
}
