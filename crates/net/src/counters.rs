//! Counters of a socket.

use crate::datagram::{RECV_BUFFER_BYTES, SendError};

/// Counters of one socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Datagrams passed to the kernel or the in-memory network.
    pub datagrams_sent: u64,
    /// Send calls: with segmentation offload one call carries many datagrams.
    pub batches_sent: u64,
    /// Payload bytes sent.
    pub bytes_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Receive buffers filled: with receive offload one buffer holds many datagrams.
    pub batches_received: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Batches that the device could not segment and that were resent as single datagrams. After
    /// the first, the socket no longer uses segmentation offload.
    pub gso_fallbacks: u64,
    /// Sends rejected because the send buffer was full.
    pub would_block: u64,
    /// Sends rejected because a queue below the socket, or memory, was full.
    pub no_buffers: u64,
    /// Receive buffers that were filled completely and are smaller than the largest datagram, so
    /// that data may have been truncated.
    pub truncated: u64,
}

impl SocketCounters {
    /// Counts one call that sent `bytes` bytes in datagrams of `stride` bytes, with a shorter last
    /// one.
    pub(crate) const fn on_sent(&mut self, bytes: usize, stride: usize) {
        self.datagrams_sent += datagrams(bytes, stride);
        self.batches_sent += 1;
        self.bytes_sent += bytes as u64;
    }

    /// Counts one buffer of `capacity` bytes that received `bytes` bytes in datagrams of `stride`
    /// bytes.
    pub(crate) const fn on_received(&mut self, bytes: usize, stride: usize, capacity: usize) {
        self.datagrams_received += datagrams(bytes, stride);
        self.batches_received += 1;
        self.bytes_received += bytes as u64;
        if bytes == capacity && capacity < RECV_BUFFER_BYTES {
            self.truncated += 1;
        }
    }

    /// Counts a send that failed with `error`.
    pub(crate) const fn on_send_error(&mut self, error: &SendError) {
        match error {
            SendError::WouldBlock => self.would_block += 1,
            SendError::NoBuffers => self.no_buffers += 1,
            SendError::TooLarge | SendError::Other(_) => {}
        }
    }
}

/// Returns the number of datagrams; an empty datagram counts as one.
const fn datagrams(bytes: usize, stride: usize) -> u64 {
    if bytes == 0 { 1 } else { bytes.div_ceil(stride) as u64 }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn send_errors_are_counted_by_kind() {
        let mut counters = SocketCounters::default();
        for errno in [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::MSGSIZE, Errno::PERM] {
            counters.on_send_error(&SendError::from(io::Error::from(errno)));
        }
        assert_eq!(counters, SocketCounters { would_block: 1, no_buffers: 2, ..SocketCounters::default() });
    }

    #[test]
    fn only_a_buffer_that_could_have_been_too_small_counts_as_truncated() {
        let mut counters = SocketCounters::default();
        for (bytes, capacity) in
            [(1500, 1501), (1500, 1500), (0, RECV_BUFFER_BYTES), (RECV_BUFFER_BYTES, RECV_BUFFER_BYTES)]
        {
            counters.on_received(bytes, bytes.max(1), capacity);
        }
        assert_eq!((counters.truncated, counters.datagrams_received, counters.batches_received), (1, 4, 4));
    }
}
