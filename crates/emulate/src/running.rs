//! Running links.

use std::sync::Arc;
use std::{fmt, io};

use netem::{Change, LineState};

use super::report::LinkReport;
use super::worker::ChangeError;
use crate::worker::{SingleDirection, Worker};

/// A direction of a link, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From left to right, or from the clients to the server.
    Forward,
    /// The opposite direction.
    Backward,
    /// Both directions.
    Both,
}

/// Running links, each on its own thread. Dropping it stops them.
pub struct Running {
    workers: Vec<Worker>,
}

/// The result of stopped links.
#[derive(Debug)]
pub struct Ended {
    /// The reports of the links, in the order of their creation.
    pub reports: Vec<LinkReport>,
    /// The first link that ended with an error before it was stopped, with its index.
    pub fault: Option<(usize, Arc<io::Error>)>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("links", &self.links()).finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) const fn new(workers: Vec<Worker>) -> Self {
        Self { workers }
    }

    /// Returns the number of links.
    #[must_use]
    pub const fn links(&self) -> usize {
        self.workers.len()
    }

    /// Changes the settings of a running link at once; the next change of its schedule may override
    /// it. `link` counts from zero. Returns when the change is applied.
    ///
    /// # Errors
    /// Returns a [`ChangeError`]. Nothing has changed then, except that with [`Direction::Both`]
    /// one direction may have.
    pub fn change(&self, link: usize, direction: Direction, change: Change) -> Result<(), ChangeError> {
        self.worker(link)?.change(direction, change)
    }

    /// Takes both directions of a link down silently: packets in the link are dropped without
    /// notice.
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub fn cut(&self, link: usize) -> Result<(), ChangeError> {
        self.change(link, Direction::Both, Change::State(LineState::Silent))
    }

    /// Brings a link up again.
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub fn restore(&self, link: usize) -> Result<(), ChangeError> {
        self.change(link, Direction::Both, Change::State(LineState::Up))
    }

    /// Returns the current statistics of each link, in the order of their creation.
    #[must_use]
    pub fn stats(&self) -> Vec<LinkReport> {
        self.workers.iter().map(|worker| worker.report().0).collect()
    }

    /// Returns whether a link has ended by itself, because its device was removed.
    /// [`stop`](Self::stop) returns the error.
    #[must_use]
    pub fn has_fault(&self) -> bool {
        self.workers.iter().any(Worker::is_ended)
    }

    /// Stops all links, removes their devices and closes their sockets. Packets in the links are
    /// lost.
    #[must_use]
    pub fn stop(mut self) -> Ended {
        let mut ended = Ended { reports: Vec::with_capacity(self.workers.len()), fault: None };
        for (index, worker) in self.workers.iter_mut().enumerate() {
            worker.stop();
            let (report, error) = worker.report();
            ended.reports.push(report);
            if let (None, Some(error)) = (&ended.fault, error) {
                ended.fault = Some((index, error));
            }
        }
        ended
    }

    pub(crate) fn worker(&self, link: usize) -> Result<&Worker, ChangeError> {
        self.workers.get(link).ok_or(ChangeError::NoLink { links: self.workers.len() })
    }
}

impl Direction {
    pub(crate) const fn single_directions(self) -> &'static [SingleDirection] {
        match self {
            Self::Forward => &[SingleDirection::Forward],
            Self::Backward => &[SingleDirection::Backward],
            Self::Both => &[SingleDirection::Forward, SingleDirection::Backward],
        }
    }
}
