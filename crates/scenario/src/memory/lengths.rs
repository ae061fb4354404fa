//! [`Lengths`]: packets without bytes, as far as possible. A plan is delivered without being
//! sealed; see [`quic::Unsealed`].

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use driver::{ConnectionKey, Route};
use quic::{Addresses, DetachedReceiveHalf, Endpoint, LOCAL_ID_LEN, NeedsConnection, Plan, Side};
use quic_driver::leases::Leases;
use quic_driver::packets::{NotBegun, OpenJob};
use quic_driver::routing::{LocalId, local_id};
use quic_driver::{ConnectionCell, Packets};
use units::Instant;

use super::addresses::addresses;
use super::datagram::{Body, Datagram, InFlightBatch};
use super::representation::Representation;

/// Packets as lengths and records.
pub(crate) enum Lengths {}

/// Datagrams that were received together.
#[derive(Clone)]
pub(crate) struct ReceivedDatagrams {
    /// The side that received them. It determines their addresses, together with their path.
    side: Side,
    len_bytes: usize,
    datagrams: Content,
}

/// Nearly all batches have one datagram if the host does not coalesce.
#[derive(Clone)]
enum Content {
    One(Datagram),
    Several(Vec<Datagram>),
}

impl ReceivedDatagrams {
    fn new(side: Side, datagrams: Vec<Datagram>) -> Self {
        let len_bytes = datagrams.iter().map(netem::Packet::len_bytes).sum();
        Self { side, len_bytes, datagrams: Content::Several(datagrams) }
    }

    fn all(&self) -> &[Datagram] {
        match &self.datagrams {
            Content::One(datagram) => std::slice::from_ref(datagram),
            Content::Several(datagrams) => datagrams,
        }
    }

    fn first(&self) -> &Datagram {
        self.all().first().expect("a batch has a datagram")
    }

    /// Returns the bytes of all datagrams.
    fn to_bytes(&self) -> BytesMut {
        let mut bytes = Vec::with_capacity(self.len_bytes);
        self.all().iter().for_each(|datagram| datagram.seal_into(&mut bytes));
        BytesMut::from(&bytes[..])
    }
}

impl driver::protocol::Batch for ReceivedDatagrams {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn packet_count(&self) -> usize {
        self.all().len()
    }

    fn split_front(&mut self, len_bytes: usize) -> Self {
        let mut rest = self.all().to_vec();
        let mut front_len = 0;
        let count = rest.iter().take_while(|datagram| {
            let is_before = front_len < len_bytes;
            front_len += netem::Packet::len_bytes(*datagram);
            is_before
        });
        let count = count.count();
        let front: Vec<_> = rest.drain(..count).collect();
        *self = Self::new(self.side, rest);
        Self::new(self.side, front)
    }
}

/// A plan that was sent: a batch that receivers share, and memory for further batches.
#[derive(Clone, Default)]
pub(crate) struct SentPlan {
    /// Shared batch; `None` before the first plan.
    batch: Option<Rc<InFlightBatch>>,
    spares: Spares,
}

impl SentPlan {
    /// Creates a batch of these bytes, returned to the origin of `batch`.
    fn answer_to(batch: &ReceivedDatagrams, bytes: Vec<u8>) -> Self {
        let answer = InFlightBatch::with_bytes(batch.first().path(), bytes);
        Self { batch: Some(Rc::new(answer)), spares: Spares::default() }
    }
}

/// Maximum number of batches kept for reuse. A new batch costs five allocations.
const SPARES_MAX: usize = 256;

/// The batches that were sent last, oldest first. Their memory is reused when all references are
/// gone.
#[derive(Default)]
pub(crate) struct Spares(VecDeque<Rc<InFlightBatch>>);

impl Clone for Spares {
    /// Creates a clone that does not share the memory of the sent plan.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Spares {
    /// Returns a batch filled by `fill`: the oldest one, if all of it has arrived, or a new one. It
    /// is kept for reuse.
    pub(crate) fn filled(&mut self, fill: impl FnOnce(&mut InFlightBatch)) -> Rc<InFlightBatch> {
        let is_free = self.0.front().is_some_and(|oldest| Rc::strong_count(oldest) == 1);
        let is_new = !is_free && self.0.len() <= SPARES_MAX;
        let oldest = if is_new { None } else { self.0.pop_front().filter(|_| is_free) };
        let mut batch = oldest.unwrap_or_default();
        fill(Rc::get_mut(&mut batch).expect("a spare batch is not shared"));
        self.0.push_back(Rc::clone(&batch));
        batch
    }
}

