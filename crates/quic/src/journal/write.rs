//! Writing entries. The answer to a call is a separate entry.

use ::journal::format::{put, put_bytes, zigzag};
use units::Instant;
use wire::quic::{ConnectionId, Dir, PathId, Space, StreamId, Version};

use super::format::{ADDRESSES_NUMBERED_MAX, put_addresses, put_id, put_limit, put_path_set, put_version, tag};
use super::outcome::{Answer, EventEntry, Planned, put_route};
use super::records::put_opened;
use crate::addresses::Addresses;
use crate::class::{PathSet, RateLimit};
use crate::control::ids::{ResetToken, RouteChange};
use crate::event::Event;
use crate::journal::recording::Journal;
use crate::open::Batch;
use crate::open::opened::Opened;
use crate::plan::Receipt;
use crate::send::datagrams::DatagramPaths;

impl Journal {
    fn entry(&mut self, tag: u8) -> &mut Vec<u8> {
        self.writer.entry(tag)
    }

    fn timed(&mut self, tag: u8, now: Instant) -> &mut Vec<u8> {
        self.writer.timed(tag, now)
    }

    /// Addresses by their number, or written out the first time.
    fn put_addresses(&mut self, addresses: &Addresses) {
        match self.addresses.iter().position(|known| known == addresses) {
            Some(at) => put(self.writer.entries(), at as u64 + 1),
            None => {
                put(self.writer.entries(), 0);
                put_addresses(self.writer.entries(), addresses);
                if self.addresses.len() < ADDRESSES_NUMBERED_MAX {
                    self.addresses.push(*addresses);
                }
            }
        }
    }

