//! DATAGRAM frames that wait to be sent (RFC 9221).

use bytes::Bytes;
use wire::quic::PathId;

use super::SendHalf;
use super::datagram_window::WINDOW_MIN;
use super::path::SendPath;
use super::waiting_datagrams::WaitingDatagrams;

/// Datagrams that wait for one path, at most: what it sends at a time. They are urgent, so the oldest is
/// dropped for a new one.
pub(crate) const DATAGRAMS_OF_PATH_MAX: usize = 64;

/// The paths that a datagram takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DatagramPaths {
    /// The one that the scheduler chooses.
    #[default]
    Any,
    /// A copy on each of so many paths, those with the shortest round trips that work now; all that there
    /// are if there are fewer. The peer gets each copy. They leave before datagrams that take any path.
    Copies(u8),
    /// This one, before datagrams that take any path. If it does not work now, any other.
    Only(PathId),
    /// This one, after those that wait for it so. If it does not work now, or stops working before the
    /// datagram has left, any other.
    Pinned(PathId),
}

/// Why a datagram was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendDatagramError {
    /// The peer accepts no datagrams, or the handshake is not complete.
    Unsupported,
    /// Larger than fits into a packet on every path; holds the limit in bytes.
    TooLarge(usize),
    /// The queue is full. No event follows when there is space again: datagrams are not worth
    /// waiting for.
    QueueFull,
}

impl std::fmt::Display for SendDatagramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsupported => {
                f.write_str("the peer takes no datagrams, or the handshake is not complete: use streams")
            }
            Self::TooLarge(max) => write!(f, "the datagram does not fit into a packet: send at most {max} bytes"),
            Self::QueueFull => {
                f.write_str("this side has too many datagrams waiting to be sent: send them more slowly")
            }
        }
    }
}

impl std::error::Error for SendDatagramError {}

