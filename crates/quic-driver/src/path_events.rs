//! [`PathEvent`]: the events of the paths of a connection, for its application.

use std::collections::VecDeque;
use std::net::SocketAddr;

use quic::{MigrateError, OpenPathError, PathId, PathState, PathWait};

/// Maximum number of events that wait for the application. When it is reached, the oldest is
/// dropped: an application that reads none loses nothing else, and memory stays bounded.
pub(crate) const PATH_EVENTS_MAX: usize = 256;

/// An event of a path of a connection, or of a path request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathEvent {
    /// A path was opened, because this side requested it or because the peer opened it. It carries
    /// data once its state is [`PathState::Active`].
    Opened {
        /// Its identifier.
        path: PathId,
        /// The index of its socket on this side.
        socket: usize,
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The state of a path has changed.
    State {
        /// Its identifier.
        path: PathId,
        /// The new state.
        state: PathState,
    },
    /// A requested path cannot be opened yet. The request stays pending: the path is opened as soon
    /// as the reason is gone.
    Waiting {
        /// The socket of the request.
        socket: usize,
        /// The address of the request.
        remote: SocketAddr,
        /// The reason.
        reason: PathWait,
    },
    /// A requested path is not opened, and the request is dropped.
    Refused {
        /// The socket of the request.
        socket: usize,
        /// The address of the request.
        remote: SocketAddr,
        /// The reason.
        error: OpenPathError,
    },
    /// The system refused to send on a path: a filter, a missing route, or a device that is down.
    /// The path is tried again; meanwhile others carry the data. The same error on a path is
    /// reported at most once in ten seconds.
    SendRefused {
        /// Its identifier.
        path: PathId,
        /// The system's error.
        error: String,
        /// Whether datagrams on this path are smaller from now on, because small ones may pass.
        is_smaller: bool,
    },
    /// The connection has moved to another address.
    Migrated {
        /// Its path.
        path: PathId,
        /// The index of its socket on this side.
        socket: usize,
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The connection does not move, and the request is dropped.
    MigrationRefused {
        /// The socket of the request.
        socket: usize,
        /// The address of the request.
        remote: SocketAddr,
        /// The reason.
        error: MigrateError,
    },
}

/// Events that the application has not taken.
#[derive(Default)]
pub(crate) struct PathEvents {
    queue: VecDeque<PathEvent>,
}

impl PathEvents {
    pub(crate) fn push(&mut self, event: PathEvent) {
        if self.queue.len() == PATH_EVENTS_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<PathEvent> {
        let event = self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_not_taken_are_bounded_and_the_newest_stay() {
        let mut events = PathEvents::default();
        for path in 0..=PATH_EVENTS_MAX as u32 {
            events.push(PathEvent::State { path: PathId(path), state: PathState::Silent });
        }
        let kept: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(kept.len(), PATH_EVENTS_MAX);
        assert_eq!(kept[0], PathEvent::State { path: PathId(1), state: PathState::Silent });
    }
}
