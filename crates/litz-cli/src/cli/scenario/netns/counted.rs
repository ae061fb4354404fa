//! A socket that counts the datagrams it sends, to measure the use of a path.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use litz::{LiveSocket, Readiness};
use net::{DatagramSocket, RecvMeta, SendError, SocketCounters, Transmit, UdpSocket};

/// Counts what one socket has sent. The engine's thread writes it, the run's thread reads it.
#[derive(Debug, Default)]
pub(super) struct SentCounters {
    datagrams: AtomicU64,
    bytes: AtomicU64,
}

impl SentCounters {
    /// Number of datagrams, and of their bytes.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.datagrams.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// The counting socket.
pub(super) struct CountedSocket {
    socket: UdpSocket,
    sent: Arc<SentCounters>,
}

impl CountedSocket {
    /// Wraps a socket; also returns its counters.
    pub(super) fn new(socket: UdpSocket) -> (Self, Arc<SentCounters>) {
        let sent = Arc::new(SentCounters::default());
        (Self { socket, sent: Arc::clone(&sent) }, sent)
    }
}

impl DatagramSocket for CountedSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        self.socket.max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        self.socket.max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.socket.send(transmit)?;
        let bytes = transmit.contents.len();
        let datagrams = transmit.segment_size.map_or(1, |size| bytes.div_ceil(size.max(1)));
        self.sent.datagrams.fetch_add(datagrams as u64, Ordering::Relaxed);
        self.sent.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.socket.flush()
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        self.socket.recv(buffers, metas)
    }

    fn counters(&self) -> &SocketCounters {
        self.socket.counters()
    }
}

impl LiveSocket for CountedSocket {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.socket.readiness(waker)
    }
}
