//! The endpoint of the toy protocol: routes, cookies, resets, and connections that have ended and
//! still answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use driver::protocol::{Begun, NoLeases};
use driver::{ConnectionKey, Protocol, Route};
use units::{Duration, Instant};

use crate::app::{ToyApplication, ToyCell, ToyShared};
use crate::connection::ToyConnection;
use crate::detached::{DetachedHalf, Report, Update};
use crate::packets::{OpenJob, Plan, Segments};
use crate::recv::{Decrypt, WINDOW};
use crate::wire::{ACK, FIN, Hash, Header, RST, SYN, Tuple, front, is_intact};

/// Limit of resets that are sent within a period. Further ones wait for the next.
pub(crate) const RESETS_MAX: u32 = 4;
pub(crate) const RESET_PERIOD: Duration = Duration::from_millis(10);
/// Limit of waiting resets.
pub(crate) const RESETS_WAITING_MAX: usize = 16;
/// Time for which a connection that has ended still answers, in case its last acknowledgement is
/// lost.
pub(crate) const LINGER: Duration = Duration::from_millis(400);
const LINGERING_MAX: usize = 64;
pub(crate) const FIRST_PORT: u16 = 40_000;

pub(crate) enum RouteChange {
    Add(Tuple),
    Remove {
        tuple: Tuple,
        /// Last segment to repeat, and the time until which repeated segments are answered.
        last: Option<(Header, Instant)>,
    },
}

pub(crate) struct Toy {
    ip: Ipv4Addr,
    secret: u64,
    listening: BTreeSet<u16>,
    by_tuple: BTreeMap<Tuple, ConnectionKey>,
    by_key: BTreeMap<ConnectionKey, Tuple>,
    next_port: u16,
    lingering: BTreeMap<Tuple, (Header, Instant)>,
    resets_left: u32,
    next_period: Option<Instant>,
    resets: VecDeque<(usize, Header)>,
}

impl Toy {
    pub(crate) fn new(ip: Ipv4Addr, secret: u64, listening: impl IntoIterator<Item = u16>) -> Self {
        Self {
            ip,
            secret,
            listening: listening.into_iter().collect(),
            by_tuple: BTreeMap::new(),
            by_key: BTreeMap::new(),
            next_port: FIRST_PORT,
            lingering: BTreeMap::new(),
            resets_left: RESETS_MAX,
            next_period: None,
            resets: VecDeque::new(),
        }
    }

    /// Returns the number that a peer must acknowledge to begin a connection.
    fn cookie(&self, tuple: Tuple, isn: u64) -> u64 {
        let remote = u64::from(u32::from(*tuple.remote.ip()));
        let ports = u64::from(tuple.remote.port()) << 16 | u64::from(tuple.local_port);
        Hash::of(&[self.secret, remote, ports, isn]) >> 8
    }

    /// Returns the initial numbers of the connection that this segment, the third one, completes.
    fn completes(&self, header: &Header) -> Option<(u64, u64)> {
        if !header.has(ACK) || header.flags & (SYN | RST | FIN) != 0 {
            return None;
        }
        let (ours, theirs) = (header.ack.checked_sub(1)?, header.seq.checked_sub(1)?);
        (ours == self.cookie(header.tuple(), theirs)).then_some((ours, theirs))
    }

    fn is_for_us(&self, header: &Header) -> bool {
        *header.destination.ip() == self.ip
    }

    fn reset_of(header: &Header) -> Header {
        Header {
            source: header.destination,
            destination: header.source,
            flags: RST | ACK,
            len: 0,
            seq: header.ack,
            ack: header.seq + u64::from(header.len) + u64::from(header.has(SYN) || header.has(FIN)),
            limit: 0,
            held: 0,
        }
    }

    fn forget_tuple(&mut self, tuple: Tuple, key: ConnectionKey) {
        if self.by_tuple.get(&tuple) == Some(&key) {
            self.by_tuple.remove(&tuple);
        }
        self.by_key.remove(&key);
    }
}

fn write(header: &Header, out: &mut Vec<u8>) {
    out.clear();
    header.write(out, |_| {});
}

impl Protocol for Toy {
    type Connection = ToyConnection;
    type Application = ToyApplication;
    type Batch = Segments;
    type Plan = Plan;
    type Sealed = Vec<u8>;
    type OpenJob = OpenJob;
    type Job = Decrypt;
    type Leases = NoLeases;
    type ReceiveHalf = DetachedHalf;
    type HalfReport = Report;
    type HalfUpdate = Update;
    type RouteId = Tuple;

