//! Arriving datagrams: through the open stage into the receive half.
//!
//! Once the handshake is confirmed this has three steps, and the second one can run on any
//! processor: [`begin_open`](Connection::begin_open) counts the arrival and copies keys into a job,
//! [`OpenJob::open`] opens and parses in place, and [`handle_opened`](Connection::handle_opened)
//! absorbs the result. [`handle_datagrams`](Connection::handle_datagrams) does all three.

use bytes::{Bytes, BytesMut};
use units::{Ecn, Instant};
use wire::quic::{ConnectionId, MIN_INITIAL_SIZE, PacketType, Parsed, PathId, Side, Space, Version, parse_packet};

use super::paths::Origin;
use super::{Connection, EARLY_PACKETS_MAX};
use crate::address_tokens::TOKEN_LEN_MAX;
use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::control::ids::{LOCAL_ID_LEN, ResetToken};
use crate::error::ConnectionError;
use crate::exchange::{Elsewhere, ToControl, ToPath, ToSend};
use crate::open::Batch;
use crate::open::opened::Opened;
use crate::open::{OpenContext, OpenJob, Outcome, open_packet, path_of_datagram, trailer_of};
use crate::receive_buffer::ReceiveBuffer;
use crate::session::TAG_LEN;
use crate::session::retry::retry_tag;

/// The Source Connection ID and the version of a long header.
type LongSource = (ConnectionId, Version);

impl Connection {
    /// Takes datagrams that arrived together from one address at one socket: `meta` is their stride,
    /// with their ECN codepoint if they have one ([`BatchMeta`]). They are opened in place; the
    /// application later reads references into the buffer.
    ///
    /// A path is a pair of addresses. A server follows a client whose packets come from another
    /// address (RFC 9000, section 9.3; multipath draft-21, section 3.1.2), unless they only probe. A
    /// client drops such packets, since servers do not migrate; those from an address that it
    /// [migrates](Self::migrate) to it takes.
    pub fn handle_datagrams(
        &mut self,
        now: Instant,
        addresses: Addresses,
        mut buffer: impl ReceiveBuffer,
        meta: impl Into<BatchMeta>,
    ) {
        let (data, meta) = (buffer.bytes_mut(), meta.into().checked());
        let path = self.path_of(data);
        if !self.note_arrival(now, path, &addresses, meta.count_in(data.len()), data.len() as u64) {
            return self.note_stray(now, data, meta.stride);
        }
        if self.control.is_confirmed() {
            let mut job = self.scratch.take().unwrap_or_default();
            self.prepare_job(path, addresses, data.len(), meta, &mut job);
            job.open(data);
            self.absorb_job(now, &mut job, &buffer.freeze());
            self.scratch = Some(job);
        } else {
            // Handshake packets are few and may be kept: each is copied into its own buffer.
            for datagram in data.chunks(meta.stride) {
                let dropped = |connection: &Self| {
                    let stats = &connection.receive.half.stats;
                    stats.packets_unauthentic + stats.packets_dropped
                };
                let before = dropped(self);
                self.open_datagram(now, datagram.into(), meta.ecn);
                if dropped(self) > before {
                    self.note_stray(now, datagram, datagram.len());
                }
            }
            if self.control.is_confirmed() {
                // Thousands of connections may begin within a second and then idle: the memory of
                // the handshake is freed at once.
                self.shrink();
            }
            self.record(|journal| journal.settle(now));
        }
        self.settle(now);
    }

    /// The first step of [`handle_datagrams`](Self::handle_datagrams), for a driver that opens on
    /// another processor: fills `job` with what [`OpenJob::open`] needs. False during the handshake
    /// and while the connection closes: the datagrams are for `handle_datagrams` then.
    ///
    /// The jobs of one path must come back to [`handle_opened`](Self::handle_opened) in the order
    /// in which they began. A job that does not come back counts as packet loss.
    #[must_use]
    pub fn begin_open(
        &mut self,
        now: Instant,
        addresses: Addresses,
        data: &[u8],
        meta: impl Into<BatchMeta>,
        job: &mut OpenJob,
    ) -> bool {
        if !self.control.is_confirmed() {
            return false;
        }
        let meta = meta.into().checked();
        let path = self.path_of(data);
        if self.note_arrival(now, path, &addresses, meta.count_in(data.len()), data.len() as u64) {
            self.prepare_job(path, addresses, data.len(), meta, job);
        } else {
            // Counted, and there is nothing to open.
            job.clear();
            self.note_stray(now, data, meta.stride);
        }
        true
    }

