//! What arrives: datagrams on their way through the open stage into the receive half.
//!
//! Once the handshake is confirmed this has three steps, so that the middle one may run on any processor:
//! [`begin_open`](Connection::begin_open) notes the arrival and lends keys, [`OpenJob::open`] opens and parses in place,
//! [`handle_opened`](Connection::handle_opened) absorbs. [`handle_datagrams`](Connection::handle_datagrams) is all three.

use bytes::{Bytes, BytesMut};
use units::Instant;
use wire::quic::{
    ConnectionId, ErrorCode, MIN_INITIAL_SIZE, PacketType, Parsed, PathId, Side, Space, destination, parse_packet,
};

use super::paths::Origin;
use super::{Connection, EARLY_PACKETS_MAX, ReceiveBuffer};
use crate::control::ids::LOCAL_ID_LEN;
use crate::error::{ConnectionError, TransportError};
use crate::exchange::ToSend;
use crate::journal::write::Batch;
use crate::open::{OpenContext, OpenJob, Opened, Outcome, open_packet};
use crate::send::path::Addresses;

/// How many datagrams `data` are.
fn count_of(data: &[u8], stride: usize) -> u64 {
    data.len().div_ceil(stride) as u64
}

impl Connection {
    /// Takes datagrams that arrived together from one address at one socket: all `stride` bytes long but the last, which may
    /// be shorter. They are opened in place; what the application reads later are references into the buffer.
    ///
    /// A path belongs to its two ends. A server follows a client whose packets come from elsewhere (RFC 9000, section 9.3;
    /// multipath draft-21, section 3.1.2); a client drops what does, since servers do not move.
    pub fn handle_datagrams(
        &mut self,
        now: Instant,
        addresses: Addresses,
        mut buffer: impl ReceiveBuffer,
        stride: usize,
    ) {
        let (data, stride) = (buffer.bytes_mut(), stride.max(1));
        let path = self.path_of(data);
        if !self.note_arrival(now, path, &addresses, count_of(data, stride), data.len() as u64) {
            return;
        }
        if self.control.is_confirmed() {
            let mut job = self.scratch.take().unwrap_or_default();
            self.lend(path, addresses, data.len(), stride, &mut job);
            job.open(data);
            self.take_opened(now, &mut job, &buffer.freeze());
            self.scratch = Some(job);
        } else {
            // Handshake packets are few and may be kept: each gets memory of its own.
            for datagram in data.chunks(stride) {
                self.open_datagram(now, datagram.into());
            }
            if self.control.is_confirmed() {
                // Thousands of connections may begin within a second and then idle: what each handshake needed goes at once.
                self.shrink();
            }
            self.note(|journal| journal.settle(now));
        }
        self.settle(now);
    }

    /// The first third of [`handle_datagrams`](Self::handle_datagrams), for a driver that opens on another processor: fills
    /// `job` with what [`OpenJob::open`] needs. False if there is nothing to open elsewhere: the whole is for
    /// `handle_datagrams` then, while the handshake goes on and when the connection ends.
    ///
    /// Batches of one path are to come back to [`handle_opened`](Self::handle_opened) in the order in which they began, or
    /// not at all: one that is missing counts as lost on the way.
    #[must_use]
    pub fn begin_open(
        &mut self,
        now: Instant,
        addresses: Addresses,
        data: &[u8],
        stride: usize,
        job: &mut OpenJob,
    ) -> bool {
        if !self.control.is_confirmed() {
            return false;
        }
        let stride = stride.max(1);
        let path = self.path_of(data);
        if self.note_arrival(now, path, &addresses, count_of(data, stride), data.len() as u64) {
            self.lend(path, addresses, data.len(), stride, job);
        } else {
            // Noted, and nothing to be opened.
            job.clear();
        }
        true
    }

    /// The last third: takes what a job has opened. `buffer` is the memory it was opened in.
    pub fn handle_opened(&mut self, now: Instant, job: &mut OpenJob, buffer: &Bytes) {
        // What was begun before the end began is a late packet now.
        if !self.control.is_confirmed() || !self.take_opened(now, job, buffer) {
            self.note(|journal| journal.settle(now));
        }
        self.settle(now);
    }

    /// Counts `count` datagrams that arrived for a path, `len` bytes in all; false if nothing is to be made of them.
    pub(crate) fn note_arrival(
        &mut self,
        now: Instant,
        path: PathId,
        addresses: &Addresses,
        count: u64,
        len: u64,
    ) -> bool {
        self.note(|journal| journal.arrival(now, path, addresses, count, len));
        let Some(origin) = self.origin_of(path, addresses) else {
            self.receive.stats.datagrams_stray += count;
            return false;
        };
        if self.control.is_idle_too_long(now) {
            // We were suspended, or nobody called. The peer knows by its own clock that it is over (RFC 9000, section 10.1);
            // what it sent before is no sign of life.
            self.on_timeout(now);
        }
        self.rest.note_busy(now);
        self.receive.on_arrivals(count, len);
        if origin != Origin::Elsewhere {
            self.send.on_received(now, path, len);
        }
        if self.control.is_silent() {
            self.settle(now);
            return false;
        }
        true
    }

