//! [`QuicDevice`]: a datagram socket as the device of QUIC.

use std::io;
use std::net::SocketAddr;
use std::task::Waker;

use driver::SendError;
use driver::socket::Received;
use engine::{Device, Readiness};
use net::Transmit;
use quic_driver::{ByteDatagrams, Datagrams, Quic, SealedDatagrams};

use super::receive::{Buffers, RECV_BUFFERS, ReceivedData};
use super::socket::{LiveSocket, SharedSocket};

/// QUIC over sockets of the system.
pub(crate) type LiveQuic = Quic<ByteDatagrams<ReceivedData>>;

/// A socket that carries QUIC.
pub(crate) struct QuicDevice(pub(crate) Box<dyn LiveSocket>);

fn send_error(error: net::SendError) -> SendError {
    match error {
        net::SendError::WouldBlock => SendError::WouldBlock,
        net::SendError::NoBuffers => SendError::NoBuffers,
        net::SendError::TooLarge => SendError::TooLarge,
        other => SendError::Refused(other.to_string()),
    }
}

impl Device for QuicDevice {
    type Protocol = LiveQuic;
    type Buffers = Buffers;

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn share(self) -> io::Result<[Self; 2]> {
        let Self(mut socket) = self;
        let handles = match socket.receiver()? {
            Some(receiver) => [socket, receiver],
            None => SharedSocket::pair(socket),
        };
        Ok(handles.map(Self))
    }

    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.0.readiness(waker)
    }

    fn replacements(&mut self) -> u64 {
        self.0.replacements()
    }

    fn receive(&mut self, buffers: &mut Buffers, batches: &mut Vec<Datagrams<ReceivedData>>) -> Received {
        match buffers.fill(|buffers, metas| self.0.recv(buffers, metas)) {
            Ok(count) => {
                batches.extend((0..count).map(|index| buffers.take(index)));
                // The socket returned fewer batches than requested, so it is empty, and the next
                // arrival will be announced.
                if count >= RECV_BUFFERS.min(net::udp::RECV_BATCH_MAX) {
                    Received::MayHaveMore
                } else {
                    Received::NoMore
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::NoMore,
            Err(error) => Received::Failed(error.to_string()),
        }
    }

    fn send(&mut self, packets: &SealedDatagrams) -> Result<(), SendError> {
        let transmit = Transmit {
            destination: packets.destination,
            source_ip: packets.source_ip,
            ecn: packets.ecn,
            contents: &packets.contents,
            segment_size: packets.segment_size,
        };
        self.0.send(&transmit).map_err(send_error)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.0.flush().map_err(send_error)
    }

    fn batch_max(&self) -> usize {
        self.0.max_gso_segments().max(1)
    }

    fn size_of(packets: &SealedDatagrams) -> (usize, usize) {
        let len = packets.contents.len();
        (len.div_ceil(packets.segment_size.unwrap_or(len).max(1)), len)
    }
}
