//! Buffer sizes, which grow with use, and the budget that limits their total.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Limit on the bytes by which the buffers of all connections together exceed their initial sizes.
/// Connections share it through their configuration. When the budget is exhausted, buffers keep
/// their size: connections still work, but become no faster.
#[derive(Debug, Default)]
pub struct BufferBudget {
    limit: u64,
    taken: AtomicU64,
    /// Recorder or replayer of grants, if the budget belongs to a single connection with a journal.
    grants: Option<Box<Grants>>,
}

/// A request to the budget and the bytes granted. Grants depend on other connections, so they are
/// inputs of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) wanted: u64,
    pub(crate) granted: u64,
}

/// Source of the grants to the buffers of a connection.
#[derive(Debug)]
enum Grants {
    /// A shared budget, and the grants that the journal has not taken yet; `None` after the end of
    /// the journal.
    Recorded(Arc<BufferBudget>, Mutex<Option<VecDeque<Grant>>>),
    /// A log.
    Replayed(Mutex<Replayed>),
}

#[derive(Debug, Default)]
struct Replayed {
    /// Grants that were not requested yet.
    next: VecDeque<Grant>,
    /// Whether a request differed from the log.
    is_other: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BufferBudget {
    /// Creates a budget of `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Self { limit, taken: AtomicU64::new(0), grants: None }
    }

    /// Creates the budget of a connection with a journal, which passes requests on to `shared`.
    pub(crate) fn recorded(shared: &Arc<Self>) -> Self {
        let grants = Grants::Recorded(Arc::clone(shared), Mutex::new(Some(VecDeque::new())));
        Self { grants: Some(Box::new(grants)), ..Self::default() }
    }

    /// Creates the budget of a replayed connection, which grants what the log says.
    pub(crate) fn replayed() -> Self {
        Self { grants: Some(Box::new(Grants::Replayed(Mutex::default()))), ..Self::default() }
    }

    /// Takes the next grant for the journal.
    pub(crate) fn pop_grant(&self) -> Option<Grant> {
        match self.grants.as_deref() {
            Some(Grants::Recorded(_, grants)) => locked(grants).as_mut()?.pop_front(),
            _ => None,
        }
    }

    /// Stops recording grants.
    pub(crate) fn forget_grants(&self) {
        if let Some(Grants::Recorded(_, grants)) = self.grants.as_deref() {
            *locked(grants) = None;
        }
    }

    /// Adds the next grant of the log.
    pub(crate) fn push_grant(&self, grant: Grant) {
        if let Some(Grants::Replayed(grants)) = self.grants.as_deref() {
            locked(grants).next.push_back(grant);
        }
    }

    /// Returns whether the requests since the last call were exactly the grants of the log.
    pub(crate) fn take_grants_match(&self) -> bool {
        let Some(Grants::Replayed(grants)) = self.grants.as_deref() else { return true };
        let Replayed { next, is_other } = std::mem::take(&mut *locked(grants));
        next.is_empty() && !is_other
    }

    /// Returns the number of bytes granted to buffers.
    pub fn taken(&self) -> u64 {
        if let Some(Grants::Recorded(shared, _)) = self.grants.as_deref() {
            return shared.taken();
        }
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes `wanted` bytes, or as many as are left.
    fn take(&self, wanted: u64) -> u64 {
        if let Some(grants) = self.grants.as_deref() {
            return grants.take(wanted);
        }
        let granted = |taken: u64| wanted.min(self.limit.saturating_sub(taken));
        let add = |taken: u64| Some(taken + granted(taken));
        // This counter orders no other memory access.
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(before) | Err(before) => granted(before),
        }
    }

    fn give_back(&self, bytes: u64) {
        match self.grants.as_deref() {
            None => drop(self.taken.fetch_sub(bytes, Ordering::Relaxed)),
            Some(Grants::Recorded(shared, _)) => shared.give_back(bytes),
            Some(Grants::Replayed(_)) => {}
        }
    }
}

impl Grants {
    #[cold]
    fn take(&self, wanted: u64) -> u64 {
        match self {
            Self::Recorded(shared, grants) => {
                let granted = shared.take(wanted);
                if let Some(grants) = locked(grants).as_mut() {
                    grants.push_back(Grant { wanted, granted });
                }
                granted
            }
            Self::Replayed(grants) => {
                let mut grants = locked(grants);
                match grants.next.pop_front() {
                    Some(grant) if grant.wanted == wanted => grant.granted,
                    _ => {
                        grants.is_other = true;
                        0
                    }
                }
            }
        }
    }
}

