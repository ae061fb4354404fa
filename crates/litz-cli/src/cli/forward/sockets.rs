//! What the kernel does not know about the sockets of a program, by the kernel's number of each socket
//! (SO_COOKIE), which is never used again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

/// Sockets that could not be connected, and whose programs have not asked why.
const FAILED_MAX: usize = 1024;

/// Sockets whose connections have ended, and whose programs may still ask for their own address.
const ENDED_MAX: usize = 1024;

/// Targets that are known to be allowed.
const ALLOWED_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It will be connected.
    Connecting,
    /// It could not be connected, for this reason.
    Failed(Errno),
    /// Its program believes that it is connected to this address.
    Connected(SocketAddr),
}

#[derive(Default)]
pub(super) struct Sockets {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    states: BTreeMap<u64, State>,
    failed: usize,
    /// Where the programs believe that they were connected to. A later socket has a larger number.
    ended: BTreeMap<u64, SocketAddr>,
    allowed: BTreeSet<SocketAddr>,
}

impl Sockets {
    pub(super) fn get(&self, number: u64) -> Option<State> {
        self.lock().states.get(&number).copied()
    }

    pub(super) fn set(&self, number: u64, state: State) {
        let mut inner = self.lock();
        inner.ended.remove(&number);
        if let State::Failed(_) = state {
            if inner.failed == FAILED_MAX {
                // The oldest one.
                let old = inner.states.iter().find(|(_, state)| matches!(state, State::Failed(_)));
                let old = old.map(|(number, _)| *number);
                if let Some(old) = old {
                    inner.remove(old);
                }
            }
            inner.failed += 1;
        }
        if let Some(State::Failed(_)) = inner.states.insert(number, state) {
            inner.failed -= 1;
        }
    }

    /// The connection of a socket has ended.
    pub(super) fn end(&self, number: u64) {
        let mut inner = self.lock();
        if let Some(State::Connected(target)) = inner.states.get(&number).copied() {
            inner.remove(number);
            if inner.ended.len() == ENDED_MAX {
                inner.ended.pop_first();
            }
            inner.ended.insert(number, target);
        }
    }

    /// The address to which the program believes that its socket is, or was, connected.
    pub(super) fn target(&self, number: u64) -> Option<SocketAddr> {
        let inner = self.lock();
        match inner.states.get(&number) {
            Some(State::Connected(target)) => Some(*target),
            _ => inner.ended.get(&number).copied(),
        }
    }

    /// The error of a socket that could not be connected, once.
    pub(super) fn take_error(&self, number: u64) -> Option<Errno> {
        let mut inner = self.lock();
        match inner.states.get(&number) {
            Some(State::Failed(error)) => {
                let error = *error;
                inner.remove(number);
                Some(error)
            }
            _ => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.states.is_empty() && inner.ended.is_empty()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.lock().failed > 0
    }

    /// Whether the far host has allowed this target before.
    pub(super) fn is_allowed(&self, target: SocketAddr) -> bool {
        self.lock().allowed.contains(&target)
    }

    pub(super) fn allow(&self, target: SocketAddr, is_allowed: bool) {
        let allowed = &mut self.lock().allowed;
        if !is_allowed {
            allowed.remove(&target);
        } else if allowed.len() < ALLOWED_MAX {
            allowed.insert(target);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remove(&mut self, number: u64) {
        if let Some(State::Failed(_)) = self.states.remove(&number) {
            self.failed -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_once_and_old_ones_are_forgotten() {
        let sockets = Sockets::default();
        let total = FAILED_MAX as u64 + 10;
        (0..total).for_each(|number| sockets.set(number, State::Failed(Errno::CONNREFUSED)));
        sockets.set(total, State::Connecting);
        assert_eq!(sockets.take_error(9), None);
        for number in 10..total {
            assert_eq!(sockets.take_error(number), Some(Errno::CONNREFUSED));
            assert_eq!(sockets.take_error(number), None);
        }
        assert!(!sockets.has_failed() && !sockets.is_empty());
        sockets.set(total, State::Failed(Errno::TIMEDOUT));
        sockets.set(total, State::Connecting);
        assert!(!sockets.has_failed());
    }

    #[test]
    fn the_target_of_a_socket_is_known_after_its_connection_has_ended() {
        let (sockets, total) = (Sockets::default(), ENDED_MAX as u64 + 10);
        let target = |number| SocketAddr::from(([192, 0, 2, 1], number as u16));
        for number in 0..total {
            sockets.set(number, State::Connected(target(number)));
            assert_eq!(sockets.target(number), Some(target(number)));
            sockets.end(number);
            assert_eq!((sockets.get(number), sockets.target(number)), (None, Some(target(number))));
        }
        // The oldest ones are forgotten.
        assert_eq!((sockets.target(9), sockets.target(10)), (None, Some(target(10))));
        // It connects anew.
        sockets.set(10, State::Connecting);
        assert_eq!(sockets.target(10), None);
        sockets.end(10);
        assert_eq!(sockets.get(10), Some(State::Connecting));
    }
}
