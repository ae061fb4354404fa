//! What the driver lends to processors of paths, so that a batch is opened where it arrives: see [`quic::OpenLease`].
//!
//! ```text
//!   driver: a batch comes unopened ─▶ opens it, and lends ─▶ processor: opens what follows on that path
//!   driver: a plan is made ─▶ tells every borrower what changed ─▶ the plan leaves ─▶ what answers it arrives ─▶ processor looks
//! ```
//!
//! Both sides share two values of each loan. The driver writes them whenever a plan was made, before it leaves; the processor
//! reads them after the call to its socket and before it opens. So what was sent in the knowledge of a plan is opened in the
//! knowledge of all that the plan was made with. A loan that is over is not renewed: what arrives next comes unopened, which
//! makes the driver lend anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quic::{Addresses, Connection, ConnectionKey, LeaseTerms, OpenJob, OpenLease, PathId};

use super::values::OpenedThere;
use crate::arrival::{LocalId, local_id};
use crate::cells::ConnectionCell;

/// Loans a processor has, at most: some hundred bytes each beside keys that are shared. When there would be more it lets go of all
/// of them; those that are in use come back with the next batch.
const LOANS_MAX: usize = 1024;

/// Loans of one connection, at most: paths, times the processors that one moves between. The oldest gives way.
const LOANS_PER_CONNECTION_MAX: usize = 64;
/// What both sides know of a loan.
#[derive(Debug, Default)]
struct Loan {
    /// One more than the largest packet number heard on the path; zero before the first.
    heard: AtomicU64,
    is_over: AtomicBool,
}

/// A loan on its way to a processor.
pub(crate) struct Lent {
    id: LocalId,
    key: ConnectionKey,
    cell: Arc<ConnectionCell>,
    lease: OpenLease,
    loan: Arc<Loan>,
}

/// Loans of one connection, as the driver keeps them. They end with it.
#[derive(Default)]
pub(crate) struct Lender {
    loans: Vec<Given>,
}

struct Given {
    processor: usize,
    path: PathId,
    id: LocalId,
    terms: LeaseTerms,
    loan: Arc<Loan>,
}

impl Given {
    /// The processor has let go of it.
    fn is_returned(&self) -> bool {
        Arc::strong_count(&self.loan) == 1
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.loan.is_over.store(true, Ordering::Release);
    }
}

impl Lender {
    /// A batch with datagrams to `id` came unopened from `processor`, and was handled: what makes it open those that follow.
    /// None if it is on its way already, or there is nothing to lend.
    pub(crate) fn lend(
        &mut self,
        connection: &mut Connection,
        (key, cell): (ConnectionKey, &Arc<ConnectionCell>),
        processor: usize,
        first: &[u8],
    ) -> Option<Lent> {
        let id = local_id(first)?;
        self.loans.retain(|given| !given.is_returned());
        if self.loans.iter().any(|given| given.processor == processor && given.id == id) {
            return None;
        }
        let terms = connection.lease_terms()?;
        let lease = connection.lend_opening(first)?;
        let path = lease.path();
        // One for each path and processor: two would not know of each other's numbers.
        self.loans.retain(|given| given.processor != processor || given.path != path);
        if self.loans.len() >= LOANS_PER_CONNECTION_MAX {
            self.loans.remove(0);
        }
        let loan = Arc::<Loan>::default();
        self.loans.push(Given { processor, path, id, terms, loan: Arc::clone(&loan) });
        Some(Lent { id, key, cell: Arc::clone(cell), lease, loan })
    }

    /// Tells borrowers what has changed. To be called when a plan was made, before it leaves.
    pub(crate) fn tell(&mut self, connection: &Connection) {
        if self.loans.is_empty() {
            return;
        }
        let terms = connection.lease_terms();
        self.loans.retain(|given| Some(given.terms) == terms);
        for given in &self.loans {
            let heard = connection.largest_heard(given.path).map_or(0, |largest| largest + 1);
            // Written only if it changes, so that the line stays where it is read.
            if given.loan.heard.load(Ordering::Relaxed) != heard {
                given.loan.heard.store(heard, Ordering::Release);
            }
        }
    }
}

/// Loans of a processor.
#[derive(Default)]
pub(crate) struct Borrower {
    loans: BTreeMap<LocalId, Lent>,
}

impl Borrower {
    pub(crate) fn take(&mut self, lent: Lent) {
        self.sweep();
        if self.loans.len() >= LOANS_MAX {
            self.loans.clear();
        }
        self.loans.insert(lent.id, lent);
    }

    /// Lets go of what is over.
    pub(crate) fn sweep(&mut self) {
        self.loans.retain(|_, lent| !lent.loan.is_over.load(Ordering::Acquire));
    }

    /// Opens datagrams that are all to the connection ID of the first, if that was lent, with a `spare` job.
    pub(crate) fn open(
        &mut self,
        addresses: Addresses,
        stride: usize,
        data: &mut [u8],
        spare: impl FnOnce() -> Box<OpenJob>,
    ) -> Option<OpenedThere> {
        let id = local_id(data)?;
        let lent = self.loans.get_mut(&id)?;
        if lent.loan.is_over.load(Ordering::Acquire) {
            self.loans.remove(&id);
            return None;
        }
        if let Some(largest) = lent.loan.heard.load(Ordering::Acquire).checked_sub(1) {
            lent.lease.note_heard(largest);
        }
        let mut open = spare();
        lent.lease.open(addresses, stride, data, &mut open);
        Some(OpenedThere { key: lent.key, cell: Arc::clone(&lent.cell), open })
    }
}