    /// The last step: absorbs what a job has opened. `buffer` is the memory it was opened in.
    pub fn handle_opened(&mut self, now: Instant, job: &mut OpenJob, buffer: &Bytes) {
        // If the connection has begun to close since the job began, its packets are late.
        if !self.control.is_confirmed() || !self.absorb_job(now, job, buffer) {
            self.record(|journal| journal.settle(now));
        }
        self.settle(now);
    }

    /// Counts `count` datagrams that arrived for a path, `len` bytes in all; false if they are
    /// dropped.
    pub(crate) fn note_arrival(
        &mut self,
        now: Instant,
        path: PathId,
        addresses: &Addresses,
        count: u64,
        len: u64,
    ) -> bool {
        self.record(|journal| journal.arrival(now, path, addresses, count, len));
        let Some(origin) = self.origin_of(path, addresses) else {
            self.receive.half.stats.datagrams_stray += count;
            return false;
        };
        if self.control.is_idle_too_long(now) {
            // The process was suspended, or the timer was handled late. The connection has timed
            // out for the peer, too (RFC 9000, section 10.1), so packets that it sent before are no
            // sign of life.
            self.on_timeout(now);
        }
        self.quiet_timer.note_busy(now);
        self.receive.half.on_arrivals(count, len);
        if origin != Origin::Elsewhere {
            self.send.on_received(now, path, len);
        }
        if self.control.is_silent() {
            self.settle(now);
            return false;
        }
        true
    }

    /// A datagram belongs to no path or could not be opened: it may be a stateless reset.
    fn note_stray(&mut self, now: Instant, data: &[u8], stride: usize) {
        let last = data.chunks(stride.max(1)).next_back();
        if let Some(trailer) = last.and_then(trailer_of) {
            self.note_trailer(now, trailer);
        }
    }

    /// A datagram that could not be attributed or opened ends in these bytes.
    pub(crate) fn note_trailer(&mut self, now: Instant, trailer: ResetToken) {
        // A connection without tokens has nothing to compare with.
        if self.control.knows_tokens() {
            self.record(|journal| journal.trailer(now, &trailer));
            self.receive.exchange.to_control.push_back(ToControl::Trailer(trailer));
            self.settle(now);
        }
    }

    /// Prepares a job for datagrams of `path`.
    fn prepare_job(&mut self, path: PathId, addresses: Addresses, len: usize, meta: BatchMeta, job: &mut OpenJob) {
        let context = self.open_context(path);
        job.prepare(Some(context), addresses, meta, len);
    }

    /// Absorbs what a job has opened; false if it was not prepared.
    fn absorb_job(&mut self, now: Instant, job: &mut OpenJob, buffer: &Bytes) -> bool {
        let Some((context, batch)) = job.take_batch(self.integrity_limit) else { return false };
        self.record(|journal| journal.opened(now, &batch, &job.opened, buffer));
        if self.absorb_batch(now, &batch, &job.opened, buffer)
            && let Some(one_rtt) = &context.data
        {
            self.control.note_phase_from(context.path, one_rtt.epoch, one_rtt.phase_from);
        }
        if let Some(trailer) = job.opened.trailer {
            self.note_trailer(now, trailer);
        }
        true
    }

    /// Absorbs an opened batch; false if a part of it was not absorbed.
    pub(crate) fn absorb_batch(&mut self, now: Instant, batch: &Batch, opened: &Opened, buffer: &Bytes) -> bool {
        let &Batch { path, ref addresses, len: bytes, integrity_limit } = batch;
        // The path may have changed since the job began.
        let Some(origin) = self.origin_of(path, addresses) else { return false };
        if origin == Origin::Elsewhere && self.is_migration(path, self.receive.half.largest(Space::Data, path), opened)
        {
            self.receive.exchange.to_send.push_back(ToSend::Path(ToPath::Moved { path, addresses: *addresses, bytes }));
            self.settle(now);
        } else if origin == Origin::Elsewhere {
            // Challenges are responded to where they came from; the path stays (RFC 9000, sections
            // 8.2.2 and 9.1).
            let spare_id = self.spare_remote_id(path);
            self.receive.half.elsewhere = Some(Box::new(Elsewhere { addresses: *addresses, bytes, spare_id }));
            let is_absorbed = self.absorb(now, opened, buffer, integrity_limit);
            self.receive.half.elsewhere = None;
            return is_absorbed;
        }
        if origin == Origin::New && opened.packets.iter().any(|packet| packet.path == path) {
            // Only an authentic packet opens a path. The whole batch counts for the
            // anti-amplification limit.
            self.control.on_packet_of(path, *addresses, &mut self.receive.exchange, &mut self.receive.events);
            self.receive.exchange.to_send.push_back(ToSend::Received { path, bytes });
            self.settle(now);
        }
        self.absorb(now, opened, buffer, integrity_limit)
    }

