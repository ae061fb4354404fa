//! [`Packets`]: the representation of packets.
//!
//! [`ByteDatagrams`] represents packets as bytes, for real and emulated networks. A simulation that
//! needs only lengths is another implementation.

use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quic::{Addresses, BatchMeta, DetachedReceiveHalf, Endpoint, NeedsConnection, ReceiveBuffer};
use units::{Ecn, Instant};

use driver::{ConnectionKey, Route};

use crate::cells::connection::ConnectionCell;
use crate::leases::Leases;
use crate::routing::{LocalId, is_in_same_batch, local_id, same_cid_prefix};

/// A representation of packets.
pub trait Packets: Sized + 'static {
    /// Datagrams received together.
    type Batch: driver::protocol::Batch;
    /// Encrypted datagrams that are sent together.
    type Sealed: Default + Clone;

    /// Returns the route of the first datagrams of a batch, and the number of bytes with this
    /// route.
    fn route(endpoint: &Endpoint, batch: &Self::Batch) -> (usize, Route);

    /// Returns whether the first datagram of a batch is routed to this connection.
    fn leads_to(endpoint: &Endpoint, batch: &Self::Batch, key: ConnectionKey) -> bool;

    /// Returns the endpoint, of `count` behind one address, that should receive the first datagram
    /// of a batch.
    fn shard_of(batch: &Self::Batch, count: usize) -> Option<usize>;

    /// Returns the addresses of a batch received from socket `socket`.
    fn addresses(socket: usize, batch: &Self::Batch) -> Addresses;

    /// Accepts a connection with a batch of one datagram.
    ///
    /// # Errors
    /// If the datagram begins no connection. The batch is returned if `may_be_foreign`: it may
    /// belong to another driver.
    fn accept(
        endpoint: &mut Endpoint,
        now: Instant,
        socket: usize,
        batch: Self::Batch,
        may_be_foreign: bool,
        is_busy: bool,
    ) -> Result<quic::Connection, NotBegun<Self>>;

    /// Writes the packet that refuses the client of a batch. Returns false if there is no such
    /// packet.
    fn refuse(endpoint: &mut Endpoint, batch: &Self::Batch, out: &mut Self::Sealed) -> bool;

    /// Writes the Version Negotiation packet for a datagram of an unsupported version, or the
    /// stateless reset for one of a forgotten connection. Returns false if the datagram must not be
    /// answered.
    fn reply(endpoint: &mut Endpoint, now: Instant, batch: &Self::Batch, out: &mut Self::Sealed) -> bool;

    /// Builds and encrypts the datagrams of a plan.
    fn seal(plan: &quic::Plan, out: &mut Self::Sealed);

    /// Seals like [`seal`](Self::seal), a plan that is not used afterwards.
    fn seal_once(plan: &mut quic::Plan, out: &mut Self::Sealed) {
        Self::seal(plan, out);
    }

    /// Decrypts and processes a batch.
    fn absorb(connection: &mut quic::Connection, now: Instant, addresses: Addresses, batch: Self::Batch);

    /// Processes a batch like [`absorb`](Self::absorb), in a detached receive half.
    ///
    /// # Errors
    /// Returns the batch if it concerns more than the receive half.
    fn absorb_detached(
        half: &mut DetachedReceiveHalf,
        now: Instant,
        addresses: Addresses,
        batch: Self::Batch,
    ) -> Result<(), Self::Batch>;

    /// Prepares a job that decrypts a batch. Returns false if the batch must be processed by
    /// [`absorb`](Self::absorb).
    fn begin_open(
        connection: &mut quic::Connection,
        now: Instant,
        addresses: Addresses,
        batch: &Self::Batch,
        job: &mut quic::OpenJob,
    ) -> bool;

    /// Decrypts a batch in place.
    fn open(job: &mut quic::OpenJob, batch: &mut Self::Batch);

    /// Processes a batch that was decrypted by a job of [`begin_open`](Self::begin_open).
    fn absorb_opened(connection: &mut quic::Connection, now: Instant, job: &mut quic::OpenJob, batch: Self::Batch);

    /// Processes a batch that was decrypted with a lease.
    fn absorb_leased(connection: &mut quic::Connection, now: Instant, job: &mut quic::OpenJob, batch: Self::Batch);

    /// Returns the connection ID of the first datagram of a batch, and the length of the prefix
    /// whose datagrams have it. `None` for long headers.
    fn local_id(batch: &Self::Batch) -> Option<(usize, LocalId)>;

    /// Returns the first datagram of a batch, if the representation has bytes.
    fn first_bytes(batch: &Self::Batch) -> Option<&[u8]>;

    /// Returns the ECN codepoint of a batch, if the representation has bytes.
    fn ecn(batch: &Self::Batch) -> Option<Ecn> {
        let _ = batch;
        None
    }

    /// Returns a datagram with these bytes for the sender of a datagram from `addresses`. Returns
    /// `None` if the representation has no bytes.
    fn answer(addresses: Addresses, contents: Vec<u8>) -> Option<Self::Sealed> {
        let _ = (addresses, contents);
        None
    }

    /// Decrypts a batch with a lease, if one covers all of it.
    fn open_leased(
        leases: &mut Leases,
        socket: usize,
        batch: &mut Self::Batch,
        spare: impl FnOnce() -> Box<OpenJob<Self>>,
    ) -> Option<(ConnectionKey, Arc<ConnectionCell>, Box<OpenJob<Self>>)>;
}