/// The part of a datagram's header that a receiver can read without keys.
enum Header {
    Short(LocalId),
    /// A long header, or a datagram that is too short.
    Other,
}

fn header(datagram: &Datagram) -> Header {
    let id = match datagram.body() {
        Body::Unsealed(batch, index) => match batch.unsealed().destination(index) {
            Some(id) => id.as_slice().first_chunk::<LOCAL_ID_LEN>().copied(),
            None => batch.unsealed().sealed_bytes(index).and_then(local_id),
        },
        Body::Bytes(bytes) => local_id(bytes),
    };
    id.map_or(Header::Other, Header::Short)
}

fn route(endpoint: &Endpoint, datagram: &Datagram) -> quic::Route {
    match datagram.body() {
        Body::Unsealed(batch, index) => endpoint.route_unsealed(batch.unsealed(), index),
        Body::Bytes(bytes) => endpoint.route(bytes),
    }
}

/// Returns the length in bytes of the longest prefix of `datagrams` in which each datagram after
/// the first satisfies `is_same`.
fn prefix_len(datagrams: &[Datagram], mut is_same: impl FnMut(&Datagram) -> bool) -> usize {
    let (first, rest) = datagrams.split_first().expect("a batch has a datagram");
    let rest = rest.iter().take_while(|datagram| is_same(datagram));
    netem::Packet::len_bytes(first) + rest.map(netem::Packet::len_bytes).sum::<usize>()
}

/// Returns the length in bytes of the longest prefix whose datagrams have short headers with this
/// connection ID.
fn same_id_prefix(batch: &ReceivedDatagrams, id: LocalId) -> usize {
    prefix_len(batch.all(), |datagram| matches!(header(datagram), Header::Short(other) if other == id))
}

impl Packets for Lengths {
    type Batch = ReceivedDatagrams;
    type Sealed = SentPlan;

    fn route(endpoint: &Endpoint, batch: &ReceivedDatagrams) -> (usize, Route) {
        let first = batch.first();
        match route(endpoint, first) {
            quic::Route::Known(key) => {
                let route = Route::Known(ConnectionKey(key.0));
                if let Content::One(_) = batch.datagrams {
                    return (batch.len_bytes, route);
                }
                // Like in `ByteDatagrams`: short headers with another ID may belong to another
                // path.
                let first = header(first);
                let len = prefix_len(batch.all(), |datagram| match (&first, header(datagram)) {
                    (Header::Short(one), Header::Short(other)) => *one == other,
                    _ => self::route(endpoint, datagram) == quic::Route::Known(key),
                });
                (len, route)
            }
            quic::Route::First => (netem::Packet::len_bytes(first), Route::Begins),
            quic::Route::UnknownVersion | quic::Route::Forgotten => (netem::Packet::len_bytes(first), Route::Reply),
            quic::Route::Unknown => {
                let len = match header(first) {
                    Header::Short(id) => same_id_prefix(batch, id),
                    Header::Other => netem::Packet::len_bytes(first),
                };
                (len, Route::Unknown)
            }
        }
    }

    fn leads_to(endpoint: &Endpoint, batch: &ReceivedDatagrams, key: ConnectionKey) -> bool {
        route(endpoint, batch.first()) == quic::Route::Known(quic::ConnectionKey(key.0))
    }

    fn shard_of(batch: &ReceivedDatagrams, count: usize) -> Option<usize> {
        let mut bytes = Vec::new();
        batch.first().seal_into(&mut bytes);
        Endpoint::shard_of(&bytes, count)
    }

    fn addresses(socket: usize, batch: &ReceivedDatagrams) -> Addresses {
        let socket = u16::try_from(socket).expect("an endpoint has few sockets");
        Addresses { socket, ..addresses(batch.first().path(), batch.side) }
    }

