//! Authorisation: the receiver's decision to accept a sender, and the sender's credential.

use std::path::PathBuf;

use quic_endpoint::identity::{AllowList, PublicKey};

use super::proof::{Proof, ProofContext};
use super::run_id::RunId;
use super::store::{Refusal, TicketStore};
use super::ticket::Secret;

/// The sender's credential besides its key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Credential {
    /// A ticket's secret: the sender proves it, and demands the receiver's proof.
    Ticket(Secret),
    /// Nothing else: the receiver has the sender's key on its list.
    Key,
}

/// The receiver's decision. A new value is created for each connection.
pub trait Authoriser: Send {
    /// Called once before [`authorise`](Self::authorise), with the sender's run id if it sent one.
    /// Does nothing by default.
    fn on_run_id(&mut self, _run: Option<RunId>) {}

    /// Decides whether the sender of `context` may send, given its `proof`. Returns the receiver's
    /// proof to send back, if the sender gave one.
    ///
    /// # Errors
    /// The reason to send to the sender.
    fn authorise(&mut self, context: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal>;

    /// Called when every listed file is in place. Not called if any of them failed.
    ///
    /// # Errors
    /// The reason why the completion could not be recorded, as a message for the receiver's user.
    fn complete(&mut self) -> Result<(), String>;

    /// Called when the receiver refuses the transfer as a whole after
    /// [`authorise`](Self::authorise) accepted the sender: nothing was stored. Not called after
    /// [`complete`](Self::complete); the default does nothing.
    ///
    /// # Errors
    /// Same errors as [`complete`](Self::complete).
    fn release(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Accepts senders that prove a ticket of a store.
#[derive(Debug)]
pub struct TicketAuthoriser {
    store: TicketStore,
    directory: PathBuf,
    now_unix: u64,
    accepted: Option<String>,
    /// Key that `authorise` bound the ticket to. `None` if it was bound before.
    newly_bound: Option<PublicKey>,
}

/// Accepts the keys of a list, any number of times.
#[derive(Debug)]
pub struct KeyAuthoriser {
    list: AllowList,
}

impl TicketAuthoriser {
    /// Creates an authoriser of tickets issued for `directory` (compared byte by byte) and valid at
    /// `now_unix` (seconds since 1970).
    pub fn new(store: TicketStore, directory: PathBuf, now_unix: u64) -> Self {
        Self { store, directory, now_unix, accepted: None, newly_bound: None }
    }

    /// Returns the id of the ticket that the sender proved; `None` until a sender is accepted.
    pub fn accepted(&self) -> Option<&str> {
        self.accepted.as_deref()
    }
}

impl KeyAuthoriser {
    /// Creates an authoriser of the keys of `list`.
    pub fn new(list: AllowList) -> Self {
        Self { list }
    }
}

impl Authoriser for TicketAuthoriser {
    fn authorise(&mut self, context: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        let proof = proof.ok_or(Refusal::UnknownOrWrongProof)?;
        let accepted = self.store.decide(self.now_unix, &self.directory, context, proof)?;
        self.accepted = Some(accepted.id);
        self.newly_bound = accepted.first_use.then(|| context.sender());
        Ok(Some(accepted.proof))
    }

    fn complete(&mut self) -> Result<(), String> {
        match &self.accepted {
            Some(id) => self.store.complete(id).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Frees the ticket if this sender was the first to use it, so that another one may try.
    fn release(&mut self) -> Result<(), String> {
        match (&self.accepted, self.newly_bound.take()) {
            (Some(id), Some(key)) => self.store.release(id, key).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }
}

impl Authoriser for KeyAuthoriser {
    fn authorise(&mut self, context: &ProofContext, _proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        // A sender with a ticket expects a proof that only the ticket's issuer can give, so it ends
        // the transfer itself.
        if self.list.allows(&context.sender()) { Ok(None) } else { Err(Refusal::KeyNotAllowed) }
    }

    fn complete(&mut self) -> Result<(), String> {
        Ok(())
    }
}