/// The reason why a batch begins no connection.
pub enum NotBegun<K: Packets> {
    /// This answer must be sent to the client first.
    Reply(K::Sealed),
    /// The batch may belong to another driver.
    Foreign(K::Batch),
    /// The batch belongs to no connection.
    Unknown,
}

/// A plan: packets that a connection is about to send.
pub struct Plan<K> {
    /// The plan of the protocol.
    pub plan: quic::Plan,
    packets: PhantomData<fn() -> K>,
}

impl<K> Default for Plan<K> {
    fn default() -> Self {
        Self { plan: quic::Plan::new(), packets: PhantomData }
    }
}

impl<K: Packets> driver::protocol::Plan for Plan<K> {
    type Sealed = K::Sealed;

    fn socket(&self) -> Option<usize> {
        self.plan.addresses.map(|addresses| usize::from(addresses.socket))
    }

    fn path(&self) -> u64 {
        u64::from(self.plan.path.0)
    }

    fn packet_count(&self) -> usize {
        self.plan.datagram_count()
    }

    fn is_full(&self, packets_max: usize) -> bool {
        self.plan.is_full(packets_max)
    }

    fn is_background(&self) -> bool {
        self.plan.is_background()
    }

    fn seal(&self, out: &mut K::Sealed) {
        K::seal(&self.plan, out);
    }

    fn seal_once(&mut self, out: &mut K::Sealed) {
        K::seal_once(&mut self.plan, out);
    }

    fn release(&mut self) {
        self.plan.release();
    }
}

/// A job that decrypts a batch.
pub struct OpenJob<K> {
    /// The job of the protocol.
    pub job: quic::OpenJob,
    packets: PhantomData<fn() -> K>,
}

impl<K> Default for OpenJob<K> {
    fn default() -> Self {
        Self { job: quic::OpenJob::default(), packets: PhantomData }
    }
}

impl<K: Packets> driver::protocol::OpenJob for OpenJob<K> {
    type Batch = K::Batch;

    fn path(&self) -> u64 {
        self.job.path().map_or(0, |path| u64::from(path.0))
    }

    fn open(&mut self, batch: &mut K::Batch) {
        K::open(&mut self.job, batch);
    }

    fn clear(&mut self) {
        self.job.clear();
    }
}

/// Memory into which datagrams are received.
pub trait DatagramBuffer: ReceiveBuffer + From<BytesMut> + 'static {
    /// Returns the datagrams in it.
    fn bytes(&self) -> &[u8];

    /// Returns the datagrams in owned memory.
    fn into_bytes_mut(self) -> BytesMut;
}

impl DatagramBuffer for BytesMut {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn into_bytes_mut(self) -> BytesMut {
        self
    }
}

/// Datagrams received together from one address. All have a length of `stride` bytes, except the
/// last, which may be shorter.
pub struct Datagrams<B> {
    /// The source address.
    pub source: SocketAddr,
    /// The destination address, if the system reports it.
    pub destination_ip: Option<IpAddr>,
    /// The length of each datagram, at least 1.
    pub stride: usize,
    /// The ECN codepoint of all of them; `None` is Not-ECT.
    pub ecn: Option<Ecn>,
    /// The bytes of all datagrams.
    pub data: B,
}

impl<B: DatagramBuffer> Datagrams<B> {
    /// Returns its stride and codepoint.
    pub fn meta(&self) -> BatchMeta {
        BatchMeta { stride: self.stride, ecn: self.ecn }
    }

    fn first(&self) -> &[u8] {
        let data = self.data.bytes();
        &data[..self.stride.min(data.len())]
    }
}

impl<B: DatagramBuffer> driver::protocol::Batch for Datagrams<B> {
    fn len_bytes(&self) -> usize {
        self.data.bytes().len()
    }

    fn packet_count(&self) -> usize {
        self.data.bytes().len().div_ceil(self.stride)
    }