    /// Lends a job what it needs to open datagrams of `path`.
    fn lend(&mut self, path: PathId, addresses: Addresses, len: usize, stride: usize, job: &mut OpenJob) {
        job.clear();
        job.context = Some(self.open_context(path));
        (job.addresses, job.stride, job.len) = (Some(addresses), stride, len as u64);
    }

    /// Absorbs what a job has opened; false if it was lent nothing.
    fn take_opened(&mut self, now: Instant, job: &mut OpenJob, buffer: &Bytes) -> bool {
        let (Some(context), Some(addresses)) = (job.context.take(), job.addresses) else { return false };
        let integrity_limit = self.integrity_limit_of(&context, &job.opened);
        let batch = Batch { path: context.path, addresses, len: job.len, integrity_limit };
        self.note(|journal| journal.opened(now, &batch, &job.opened, buffer));
        if self.take_batch(now, &batch, &job.opened, buffer)
            && let Some(ring) = &context.data
        {
            self.control.note_phase_from(context.path, ring.epoch, ring.phase_from);
        }
        true
    }

    /// Absorbs an opened batch; false if it could not be, as a whole.
    pub(crate) fn take_batch(&mut self, now: Instant, batch: &Batch, opened: &Opened, buffer: &Bytes) -> bool {
        let &Batch { path, ref addresses, len: bytes, integrity_limit } = batch;
        // It may have changed since the job began.
        let Some(origin) = self.origin_of(path, addresses) else { return false };
        if origin == Origin::Elsewhere && self.moves(path, self.receive.largest(Space::Data, path), opened) {
            self.exchange.to_send.push_back(ToSend::Moved { path, addresses: *addresses, bytes });
            self.settle(now);
        }
        if origin == Origin::New && opened.packets.iter().any(|packet| packet.path == path) {
            // Only what is authentic opens a path; what came with it counts for what may be sent back.
            self.control.on_packet_of(path, *addresses, &mut self.exchange, &mut self.events);
            self.exchange.to_send.push_back(ToSend::Received { path, bytes });
            self.settle(now);
        }
        self.absorb(now, opened, buffer, integrity_limit)
    }

    /// Packets that may fail to open: the negotiated AEAD's limit, once there is one; Initial packets have their own. Asked of
    /// the key only if any has failed.
    fn integrity_limit_of(&self, context: &OpenContext, opened: &Opened) -> u64 {
        if opened.unauthentic_count == 0 {
            return u64::MAX;
        }
        context.data.as_ref().map_or(self.integrity_limit, |ring| ring.current.integrity_limit())
    }

    /// The path a datagram belongs to: that of the connection ID it is sent to, once there may be several.
    pub(super) fn path_of(&self, datagram: &[u8]) -> PathId {
        if !self.control.is_multipath() {
            return PathId::ZERO;
        }
        let id = destination(datagram, LOCAL_ID_LEN).map(|destination| destination.dcid);
        id.and_then(|id| self.control.path_of_id(id)).unwrap_or(PathId::ZERO)
    }

    /// During the handshake: keys may come with each packet, so packets are opened one by one.
    fn open_datagram(&mut self, now: Instant, mut datagram: BytesMut) {
        let mut first_destination = None;
        let is_short = datagram.len() < MIN_INITIAL_SIZE;
        while !datagram.is_empty() {
            let header = match parse_packet(&datagram, LOCAL_ID_LEN) {
                Ok(Parsed::Protected(header)) => header,
                Ok(Parsed::VersionNegotiation { .. }) => return self.on_version_negotiation(&datagram),
                // Retry comes with address validation; until then it counts as noise.
                _ => {
                    self.receive.stats.packets_dropped += 1;
                    return;
                }
            };
            // RFC 9000, section 12.2: coalesced packets are for one connection.
            let is_stray = *first_destination.get_or_insert(header.dcid) != header.dcid;
            // RFC 9000, section 14.1: a client that sends less cannot be told from one that amplifies.
            let is_small = is_short && header.ty == PacketType::Initial && self.side == Side::Server;
            let is_foreign =
                header.ty != PacketType::OneRtt && self.control.peer_first_id().is_some_and(|id| id != header.scid);
            let packet = datagram.split_to(header.end.clamp(1, datagram.len()));
            if is_stray || is_small || is_foreign {
                self.receive.stats.packets_dropped += 1;
                continue;
            }
            let source = (header.ty != PacketType::OneRtt).then_some(header.scid);
            if self.open_single(now, packet, source) {
                self.retry_early(now);
            }
        }
    }

