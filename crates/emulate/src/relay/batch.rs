//! Batches of datagrams that are sent with one system call.

use std::net::SocketAddr;

use net::{BATCH_BYTES_MAX, DatagramSocket, Ecn, Transmit, UdpSocket};

use super::clients::ClientId;

/// Datagrams to one destination with one ECN mark and one size, except for a shorter last one.
#[derive(Default)]
pub(super) struct Batch {
    /// Destination and ECN mark; `None` if the batch is empty.
    key: Option<(ClientId, Option<Ecn>)>,
    contents: Vec<u8>,
    segment_bytes: usize,
    count: usize,
}

impl Batch {
    /// Returns whether a datagram can be added. No datagram can follow a shorter one.
    pub(super) fn accepts(&self, client: ClientId, ecn: Option<Ecn>, bytes: usize, count_max: usize) -> bool {
        if self.count == 0 {
            return true;
        }
        self.key == Some((client, ecn))
            && self.count < count_max
            && bytes <= self.segment_bytes
            && self.contents.len() == self.segment_bytes * self.count
            && self.contents.len() + bytes <= BATCH_BYTES_MAX
    }

    /// Adds a datagram for which [`accepts`](Self::accepts) is true.
    pub(super) fn push(&mut self, client: ClientId, ecn: Option<Ecn>, datagram: &[u8]) {
        if self.count == 0 {
            self.key = Some((client, ecn));
            self.segment_bytes = datagram.len();
        }
        self.contents.extend_from_slice(datagram);
        self.count += 1;
    }

    pub(super) fn client(&self) -> Option<ClientId> {
        self.key.map(|(client, _)| client)
    }

    /// Sends and clears the batch; returns the number of datagrams that the system rejected.
    pub(super) fn send(&mut self, socket: &mut UdpSocket, destination: SocketAddr) -> u64 {
        let Some((_, ecn)) = self.key else { return 0 };
        let segment_size = (self.count > 1).then_some(self.segment_bytes);
        let transmit = Transmit { destination, source_ip: None, ecn, contents: &self.contents, segment_size };
        let refused = match socket.send(&transmit) {
            Ok(()) => 0,
            Err(error) => {
                tracing::debug!(%error, %destination, "datagrams were rejected by the system");
                self.count as u64
            }
        };
        self.clear();
        refused
    }

    /// Clears the batch; returns the number of its datagrams.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.count as u64;
        self.key = None;
        self.contents.clear();
        self.count = 0;
        count
    }
}