/// Size of one buffer: between its initial and its largest size, at most 4 GiB, and within the
/// budget.
#[derive(Debug)]
pub(crate) struct BufferSize {
    bytes: u32,
    initial: u32,
    max: u32,
    budget: Arc<BufferBudget>,
}

impl BufferSize {
    pub(crate) fn new(initial: usize, max: usize, budget: &Arc<BufferBudget>) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let initial = u32::try_from(initial).unwrap_or(u32::MAX).min(max);
        Self { bytes: initial, initial, max, budget: Arc::clone(budget) }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Grows to `wanted` bytes within the limits. Returns whether it has grown.
    pub(crate) fn grow_to(&mut self, wanted: u64) -> bool {
        let more = wanted.min(self.max.into()).saturating_sub(self.bytes());
        let granted = if more > 0 { self.budget.take(more) } else { 0 };
        // The grant is part of `wanted`, which is at most the largest size.
        self.bytes += granted as u32;
        granted > 0
    }

    /// Returns to the initial size.
    pub(crate) fn shrink(&mut self) {
        let grown = self.bytes - self.initial;
        if grown > 0 {
            self.bytes = self.initial;
            self.budget.give_back(grown.into());
        }
    }
}

impl Drop for BufferSize {
    fn drop(&mut self) {
        self.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_grow_within_their_limits_and_the_budget_and_give_it_back() {
        let budget = Arc::new(BufferBudget::new(1000));
        let mut one = BufferSize::new(100, 800, &budget);
        let mut other = BufferSize::new(5000, 600, &budget);
        assert_eq!((one.bytes(), other.bytes()), (100, 600));
        assert!(one.grow_to(5000) && !one.grow_to(5000) && !one.grow_to(3));
        assert_eq!((one.bytes(), budget.taken()), (800, 700));
        assert!(!other.grow_to(700));
        let mut third = BufferSize::new(100, 5000, &budget);
        assert!(third.grow_to(5000), "what is left");
        assert_eq!((third.bytes(), budget.taken()), (400, 1000));
        assert!(!third.grow_to(5000));
        one.shrink();
        assert_eq!((one.bytes(), budget.taken()), (100, 300));
        drop(third);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn replayed_grants_are_those_of_the_log_whatever_the_budget_is() {
        let shared = Arc::new(BufferBudget::new(300));
        let budget = Arc::new(BufferBudget::recorded(&shared));
        let [mut one, mut other] = [(); 2].map(|()| BufferSize::new(100, 5000, &budget));
        assert!(one.grow_to(250) && other.grow_to(900) && !one.grow_to(1000));
        assert_eq!((one.bytes(), other.bytes(), shared.taken(), budget.taken()), (250, 250, 300, 300));
        let grants: Vec<Grant> = std::iter::from_fn(|| budget.pop_grant()).collect();
        let numbers: Vec<_> = grants.iter().map(|grant| (grant.wanted, grant.granted)).collect();
        assert_eq!(numbers, [(150, 150), (800, 150), (750, 0)]);
        budget.forget_grants();
        assert!(!one.grow_to(1000) && budget.pop_grant().is_none());
        drop((one, other));
        assert_eq!(shared.taken(), 0);

        let budget = Arc::new(BufferBudget::replayed());
        let [mut one, mut other] = [(); 2].map(|()| BufferSize::new(100, 5000, &budget));
        grants.iter().for_each(|grant| budget.push_grant(*grant));
        assert!(one.grow_to(250) && other.grow_to(900) && !one.grow_to(1000) && budget.take_grants_match());
        assert_eq!((one.bytes(), other.bytes()), (250, 250));
        // The log differs in size, has no grant, or has one too many.
        budget.push_grant(Grant { wanted: 749, granted: 749 });
        assert!(!one.grow_to(1000) && !budget.take_grants_match());
        assert!(!one.grow_to(1000) && !budget.take_grants_match() && budget.take_grants_match());
        budget.push_grant(Grant { wanted: 750, granted: 750 });
        assert!(!budget.take_grants_match() && budget.take_grants_match());
    }
}