    // ── Input ────────────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn timeout(&mut self, now: Instant) {
        self.timed(tag::TIMEOUT, now);
    }

    pub(crate) fn emitted(&mut self, now: Instant, receipt: &Receipt) {
        put_receipt(self.timed(tag::EMITTED, now), receipt);
    }

    pub(crate) fn not_emitted(&mut self, receipt: &Receipt) {
        put_receipt(self.entry(tag::NOT_EMITTED), receipt);
    }

    /// Datagrams arrived and are not opened yet.
    pub(crate) fn arrival(&mut self, now: Instant, path: PathId, addresses: &Addresses, count: u64, len: u64) {
        put(self.timed(tag::ARRIVAL, now), u64::from(path.0));
        self.put_addresses(addresses);
        put(self.writer.entries(), count);
        put(self.writer.entries(), len);
    }

    pub(crate) fn opened(&mut self, now: Instant, batch: &Batch, opened: &Opened, buffer: &[u8]) {
        put(self.timed(tag::OPENED, now), u64::from(batch.path.0));
        self.put_addresses(&batch.addresses);
        put(self.writer.entries(), batch.len);
        put_opened(self.writer.entries(), opened, buffer, batch.integrity_limit);
    }

    /// One packet of the handshake; `source` is the Source Connection ID and the version of its header,
    /// if that is long.
    pub(crate) fn single(
        &mut self,
        now: Instant,
        source: Option<(ConnectionId, Version)>,
        opened: &Opened,
        buffer: &[u8],
        integrity_limit: u64,
    ) {
        let out = self.timed(tag::SINGLE, now);
        out.push(u8::from(source.is_some()));
        if let Some((source, version)) = source {
            put_id(out, &source);
            put_version(out, version);
        }
        put_opened(out, opened, buffer, integrity_limit);
    }

    pub(crate) fn settle(&mut self, now: Instant) {
        self.timed(tag::SETTLE, now);
    }

    /// The peer supports none of our versions.
    pub(crate) fn other_version(&mut self) {
        self.entry(tag::OTHER_VERSION);
    }

    // ── The application's calls ──────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn open(&mut self, dir: Dir) {
        put(self.entry(tag::OPEN), dir.index() as u64);
    }

    pub(crate) fn open_early(&mut self, dir: Dir) {
        put(self.entry(tag::OPEN_EARLY), dir.index() as u64);
    }

    pub(crate) fn accept(&mut self, dir: Dir) {
        put(self.entry(tag::ACCEPT), dir.index() as u64);
    }

    /// A call about a stream, with a number: [`tag::WRITE`], [`tag::WRITE_SOME`], [`tag::RESET`]
    /// and [`tag::SET_BACKGROUND`].
    pub(crate) fn of_stream(&mut self, tag: u8, id: StreamId, number: u64) {
        let out = self.entry(tag);
        put(out, id.raw());
        put(out, number);
    }

    pub(crate) fn finish(&mut self, id: StreamId) {
        put(self.entry(tag::FINISH), id.raw());
    }

    pub(crate) fn priority(&mut self, id: StreamId, priority: i32) {
        self.of_stream(tag::PRIORITY, id, zigzag(i64::from(priority)));
    }

    /// A timed call about a stream, with a number: [`tag::READ`] and [`tag::STOP`].
    pub(crate) fn of_stream_at(&mut self, tag: u8, now: Instant, id: StreamId, number: u64) {
        let out = self.timed(tag, now);
        put(out, id.raw());
        put(out, number);
    }

    pub(crate) fn send_datagram(&mut self, len: usize) {
        put(self.entry(tag::SEND_DATAGRAM), len as u64);
    }

    pub(crate) fn send_datagram_on(&mut self, len: usize, paths: DatagramPaths) {
        let out = self.entry(tag::SEND_DATAGRAM_ON);
        put(out, len as u64);
        let (kind, number) = match paths {
            DatagramPaths::Any => (0, 0),
            DatagramPaths::Copies(count) => (1, count.into()),
            DatagramPaths::Only(path) => (2, path.0.into()),
            DatagramPaths::Pinned(path) => (3, path.0.into()),
        };
        put(out, kind);
        put(out, number);
    }

    pub(crate) fn recv_datagram(&mut self) {
        self.entry(tag::RECV_DATAGRAM);
    }

    pub(crate) fn close(&mut self, now: Instant, code: u64, reason: &str) {
        let out = self.timed(tag::CLOSE, now);
        put(out, code);
        put_bytes(out, reason.as_bytes());
    }

    pub(crate) fn open_path(&mut self, now: Instant, addresses: &Addresses, is_backup: bool) {
        self.timed(tag::OPEN_PATH, now).push(u8::from(is_backup));
        self.put_addresses(addresses);
    }

    pub(crate) fn trailer(&mut self, now: Instant, trailer: &ResetToken) {
        self.timed(tag::TRAILER, now).extend_from_slice(trailer);
    }

    pub(crate) fn retry(&mut self, now: Instant, source: &ConnectionId, token: &[u8]) {
        let out = self.timed(tag::RETRY, now);
        put_id(out, source);
        put_bytes(out, token);
    }

    /// Initial packets carry this token.
    pub(crate) fn token(&mut self, token: &[u8]) {
        put_bytes(self.entry(tag::TOKEN), token);
    }

    pub(crate) fn migrate(&mut self, now: Instant, addresses: &Addresses) {
        self.timed(tag::MIGRATE, now);
        self.put_addresses(addresses);
    }

    /// A timed call about a path, with a number: [`tag::ABANDON_PATH`], [`tag::SET_BACKUP`],
    /// [`tag::TOO_LARGE`], [`tag::REFUSED`].
    pub(crate) fn of_path(&mut self, tag: u8, now: Instant, path: PathId, number: u64) {
        let out = self.timed(tag, now);
        put(out, u64::from(path.0));
        put(out, number);
    }

    /// A limit of all streams together, or none.
    pub(crate) fn set_rate(&mut self, limit: Option<RateLimit>) {
        put_limit(self.entry(tag::SET_RATE), limit);
    }

    pub(crate) fn set_stream_rate(&mut self, id: StreamId, limit: Option<RateLimit>) {
        let out = self.entry(tag::SET_STREAM_RATE);
        put(out, id.raw());
        put_limit(out, limit);
    }

    pub(crate) fn set_stream_paths(&mut self, id: StreamId, paths: &PathSet) {
        let out = self.entry(tag::SET_STREAM_PATHS);
        put(out, id.raw());
        put_path_set(out, paths);
    }

    // ── The driver's queries ─────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn tail_asked(&mut self, datagrams: usize) {
        put(self.entry(tag::TAIL_ASKED), datagrams as u64);
    }

    // ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn plan_asked(&mut self, now: Instant) -> Vec<(u16, usize)> {
        self.timed(tag::PLAN_ASKED, now);
        std::mem::take(&mut self.socket_budgets)
    }

    /// The plan, and the number of datagrams that each socket accepted.
    pub(crate) fn planned(&mut self, mut socket_budgets: Vec<(u16, usize)>, planned: &Planned) {
        let out = self.entry(tag::PLANNED);
        put(out, socket_budgets.len() as u64);
        for (socket, budget) in socket_budgets.drain(..) {
            put(out, u64::from(socket));
            put(out, budget as u64);
        }
        planned.put(out);
        self.socket_budgets = socket_budgets;
    }

    pub(crate) fn answer(&mut self, answer: Answer) {
        answer.put(self.entry(tag::ANSWER));
    }

    pub(crate) fn event(&mut self, event: &Event) {
        EventEntry::of(event).put(self.entry(tag::EVENT));
    }

    pub(crate) fn route(&mut self, change: &RouteChange) {
        put_route(self.entry(tag::ROUTE), change);
    }

    // ── Whole entries ────────────────────────────────────────────────────────────────────────────────────────────────

    /// The buffer for the entries about TLS, which come before the next entry.
    pub(crate) fn session_entries(&mut self) -> &mut Vec<u8> {
        self.writer.entries()
    }

    /// Writes one entry, which `begins` unless it is the answer to the one before. False if it was
    /// the last.
    pub(crate) fn write<T>(&mut self, begins: bool, write: impl FnOnce(&mut Self) -> T) -> (T, bool) {
        if begins {
            self.writer.begin_call();
        }
        let written = write(self);
        (written, self.writer.complete())
    }
}

fn put_receipt(out: &mut Vec<u8>, receipt: &Receipt) {
    let mut flags = 0;
    for space in Space::ALL {
        let at = space.index();
        flags |= u8::from(receipt.numbers[at].is_some()) << at | u8::from(receipt.acks[at]) << (at + 3);
    }
    put(out, u64::from(receipt.path.0));
    out.push(flags);
    for (first, last) in receipt.numbers.into_iter().flatten() {
        put(out, first);
        put(out, last - first);
    }
}
