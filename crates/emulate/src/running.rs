//! Links while they run.

use std::io;
use std::sync::Arc;

use netem::{Change, LineState};

use crate::worker::{OneWay, Worker};
use crate::{ChangeError, LinkReport};

/// Which way of a link is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From left to right, or from the clients to the server.
    Forward,
    /// Back.
    Backward,
    /// Both.
    Both,
}

/// Links that run, each on a thread of its own. Dropping it stops them.
pub struct Running {
    workers: Vec<Worker>,
}

/// What came of the links.
#[derive(Debug)]
pub struct Ended {
    /// Of each link, in the order in which they were given.
    pub reports: Vec<LinkReport>,
    /// Why a link ended before it was stopped: the first one, with its number.
    pub fault: Option<(usize, Arc<io::Error>)>,
}

impl Running {
    pub(crate) const fn new(workers: Vec<Worker>) -> Self {
        Self { workers }
    }

    /// How many links there are.
    #[must_use]
    pub const fn links(&self) -> usize {
        self.workers.len()
    }

    /// Changes a link while packets are under way, as of now; the next change of its schedule may undo that. `link` counts
    /// from zero. Returns when the change is made.
    ///
    /// # Errors
    /// [`ChangeError`]; then nothing has changed, except that one of two directions may have.
    pub fn change(&self, link: usize, direction: Direction, change: Change) -> Result<(), ChangeError> {
        self.worker(link)?.change(direction, change)
    }

    /// Cuts both ways of a link, and nobody is told: what is under way vanishes.
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub fn cut(&self, link: usize) -> Result<(), ChangeError> {
        self.change(link, Direction::Both, Change::State(LineState::Silent))
    }

    /// Makes a link work again.
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub fn restore(&self, link: usize) -> Result<(), ChangeError> {
        self.change(link, Direction::Both, Change::State(LineState::Up))
    }

    /// What has happened so far, a report a link, in the order in which they were given.
    #[must_use]
    pub fn stats(&self) -> Vec<LinkReport> {
        self.workers.iter().map(|worker| worker.report().0).collect()
    }

    /// Whether a link has ended by itself, because its device is gone. [`stop`](Self::stop) tells why.
    #[must_use]
    pub fn has_fault(&self) -> bool {
        self.workers.iter().any(Worker::is_ended)
    }

    /// Stops all links, removes their devices and closes their sockets. What is under way is lost.
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
    pub(crate) const fn ways(self) -> &'static [OneWay] {
        match self {
            Self::Forward => &[OneWay::Forward],
            Self::Backward => &[OneWay::Backward],
            Self::Both => &[OneWay::Forward, OneWay::Backward],
        }
    }
}
