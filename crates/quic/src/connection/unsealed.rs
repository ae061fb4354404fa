//! Arrivals without bytes: see [`crate::unsealed`].

use std::ops::Range;

use bytes::BytesMut;
use units::{Ecn, Instant};

use super::Connection;
use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::open::Batch;
use crate::unsealed::Unsealed;

impl Connection {
    /// As [`handle_datagrams`](Self::handle_datagrams), for datagrams of a plan that arrived
    /// together from one address at one socket, with the ECN codepoint `ecn`.
    ///
    /// # Panics
    /// If `datagrams` is empty or out of range.
    pub fn handle_unsealed(
        &mut self,
        now: Instant,
        addresses: Addresses,
        unsealed: &Unsealed,
        datagrams: Range<usize>,
        ecn: Option<Ecn>,
    ) {
        let destination = unsealed.destination(datagrams.start).filter(|_| self.control.is_multipath());
        let path = destination.and_then(|id| self.control.path_of_own_id(id)).unwrap_or_default();
        // Path IDs are part of the nonce: a packet that was sealed for another path does not open.
        let phase = unsealed.phase_of(datagrams.clone()).filter(|_| path == unsealed.path());
        let epoch = phase.and_then(|phase| self.control.data_phase(phase));
        let (Some(epoch), None) = (epoch, &self.detached) else {
            // The handshake, the close, a key update, a tail: each datagram is sealed and handled
            // as bytes.
            for datagram in datagrams {
                let mut bytes = Vec::with_capacity(unsealed.len_bytes(datagram));
                unsealed.seal_datagram(datagram, &mut bytes);
                let len = bytes.len();
                self.handle_datagrams(now, addresses, BytesMut::from(&bytes[..]), BatchMeta { stride: len, ecn });
            }
            return;
        };
        let len = (unsealed.len_bytes(datagrams.start) * datagrams.len()) as u64;
        if !self.note_arrival(now, path, &addresses, datagrams.len() as u64, len) {
            return;
        }
        let batch = Batch { path, addresses, len, integrity_limit: u64::MAX };
        let mut job = self.scratch.take().unwrap_or_default();
        let opened = &mut job.opened;
        let mut rest = datagrams;
        while !rest.is_empty() {
            let (buffer, count) = unsealed.open_group(rest.clone(), opened);
            opened.ecn = ecn;
            self.record(|journal| journal.opened(now, &batch, opened, &buffer));
            if !self.absorb_batch(now, &batch, opened, &buffer) {
                break;
            }
            self.control.note_phase_from(path, epoch, opened.packets.first().map(|packet| packet.number));
            rest.start += count;
        }
        self.scratch = Some(job);
        self.settle(now);
    }
}