    /// The path of a datagram, by its destination connection ID once multipath was negotiated.
    pub(super) fn path_of(&self, datagram: &[u8]) -> PathId {
        if !self.control.is_multipath() {
            return PathId::ZERO;
        }
        path_of_datagram(datagram, |id| self.control.path_of_id(id))
    }

    /// During the handshake: keys may come with each packet, so packets are opened one by one.
    fn open_datagram(&mut self, now: Instant, mut datagram: BytesMut, ecn: Option<Ecn>) {
        let mut first_destination = None;
        let is_short = datagram.len() < MIN_INITIAL_SIZE;
        while !datagram.is_empty() {
            let header = match parse_packet(&datagram, LOCAL_ID_LEN) {
                Ok(Parsed::Protected(header)) => header,
                Ok(Parsed::VersionNegotiation { .. }) => return self.on_version_negotiation(&datagram),
                Ok(Parsed::Retry { version, dcid, scid, token, tag }) => {
                    let (token, body_len) = (token.to_vec(), datagram.len() - tag.len());
                    return self.on_retry_packet(now, version, (dcid, scid), &token, &datagram[..body_len], &tag);
                }
                _ => {
                    self.receive.half.stats.packets_dropped += 1;
                    return;
                }
            };
            // RFC 9000, section 12.2: coalesced packets are for one connection.
            let is_stray = *first_destination.get_or_insert(header.dcid) != header.dcid;
            // RFC 9000, section 14.1: a client that sends less cannot be distinguished from one
            // that amplifies.
            let is_small = is_short && header.ty == PacketType::Initial && self.side == Side::Server;
            let is_foreign =
                header.ty != PacketType::OneRtt && self.control.peer_first_id().is_some_and(|id| id != header.scid);
            // RFC 9000, section 17.2.2: a server sends no token in Initial packets.
            let has_token = self.side == Side::Client && !header.token.is_empty();
            let packet = datagram.split_to(header.end.clamp(1, datagram.len()));
            if is_stray || is_small || is_foreign || has_token {
                self.receive.half.stats.packets_dropped += 1;
                continue;
            }
            if header.ty == PacketType::ZeroRtt {
                self.open_early_packet(now, packet, ecn, &header);
                continue;
            }
            let source = (header.ty != PacketType::OneRtt).then_some((header.scid, header.version));
            if self.open_single(now, packet, ecn, source) {
                self.retry_early(now);
            }
        }
    }

    /// Opens and absorbs one packet; true if it was authentic.
    fn open_single(
        &mut self,
        now: Instant,
        mut packet: BytesMut,
        ecn: Option<Ecn>,
        source: Option<LongSource>,
    ) -> bool {
        // While we close, packets come on any path (RFC 9000, section 10.2.1).
        let mut context = self.open_context(self.path_of(&packet));
        let mut job = self.scratch.take().unwrap_or_default();
        let opened = &mut job.opened;
        opened.clear();
        opened.ecn = ecn;
        let step = open_packet(&mut context, &mut packet, 0, opened);
        let is_open = matches!(step.outcome, Outcome::Opened);
        if let Outcome::NoKeys(space) = step.outcome {
            // Its keys may still come: a later flight overtook an earlier one.
            let early = self.control.is_handshaking() && space != Space::Initial;
            if early && self.early.len() < EARLY_PACKETS_MAX {
                self.early.push((packet, ecn));
                self.scratch = Some(job);
                return false;
            }
            opened.dropped_count += 1;
        }
        let (buffer, limit) = (packet.freeze(), context.integrity_limit(opened, self.integrity_limit));
        let source = source.filter(|_| is_open);
        self.record(|journal| journal.single(now, source, opened, &buffer, limit));
        if self.absorb_single(now, source, opened, &buffer, limit)
            && let Some(one_rtt) = &context.data
        {
            self.control.note_phase_from(context.path, one_rtt.epoch, one_rtt.phase_from);
        }
        self.scratch = Some(job);
        is_open
    }

