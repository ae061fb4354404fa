//! A socket that says that it is bound to another's address, as sockets of several processors that share a port do.

use std::io;
use std::net::SocketAddr;
use std::task::Waker;

use engine::{LiveSocket, Readiness};
use net::{DatagramSocket, MemorySocket, RecvMeta, SendError, SocketCounters, Transmit};

pub(crate) struct Alias {
    pub(crate) inner: MemorySocket,
    pub(crate) local: SocketAddr,
}

impl DatagramSocket for Alias {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn max_gso_segments(&self) -> usize {
        self.inner.max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        self.inner.max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.inner.send(&Transmit { source_ip: Some(self.local.ip()), ..*transmit })
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        let count = self.inner.recv(buffers, metas)?;
        metas[..count].iter_mut().for_each(|meta| meta.destination_ip = Some(self.local.ip()));
        Ok(count)
    }

    fn counters(&self) -> &SocketCounters {
        self.inner.counters()
    }
}

impl LiveSocket for Alias {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.inner.readiness(waker)
    }
}
