//! [`Representation`]: how the packets of a simulated host become datagrams on links, and back.

use bytes::BytesMut;
use netem::Packet as _;
use quic::Side;
use quic_driver::{ByteDatagrams, Datagrams, Packets, SealedDatagrams};

use super::addresses::addresses;
use super::datagram::{Body, Datagram};

/// A representation of packets that links can carry.
pub(crate) trait Representation: Packets {
    /// Datagrams of one path that one receive call of this side returns together: all have the
    /// length of the first, except the last, which may be shorter.
    fn received(side: Side, datagrams: impl ExactSizeIterator<Item = Datagram>) -> Self::Batch;

    /// Passes the datagrams of sent packets to `each`. `path` is the index of their path.
    fn sent(packets: &Self::Sealed, path: usize, each: impl FnMut(Datagram));
}

impl Representation for ByteDatagrams<BytesMut> {
    fn received(side: Side, datagrams: impl ExactSizeIterator<Item = Datagram>) -> Datagrams<BytesMut> {
        let (mut data, mut stride, mut path) = (BytesMut::new(), 0, 0);
        for datagram in datagrams {
            let Body::Bytes(bytes) = datagram.body() else {
                unreachable!("in this representation every datagram has bytes")
            };
            path = datagram.path();
            stride = stride.max(datagram.len_bytes());
            data.extend_from_slice(bytes);
        }
        let addresses = addresses(path, side);
        Datagrams { source: addresses.remote, destination_ip: addresses.local_ip, stride, ecn: None, data }
    }

    fn sent(packets: &SealedDatagrams, path: usize, mut each: impl FnMut(Datagram)) {
        let contents = &packets.contents;
        for bytes in contents.chunks(packets.segment_size.unwrap_or(contents.len()).max(1)) {
            each(Datagram::with_bytes(path, bytes.to_vec()));
        }
    }
}