    /// Absorbs one packet of the handshake, opened or not, with a long header from `source`; false if a
    /// part of it was not absorbed.
    pub(crate) fn absorb_single(
        &mut self,
        now: Instant,
        source: Option<LongSource>,
        opened: &Opened,
        buffer: &Bytes,
        integrity_limit: u64,
    ) -> bool {
        if self.side == Side::Client
            && let Some((source, version)) = source
        {
            self.control.on_peer_version(version, &mut self.receive.exchange);
            self.control.on_peer_first_id(source, &mut self.receive.exchange);
        }
        let is_absorbed = self.absorb(now, opened, buffer, integrity_limit);
        self.settle(now);
        is_absorbed
    }

    /// Opens again the packets that came before their keys.
    fn retry_early(&mut self, now: Instant) {
        if self.early.is_empty() {
            return;
        }
        for (packet, ecn) in std::mem::take(&mut self.early) {
            match parse_packet(&packet, LOCAL_ID_LEN) {
                Ok(Parsed::Protected(header)) if header.ty == PacketType::ZeroRtt => {
                    self.open_early_packet(now, packet, ecn, &header);
                }
                _ => {
                    self.open_single(now, packet, ecn, None);
                }
            }
        }
    }

    pub(super) fn open_context(&mut self, path: PathId) -> OpenContext {
        let largest = Space::ALL.map(|space| self.receive.half.largest(space, path));
        self.control.open_context(path, largest)
    }

    /// Absorbs opened packets and delivers their values to the owners; false if the peer has
    /// violated the protocol.
    fn absorb(&mut self, now: Instant, opened: &Opened, buffer: &Bytes, integrity_limit: u64) -> bool {
        if !opened.packets.is_empty() {
            self.has_received = true;
            self.send.on_heard();
        }
        if let Err(error) = self.receive.absorb(now, opened, buffer) {
            self.settle(now);
            self.fail(now, error);
            return false;
        }
        if let Err(error) = self.receive.count_unauthentic(opened.unauthentic_count, integrity_limit) {
            self.fail(now, error);
            return false;
        }
        if self.receive.exchange.is_one_accepted_packet() {
            // As `settle` would do, without the queue: for most packets of bulk data this is the
            // only value.
            let _accepted = self.receive.exchange.to_control.pop_front();
            let pto = self.send.pto_interval();
            self.control.on_packet(now, Space::Data, pto, &mut self.receive.exchange);
        }
        self.settle(now);
        true
    }

    /// RFC 9000, section 17.2.5.2: only a client's first Retry packet counts, before any other
    /// packet of the server, and only with a valid tag.
    fn on_retry_packet(
        &mut self,
        now: Instant,
        version: Version,
        (dcid, scid): (ConnectionId, ConnectionId),
        token: &[u8],
        body: &[u8],
        tag: &[u8; TAG_LEN],
    ) {
        let is_expected = self.side == Side::Client
            && !self.has_received
            && token.len() <= TOKEN_LEN_MAX
            && self.control.takes_retry(version, dcid, scid);
        if !is_expected || retry_tag(version, &self.control.original_destination(), body) != *tag {
            self.receive.half.stats.packets_dropped += 1;
            return;
        }
        self.on_retry(now, scid, token);
    }

    /// The server demands a proof of the client's address.
    pub(crate) fn on_retry(&mut self, now: Instant, source: ConnectionId, token: &[u8]) {
        self.record(|journal| journal.retry(now, &source, token));
        self.control.on_retry(source, token, &mut self.receive.exchange);
        self.settle(now);
    }

    /// RFC 9000, section 6.2: ignored after the first authentic packet, and if it lists our
    /// version.
    fn on_version_negotiation(&mut self, datagram: &[u8]) {
        let Ok(Parsed::VersionNegotiation { scid, versions, .. }) = parse_packet(datagram, LOCAL_ID_LEN) else {
            return;
        };
        // It repeats the IDs of our packet, which an off-path sender can only guess (RFC 8999,
        // section 6).
        let is_answer = scid == self.control.original_destination().as_slice();
        let offers_ours = wire::quic::versions(versions).any(|version| version == self.control.version().number());
        if self.side == Side::Client && is_answer && !self.has_received && !offers_ours {
            self.on_other_version();
        } else {
            self.receive.half.stats.packets_dropped += 1;
        }
    }

    /// The peer supports none of our versions.
    pub(crate) fn on_other_version(&mut self) {
        self.record(|journal| journal.other_version());
        self.control.abandon(ConnectionError::VersionMismatch, &mut self.receive.events);
    }
}