    /// Opens and absorbs one packet; true if it was authentic.
    fn open_single(&mut self, now: Instant, mut packet: BytesMut, source: Option<ConnectionId>) -> bool {
        // While we close, packets come on any path (RFC 9000, section 10.2.1).
        let mut context = self.open_context(self.path_of(&packet));
        let mut job = self.scratch.take().unwrap_or_default();
        let opened = &mut job.opened;
        opened.clear();
        let step = open_packet(&mut context, &mut packet, 0, opened);
        let is_open = matches!(step.outcome, Outcome::Opened);
        if let Outcome::NoKeys(space) = step.outcome {
            // Its keys may still come: a later flight overtook an earlier one.
            let early = self.control.is_handshaking() && space != Space::Initial;
            if early && self.early.len() < EARLY_PACKETS_MAX {
                self.early.push(packet);
                self.scratch = Some(job);
                return false;
            }
            opened.dropped_count += 1;
        }
        let (buffer, limit) = (packet.freeze(), self.integrity_limit_of(&context, opened));
        let source = source.filter(|_| is_open);
        self.note(|journal| journal.single(now, source, opened, &buffer, limit));
        if self.take_single(now, source, opened, &buffer, limit)
            && let Some(ring) = &context.data
        {
            self.control.note_phase_from(context.path, ring.epoch, ring.phase_from);
        }
        self.scratch = Some(job);
        is_open
    }

    /// Absorbs one packet of the handshake, opened or not, whose sender goes by the ID `source`; false if it could not be, as a
    /// whole.
    pub(crate) fn take_single(
        &mut self,
        now: Instant,
        source: Option<ConnectionId>,
        opened: &Opened,
        buffer: &Bytes,
        integrity_limit: u64,
    ) -> bool {
        if self.side == Side::Client
            && let Some(source) = source
        {
            self.control.on_peer_first_id(source, &mut self.exchange);
        }
        let is_absorbed = self.absorb(now, opened, buffer, integrity_limit);
        self.settle(now);
        is_absorbed
    }

    /// Tries the packets again that came before their keys.
    fn retry_early(&mut self, now: Instant) {
        if self.early.is_empty() {
            return;
        }
        for packet in std::mem::take(&mut self.early) {
            self.open_single(now, packet, None);
        }
    }

    pub(super) fn open_context(&mut self, path: PathId) -> OpenContext {
        let largest = Space::ALL.map(|space| self.receive.largest(space, path));
        self.control.open_context(path, largest)
    }

    /// Hands what was opened to the owners; false if the peer broke a rule by it.
    fn absorb(&mut self, now: Instant, opened: &Opened, buffer: &Bytes, integrity_limit: u64) -> bool {
        self.receive.stats.packets_unauthentic += opened.unauthentic_count;
        self.receive.stats.packets_dropped += opened.dropped_count;
        if !opened.packets.is_empty() {
            self.heard = true;
            self.send.on_heard();
        }
        for packet in &opened.packets {
            let result = self.receive.absorb(now, packet, opened, buffer, &mut self.exchange, &mut self.events);
            if let Err(error) = result {
                self.settle(now);
                self.fail(now, error);
                return false;
            }
        }
        if opened.unauthentic_count > 0 {
            self.unauthentic_count += opened.unauthentic_count;
            if self.unauthentic_count >= integrity_limit {
                let reason = "too many packets failed to authenticate";
                self.fail(now, TransportError::new(ErrorCode::AEAD_LIMIT_REACHED, reason));
                return false;
            }
        }
        if self.exchange.tells_of_data_alone() {
            // As settling would do, without a queue: bulk data are packets of which nothing else follows.
            let _accepted = self.exchange.to_control.pop_front();
            let pto = self.send.pto_interval();
            self.control.on_packet(now, Space::Data, pto, &mut self.exchange);
        }
        self.settle(now);
        true
    }

    /// RFC 9000, section 6.2: only before anything authentic came, and only if it does not offer what we speak.
    fn on_version_negotiation(&mut self, datagram: &[u8]) {
        let Ok(Parsed::VersionNegotiation { scid, versions, .. }) = parse_packet(datagram, LOCAL_ID_LEN) else {
            return;
        };
        // It repeats the IDs of our packet; a sender who has not seen that can only guess (RFC 8999, section 6).
        let is_answer = scid == self.control.original_destination().as_slice();
        let offers_ours = wire::quic::versions(versions).any(|version| version == wire::quic::VERSION_1);
        if self.side == Side::Client && is_answer && !self.heard && !offers_ours {
            self.on_other_version();
        }
    }

    /// The peer speaks none of our versions.
    pub(crate) fn on_other_version(&mut self) {
        self.note(|journal| journal.other_version());
        self.control.abandon(ConnectionError::VersionMismatch, &mut self.events);
    }
}