    fn split_front(&mut self, len_bytes: usize) -> Self {
        let mut data = std::mem::replace(&mut self.data, B::from(BytesMut::new())).into_bytes_mut();
        let front = data.split_to(len_bytes);
        self.data = B::from(data);
        Self { data: B::from(front), ..*self }
    }
}

/// Encrypted datagrams that are sent together.
#[derive(Debug, Clone)]
pub struct SealedDatagrams {
    /// The bytes of all datagrams.
    pub contents: Vec<u8>,
    /// The destination address.
    pub destination: SocketAddr,
    /// The source address, unless the system chooses it.
    pub source_ip: Option<IpAddr>,
    /// The length of each datagram except the last. `None` for a single datagram.
    pub segment_size: Option<usize>,
    /// The ECN codepoint of all of them; `None` is Not-ECT.
    pub ecn: Option<Ecn>,
}

impl Default for SealedDatagrams {
    fn default() -> Self {
        let destination = SocketAddr::from(([0, 0, 0, 0], 0));
        Self { contents: Vec::new(), destination, source_ip: None, segment_size: None, ecn: None }
    }
}

/// Packets as bytes, received in buffers of type `B`.
pub struct ByteDatagrams<B>(PhantomData<fn() -> B>);

impl<B: DatagramBuffer> Packets for ByteDatagrams<B> {
    type Batch = Datagrams<B>;
    type Sealed = SealedDatagrams;

    fn route(endpoint: &Endpoint, batch: &Datagrams<B>) -> (usize, Route) {
        let (data, stride, first) = (batch.data.bytes(), batch.stride, batch.first());
        match endpoint.route(first) {
            quic::Route::Known(key) => {
                (same_connection_prefix(endpoint, key, data, stride), Route::Known(ConnectionKey(key.0)))
            }
            quic::Route::First => (first.len(), Route::Begins),
            quic::Route::UnknownVersion | quic::Route::Forgotten => (first.len(), Route::Reply),
            quic::Route::Unknown => (same_cid_prefix(data, stride), Route::Unknown),
        }
    }

    fn leads_to(endpoint: &Endpoint, batch: &Datagrams<B>, key: ConnectionKey) -> bool {
        endpoint.route(batch.first()) == quic::Route::Known(quic::ConnectionKey(key.0))
    }

    fn shard_of(batch: &Datagrams<B>, count: usize) -> Option<usize> {
        Endpoint::shard_of(batch.first(), count)
    }

    fn addresses(socket: usize, batch: &Datagrams<B>) -> Addresses {
        let socket = u16::try_from(socket).expect("an endpoint has few sockets");
        Addresses { remote: batch.source, local_ip: batch.destination_ip, socket }
    }

    fn accept(
        endpoint: &mut Endpoint,
        now: Instant,
        socket: usize,
        batch: Datagrams<B>,
        may_be_foreign: bool,
        is_busy: bool,
    ) -> Result<quic::Connection, NotBegun<Self>> {
        let addresses = Self::addresses(socket, &batch);
        let Datagrams { source, destination_ip, stride, ecn, data } = batch;
        let datagram = data.into_bytes_mut();
        let copy = may_be_foreign.then(|| datagram.clone());
        endpoint.accept(now, addresses, datagram, ecn, is_busy).map_err(|error| {
            tracing::debug!(%source, %error, "cannot accept a connection");
            match (error.into_answer(), copy) {
                (Some(contents), _) => NotBegun::Reply(SealedDatagrams {
                    contents,
                    destination: source,
                    source_ip: destination_ip,
                    segment_size: None,
                    ecn: None,
                }),
                (None, Some(data)) => {
                    NotBegun::Foreign(Datagrams { source, destination_ip, stride, ecn, data: B::from(data) })
                }
                (None, None) => NotBegun::Unknown,
            }
        })
    }

    fn refuse(endpoint: &mut Endpoint, batch: &Datagrams<B>, out: &mut SealedDatagrams) -> bool {
        (out.destination, out.source_ip, out.segment_size) = (batch.source, batch.destination_ip, None);
        out.ecn = None;
        endpoint.refuse(batch.first(), &mut out.contents)
    }

    fn reply(endpoint: &mut Endpoint, now: Instant, batch: &Datagrams<B>, out: &mut SealedDatagrams) -> bool {
        (out.destination, out.source_ip, out.segment_size) = (batch.source, batch.destination_ip, None);
        out.ecn = None;
        endpoint.version_negotiation(batch.first(), &mut out.contents)
            || endpoint.stateless_reset(now, batch.first(), &mut out.contents)
    }