    fn route(&self, batch: &Segments) -> (usize, Route) {
        let Some((len, header)) = front(&batch.bytes) else { return (batch.bytes.len(), Route::Unknown) };
        if !self.is_for_us(&header) {
            return (len, Route::Unknown);
        }
        if let Some(key) = self.by_tuple.get(&header.tuple()) {
            return (len, Route::Known(*key));
        }
        let is_syn = header.flags & (SYN | ACK | RST) == SYN && self.listening.contains(&header.destination.port());
        let begins = is_syn || self.completes(&header).is_some();
        // One segment at a time, because later ones may belong to the connection that it begins.
        (header.segment_len(), if begins { Route::Begins } else { Route::Reply })
    }

    fn route_id(batch: &Segments) -> Option<(usize, Tuple)> {
        front(&batch.bytes).map(|(len, header)| (len, header.tuple()))
    }

    fn shard_of(&self, batch: &Segments, count: usize) -> Option<usize> {
        let (_, header) = front(&batch.bytes)?;
        Some(usize::from(header.source.port()) % count)
    }

    fn connect(&mut self, _now: Instant, (): (), cell: &Arc<ToyCell>, _socket: usize) -> Option<ToyConnection> {
        let std::net::SocketAddr::V4(remote) = driver::protocol::Cell::remote(&**cell) else {
            return None;
        };
        let is_taken = |port: u16| {
            let tuple = Tuple { remote, local_port: port };
            self.by_tuple.contains_key(&tuple) || self.lingering.contains_key(&tuple)
        };
        let mut port = self.next_port;
        while is_taken(port) {
            port = port.checked_add(1).unwrap_or(FIRST_PORT);
        }
        self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        let isn = Hash::of(&[self.secret, u64::from(port), u64::from(u32::from(*remote.ip()))]) >> 8;
        Some(ToyConnection::connect(Arc::clone(cell), SocketAddrV4::new(self.ip, port), remote, isn))
    }

    fn accept(
        &mut self,
        now: Instant,
        shared: &Arc<ToyShared>,
        socket: usize,
        batch: Segments,
        _may_be_foreign: bool,
        _is_busy: bool,
    ) -> Begun<Self> {
        let Some((_, header)) = front(&batch.bytes).filter(|_| is_intact(&batch.bytes)) else {
            return Begun::Nothing;
        };
        let tuple = header.tuple();
        let Some((ours, theirs)) = self.completes(&header) else {
            let seq = self.cookie(tuple, header.seq);
            let answer = Header { seq, flags: SYN | ACK, limit: header.seq + 1 + WINDOW, ..Self::reset_of(&header) };
            let mut out = Vec::new();
            write(&answer, &mut out);
            return Begun::Reply(out);
        };
        let cell = ToyCell::new(Arc::clone(shared), tuple.remote);
        let local = SocketAddrV4::new(self.ip, tuple.local_port);
        let mut connection = ToyConnection::open(Arc::clone(&cell), local, tuple, ours, theirs);
        driver::Connection::<Self>::absorb(&mut connection, now, socket, batch);
        Begun::Connection(connection, cell)
    }

    fn reply(&mut self, now: Instant, socket: usize, batch: &Segments, out: &mut Vec<u8>) -> bool {
        let Some((_, header)) = front(&batch.bytes).filter(|_| is_intact(&batch.bytes)) else { return false };
        if header.has(RST) {
            return false;
        }
        if let Some((last, _)) = self.lingering.get(&header.tuple()) {
            write(last, out);
            return true;
        }
        self.next_period.get_or_insert(now + RESET_PERIOD);
        if let Some(left) = self.resets_left.checked_sub(1) {
            self.resets_left = left;
            write(&Self::reset_of(&header), out);
            return true;
        }
        if self.resets.len() < RESETS_WAITING_MAX {
            self.resets.push_back((socket, Self::reset_of(&header)));
        }
        false
    }

    fn update_routes(&mut self, key: ConnectionKey, connection: &mut ToyConnection) {
        match connection.take_route_change() {
            Some(RouteChange::Add(tuple)) => {
                self.by_tuple.insert(tuple, key);
                self.by_key.insert(key, tuple);
            }
            Some(RouteChange::Remove { tuple, last }) => {
                self.forget_tuple(tuple, key);
                if let Some(last) = last.filter(|_| self.lingering.len() < LINGERING_MAX) {
                    self.lingering.insert(tuple, last);
                }
            }
            None => {}
        }
    }

    fn forget(&mut self, key: ConnectionKey) {
        if let Some(tuple) = self.by_key.get(&key).copied() {
            self.forget_tuple(tuple, key);
        }
    }

    fn poll_reply(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        self.resets_left = self.resets_left.checked_sub(1)?;
        let Some((socket, header)) = self.resets.pop_front() else {
            self.resets_left += 1;
            return None;
        };
        write(&header, out);
        Some(socket)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lingering.values().map(|(_, until)| *until).chain(self.next_period).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lingering.retain(|_, (_, until)| *until > now);
        if self.next_period.is_some_and(|at| at <= now) {
            self.resets_left = RESETS_MAX;
            self.next_period = (!self.resets.is_empty()).then(|| now + RESET_PERIOD);
        }
    }
}