    fn accept(
        endpoint: &mut Endpoint,
        now: Instant,
        socket: usize,
        batch: ReceivedDatagrams,
        may_be_foreign: bool,
        is_busy: bool,
    ) -> Result<quic::Connection, NotBegun<Self>> {
        let accepted = endpoint.accept(now, Self::addresses(socket, &batch), batch.to_bytes(), None, is_busy);
        accepted.map_err(|error| match error.into_answer() {
            Some(answer) => NotBegun::Reply(SentPlan::answer_to(&batch, answer)),
            None if may_be_foreign => NotBegun::Foreign(batch),
            None => NotBegun::Unknown,
        })
    }

    fn refuse(endpoint: &mut Endpoint, batch: &ReceivedDatagrams, out: &mut SentPlan) -> bool {
        let (mut datagram, mut answer) = (Vec::new(), Vec::new());
        batch.first().seal_into(&mut datagram);
        let is_answered = endpoint.refuse(&datagram, &mut answer);
        out.batch = SentPlan::answer_to(batch, answer).batch;
        is_answered
    }

    fn reply(endpoint: &mut Endpoint, now: Instant, batch: &ReceivedDatagrams, out: &mut SentPlan) -> bool {
        let (mut datagram, mut reply) = (Vec::new(), Vec::new());
        batch.first().seal_into(&mut datagram);
        let is_answered =
            endpoint.version_negotiation(&datagram, &mut reply) || endpoint.stateless_reset(now, &datagram, &mut reply);
        out.batch = SentPlan::answer_to(batch, reply).batch;
        is_answered
    }

    fn seal(plan: &Plan, out: &mut SentPlan) {
        let Some(addresses) = plan.addresses else { return };
        out.batch = None;
        out.batch = Some(out.spares.filled(|batch| batch.fill_from(usize::from(addresses.socket), plan)));
    }

    fn seal_once(plan: &mut Plan, out: &mut SentPlan) {
        let Some(addresses) = plan.addresses else { return };
        out.batch = None;
        out.batch = Some(out.spares.filled(|batch| batch.fill(usize::from(addresses.socket), plan)));
    }

    fn absorb(connection: &mut quic::Connection, now: Instant, addresses: Addresses, batch: ReceivedDatagrams) {
        let mut rest = batch.all();
        while let Some(first) = rest.first() {
            let run = run_len(rest);
            match first.body() {
                Body::Unsealed(in_flight, index) if run > 0 => {
                    connection.handle_unsealed(now, addresses, in_flight.unsealed(), index..index + run, None);
                }
                _ => {
                    let mut bytes = Vec::with_capacity(netem::Packet::len_bytes(first));
                    first.seal_into(&mut bytes);
                    let len = bytes.len();
                    connection.handle_datagrams(now, addresses, BytesMut::from(&bytes[..]), len);
                }
            }
            rest = &rest[run.max(1)..];
        }
    }

    fn absorb_detached(
        half: &mut DetachedReceiveHalf,
        now: Instant,
        addresses: Addresses,
        mut batch: ReceivedDatagrams,
    ) -> Result<(), ReceivedDatagrams> {
        let stride = netem::Packet::len_bytes(batch.first());
        let bytes = batch.to_bytes();
        half.handle_datagrams(now, addresses, bytes, stride).map_err(|NeedsConnection(rest)| {
            let handled = batch.len_bytes - rest.len();
            if handled > 0 {
                drop(driver::protocol::Batch::split_front(&mut batch, handled));
            }
            batch
        })
    }

    fn begin_open(
        _connection: &mut quic::Connection,
        _now: Instant,
        _addresses: Addresses,
        _batch: &ReceivedDatagrams,
        _job: &mut quic::OpenJob,
    ) -> bool {
        // There is nothing to decrypt.
        false
    }

    fn open(_job: &mut quic::OpenJob, _batch: &mut ReceivedDatagrams) {
        unreachable!("no job is begun");
    }

    fn absorb_opened(_: &mut quic::Connection, _: Instant, _: &mut quic::OpenJob, _: ReceivedDatagrams) {
        unreachable!("no job is begun");
    }

    fn absorb_leased(_: &mut quic::Connection, _: Instant, _: &mut quic::OpenJob, _: ReceivedDatagrams) {
        unreachable!("no keys are leased");
    }

    fn local_id(batch: &ReceivedDatagrams) -> Option<(usize, LocalId)> {
        match header(batch.first()) {
            Header::Short(id) => Some((same_id_prefix(batch, id), id)),
            Header::Other => None,
        }
    }