    fn seal(plan: &quic::Plan, out: &mut SealedDatagrams) {
        quic::seal(plan, &mut out.contents);
        if let Some(addresses) = plan.addresses {
            (out.destination, out.source_ip) = (addresses.remote, addresses.local_ip);
        }
        out.segment_size = (plan.datagram_count() > 1).then_some(plan.segment_size);
        out.ecn = plan.ecn;
    }

    fn absorb(connection: &mut quic::Connection, now: Instant, addresses: Addresses, batch: Datagrams<B>) {
        let meta = batch.meta();
        connection.handle_datagrams(now, addresses, batch.data, meta);
    }

    fn absorb_detached(
        half: &mut DetachedReceiveHalf,
        now: Instant,
        addresses: Addresses,
        batch: Datagrams<B>,
    ) -> Result<(), Datagrams<B>> {
        let Datagrams { source, destination_ip, stride, ecn, data } = batch;
        let refused = half.handle_datagrams(now, addresses, data, BatchMeta { stride, ecn });
        refused.map_err(|NeedsConnection(data)| Datagrams { source, destination_ip, stride, ecn, data })
    }

    fn begin_open(
        connection: &mut quic::Connection,
        now: Instant,
        addresses: Addresses,
        batch: &Datagrams<B>,
        job: &mut quic::OpenJob,
    ) -> bool {
        connection.begin_open(now, addresses, batch.data.bytes(), batch.meta(), job)
    }

    fn open(job: &mut quic::OpenJob, batch: &mut Datagrams<B>) {
        job.open(batch.data.bytes_mut());
    }

    fn absorb_opened(connection: &mut quic::Connection, now: Instant, job: &mut quic::OpenJob, batch: Datagrams<B>) {
        connection.handle_opened(now, job, &freeze(batch.data));
    }

    fn absorb_leased(connection: &mut quic::Connection, now: Instant, job: &mut quic::OpenJob, batch: Datagrams<B>) {
        connection.handle_leased(now, job, &freeze(batch.data));
    }

    fn local_id(batch: &Datagrams<B>) -> Option<(usize, LocalId)> {
        Some((same_cid_prefix(batch.data.bytes(), batch.stride), local_id(batch.first())?))
    }

    fn first_bytes(batch: &Datagrams<B>) -> Option<&[u8]> {
        Some(batch.first())
    }

    fn ecn(batch: &Datagrams<B>) -> Option<Ecn> {
        batch.ecn
    }

    fn answer(addresses: Addresses, contents: Vec<u8>) -> Option<SealedDatagrams> {
        let Addresses { remote, local_ip, .. } = addresses;
        let answer =
            SealedDatagrams { contents, destination: remote, source_ip: local_ip, ..SealedDatagrams::default() };
        Some(answer)
    }

    fn open_leased(
        leases: &mut Leases,
        socket: usize,
        batch: &mut Datagrams<B>,
        spare: impl FnOnce() -> Box<OpenJob<Self>>,
    ) -> Option<(ConnectionKey, Arc<ConnectionCell>, Box<OpenJob<Self>>)> {
        let meta = batch.meta();
        if same_cid_prefix(batch.data.bytes(), meta.stride) != batch.data.bytes().len() {
            return None;
        }
        let addresses = Self::addresses(socket, batch);
        leases.open_datagrams(addresses, meta, batch.data.bytes_mut(), spare)
    }
}

fn freeze<B: ReceiveBuffer>(data: B) -> Bytes {
    data.freeze()
}

/// Returns the length in bytes of the prefix of `data` whose datagrams belong to connection `key`,
/// like the first one. Generic receive offload joins datagrams from one address, which several
/// connections may use.
fn same_connection_prefix(endpoint: &Endpoint, key: quic::ConnectionKey, data: &[u8], stride: usize) -> usize {
    let mut datagrams = data.chunks(stride);
    let Some(first) = datagrams.next() else { return 0 };
    let mut len = first.len();
    for datagram in datagrams {
        if !is_in_same_batch(first, datagram, || endpoint.route(datagram) == quic::Route::Known(key)) {
            break;
        }
        len += datagram.len();
    }
    len
}

#[cfg(test)]
mod tests {
    use driver::protocol::Batch;

    use super::*;

    #[test]
    fn the_last_datagram_of_a_batch_may_be_short() {
        let batch = |len, stride| Datagrams {
            source: ([127, 0, 0, 1], 1).into(),
            destination_ip: None,
            stride,
            ecn: None,
            data: BytesMut::zeroed(len),
        };
        assert_eq!(batch(2500, 1200).packet_count(), 3);
        assert_eq!(batch(2400, 1200).packet_count(), 2);
        assert_eq!(batch(50, 50).packet_count(), 1);
    }
}