impl SendHalf {
    /// Queues a datagram (RFC 9221).
    pub(crate) fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        self.check_datagram(&data, &self.datagrams)?;
        self.datagrams.push(data);
        Ok(())
    }

    /// Whether a datagram may join a queue.
    fn check_datagram(&self, data: &Bytes, queue: &WaitingDatagrams) -> Result<(), SendDatagramError> {
        let max = self.datagram_len_max().ok_or(SendDatagramError::Unsupported)?;
        if data.len() > max {
            return Err(SendDatagramError::TooLarge(max));
        }
        if !queue.has_place(data.len(), self.config.datagram_send_buffer) {
            return Err(SendDatagramError::QueueFull);
        }
        Ok(())
    }

    /// As [`send_datagram`](Self::send_datagram), on these paths, and before the datagrams that wait. With a
    /// single path there is no choice of paths.
    pub(crate) fn send_datagram_on(&mut self, data: Bytes, which: DatagramPaths) -> Result<(), SendDatagramError> {
        if let DatagramPaths::Pinned(id) = which {
            let Some(at) = self.pinning_path(id) else { return self.send_datagram(data) };
            self.check_datagram(&data, &self.paths[at].queues.pinned)?;
            self.paths[at].queues.pinned.push(data);
            return Ok(());
        }
        let chosen = self.paths_of_datagram(which);
        if chosen.is_empty() {
            self.check_datagram(&data, &self.datagrams)?;
            self.datagrams.push_first(data, DATAGRAMS_OF_PATH_MAX);
            return Ok(());
        }
        let max = self.datagram_len_max().ok_or(SendDatagramError::Unsupported)?;
        if data.len() > max {
            return Err(SendDatagramError::TooLarge(max));
        }
        for at in chosen {
            let queue = &mut self.paths[at].queues.datagrams;
            if queue.len() >= DATAGRAMS_OF_PATH_MAX {
                queue.pop_front();
                self.stats.datagrams_lost += 1;
            }
            queue.push_back(data.clone());
        }
        Ok(())
    }

    /// The index of the path if datagrams may be pinned to it: it works, and there is a choice of paths.
    fn pinning_path(&self, id: PathId) -> Option<usize> {
        self.path_index(id).filter(|at| self.paths.len() > 1 && self.paths[*at].is_active())
    }

    /// The queue of the datagrams that are pinned to path `id`: that of all others, if none can be.
    fn queue_of(&self, id: Option<PathId>) -> &WaitingDatagrams {
        id.and_then(|id| self.pinning_path(id)).map_or(&self.datagrams, |at| &self.paths[at].queues.pinned)
    }

    /// The indices of the paths, the one with the shortest round trip first; none if the scheduler chooses.
    fn paths_of_datagram(&self, which: DatagramPaths) -> Vec<usize> {
        let works = |path: &SendPath| {
            path.is_active() && !path.recovery.suspicion.is_suspect && path.link.refused_until.is_none()
        };
        let mut working: Vec<usize> = (0..self.paths.len()).filter(|at| works(&self.paths[*at])).collect();
        match which {
            _ if self.paths.len() == 1 => working.clear(),
            DatagramPaths::Any | DatagramPaths::Pinned(_) => working.clear(),
            DatagramPaths::Only(id) => working.retain(|at| self.paths[*at].id == id),
            DatagramPaths::Copies(count) => {
                working.sort_by_key(|at| (self.paths[*at].recovery.rtt.smoothed(), *at));
                working.truncate(usize::from(count));
            }
        }
        working
    }

    /// The bytes of datagrams that should wait here, of those pinned to this path or of those that take any:
    /// enough to keep the paths busy, and few, because the application cannot take them back or put others
    /// before them.
    pub(crate) fn datagram_window(&self, pinned: Option<PathId>) -> u64 {
        self.queue_of(pinned).window().min(self.config.datagram_send_buffer)
    }

    /// Whether a datagram of `len` bytes should join those that wait, as for
    /// [`datagram_window`](Self::datagram_window), or none waits.
    pub(crate) fn has_datagram_space(&self, len: usize, pinned: Option<PathId>) -> bool {
        let queue = self.queue_of(pinned);
        queue.is_empty() || queue.has_place(len, self.datagram_window(pinned))
    }

    /// Datagrams of [`send_datagram`](Self::send_datagram) that wait, or those pinned to a path.
    pub(crate) fn datagrams_waiting(&self, pinned: Option<PathId>) -> usize {
        match pinned {
            None => self.datagrams.in_line_count(),
            Some(id) => self.path_index(id).map_or(0, |at| self.paths[at].queues.pinned.in_line_count()),
        }
    }

    /// Bytes of all datagrams that wait, whatever paths they take.
    pub(crate) fn datagram_bytes_waiting(&self) -> u64 {
        let of_paths = self.paths.iter().map(|path| path.queues.datagram_bytes());
        self.datagrams.bytes() + of_paths.sum::<u64>()
    }

    /// The limit of the queue, in bytes.
    pub(crate) fn datagram_send_buffer(&self) -> u64 {
        self.config.datagram_send_buffer
    }

    /// Whether so many datagrams wait that more will follow when these have left, most likely.
    pub(super) fn are_datagrams_waiting(&self) -> bool {
        self.datagrams.bytes() >= WINDOW_MIN / 2 && self.datagrams.bytes() >= self.datagram_window(None) / 2
    }

    /// The largest datagram that can be sent, bytes; `None` if the peer accepts none.
    pub(crate) fn datagram_len_max(&self) -> Option<usize> {
        if !self.progress.is_complete || self.peer.max_datagram_frame_size == 0 {
            return None;
        }
        // Short header with a packet number of four bytes, frame type, no length field.
        let len_max =
            |path: &SendPath| path.size.bytes() - (1 + path.link.remote_id.len() + 4) - crate::session::TAG_LEN - 1;
        // The smallest over all paths, since the datagram may leave on any of them.
        let len_max = self.paths.iter().filter(|path| path.is_open()).map(len_max).min()?;
        let limit = usize::try_from(self.peer.max_datagram_frame_size).unwrap_or(usize::MAX);
        Some(len_max.min(limit.saturating_sub(3)))
    }
}