    fn first_bytes(_batch: &ReceivedDatagrams) -> Option<&[u8]> {
        // Without bytes no keys are leased.
        None
    }

    fn open_leased(
        _leases: &mut Leases,
        _socket: usize,
        _batch: &mut ReceivedDatagrams,
        _spare: impl FnOnce() -> Box<OpenJob<Self>>,
    ) -> Option<(ConnectionKey, Arc<ConnectionCell>, Box<OpenJob<Self>>)> {
        None
    }
}

/// Returns the number of datagrams at the front that are consecutive packets of one run.
fn run_len(datagrams: &[Datagram]) -> usize {
    let unsealed = |datagram: &Datagram| match datagram.body() {
        Body::Unsealed(batch, index) if !batch.unsealed().is_sealed(index) => Some((Rc::as_ptr(batch), index)),
        _ => None,
    };
    let Some((batch, first)) = unsealed(&datagrams[0]) else { return 0 };
    let is_next = |(number, datagram): &(usize, &Datagram)| unsealed(datagram) == Some((batch, first + number));
    (1..).zip(&datagrams[1..]).take_while(is_next).count() + 1
}

impl Representation for Lengths {
    fn received(side: Side, mut datagrams: impl ExactSizeIterator<Item = Datagram>) -> ReceivedDatagrams {
        if datagrams.len() > 1 {
            return ReceivedDatagrams::new(side, datagrams.collect());
        }
        let datagram = datagrams.next().expect("a batch has a datagram");
        let len_bytes = netem::Packet::len_bytes(&datagram);
        ReceivedDatagrams { side, len_bytes, datagrams: Content::One(datagram) }
    }

    fn sent(packets: &SentPlan, _path: usize, each: impl FnMut(Datagram)) {
        packets.batch.iter().flat_map(InFlightBatch::datagrams).for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use driver::protocol::Batch as _;

    use super::*;

    fn batch(datagrams: &[&[u8]]) -> ReceivedDatagrams {
        let datagrams: Vec<_> = datagrams.iter().map(|bytes| Datagram::with_bytes(0, bytes.to_vec())).collect();
        Lengths::received(Side::Server, datagrams.into_iter())
    }

    /// Returns a short header with a connection ID whose bytes all are `id`.
    fn short(id: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![id; len];
        bytes[0] = 0x40;
        bytes
    }

    #[test]
    fn a_batch_is_split_between_datagrams() {
        let mut batch = batch(&[&[1; 30], &[2; 30], &[3; 20]]);
        assert_eq!((batch.len_bytes(), batch.packet_count()), (80, 3));
        let front = batch.split_front(60);
        assert_eq!((front.len_bytes(), front.packet_count()), (60, 2));
        assert_eq!((batch.len_bytes(), batch.packet_count()), (20, 1));
        assert_eq!((&front.to_bytes()[29..31], &batch.to_bytes()[..]), (&[1, 2][..], &[3; 20][..]));
        let front = batch.split_front(20);
        assert_eq!((front.packet_count(), batch.len_bytes(), batch.packet_count()), (1, 0, 0));
    }

    #[test]
    fn datagrams_with_one_connection_id_are_grouped() {
        let (one, other) = (short(7, 40), short(8, 40));
        let id = [7; LOCAL_ID_LEN];
        assert_eq!(Lengths::local_id(&batch(&[&one, &one, &other, &one])), Some((80, id)));
        let long = [0xc0; 40];
        assert_eq!(Lengths::local_id(&batch(&[&one, &long])), Some((40, id)));
        assert_eq!(Lengths::local_id(&batch(&[&long, &one])), None);
        assert_eq!(Lengths::local_id(&batch(&[&[0x40; 3]])), None, "too short for a connection ID");
    }

    #[test]
    fn the_memory_of_a_sent_batch_is_reused_when_it_has_arrived() {
        let mut spares = Spares::default();
        let address = |batch: &Rc<InFlightBatch>| Rc::as_ptr(batch) as usize;
        let first = spares.filled(|_| {});
        let second = spares.filled(|_| {});
        assert_ne!(address(&first), address(&second), "the first is in flight");
        let was = address(&first);
        drop(first);
        let third = spares.filled(|_| {});
        assert_eq!(address(&third), was);
        assert_ne!(address(&spares.filled(|_| {})), address(&second), "the second is in flight");
    }
}
