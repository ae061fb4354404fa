//! Datagrams that leave together, with one system call.

use std::net::SocketAddr;

use net::{BATCH_BYTES_MAX, DatagramSocket, Ecn, Transmit, UdpSocket};

use super::clients::ClientId;

/// Datagrams of one size, except for the last, to one destination with one mark.
#[derive(Default)]
pub(super) struct Batch {
    /// Where it goes, and its mark; `None` while it is empty.
    key: Option<(ClientId, Option<Ecn>)>,
    contents: Vec<u8>,
    segment_bytes: usize,
    count: usize,
}

impl Batch {
    /// Whether a datagram can join. Nothing joins behind a short one.
    pub(super) fn takes(&self, client: ClientId, ecn: Option<Ecn>, bytes: usize, count_max: usize) -> bool {
        if self.count == 0 {
            return true;
        }
        self.key == Some((client, ecn))
            && self.count < count_max
            && bytes <= self.segment_bytes
            && self.contents.len() == self.segment_bytes * self.count
            && self.contents.len() + bytes <= BATCH_BYTES_MAX
    }

    /// Lets a datagram join that it [takes](Self::takes).
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

    /// Sends it and starts anew; how many datagrams the system did not take.
    pub(super) fn send(&mut self, socket: &mut UdpSocket, destination: SocketAddr) -> u64 {
        let Some((_, ecn)) = self.key else { return 0 };
        let segment_size = (self.count > 1).then_some(self.segment_bytes);
        let transmit = Transmit { destination, source_ip: None, ecn, contents: &self.contents, segment_size };
        let refused = match socket.send(&transmit) {
            Ok(()) => 0,
            Err(error) => {
                tracing::debug!(%error, %destination, "datagrams that had arrived were not taken");
                self.count as u64
            }
        };
        self.clear();
        refused
    }

    /// Forgets what it holds; how many datagrams that was.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.count as u64;
        self.key = None;
        self.contents.clear();
        self.count = 0;
        count
    }
}
