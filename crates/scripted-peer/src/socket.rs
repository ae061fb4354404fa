//! The socket of the measured end: outgoing data reach the script at once, and incoming data come
//! from the script.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use engine::Readiness;
use net::{DatagramSocket, RecvMeta, SendError, SocketCounters, Transmit};
use quic::PLAN_DATAGRAMS_MAX;
use quic_endpoint::runtime::LiveSocket;

use crate::channel::Channel;
use crate::peer::{local_addr, peer_addr};

/// A channel as a socket of the measured end.
pub struct ScriptSocket {
    channel: Arc<Channel>,
    counters: SocketCounters,
}

impl ScriptSocket {
    /// Creates the measured end's side of a channel.
    pub fn new(channel: &Arc<Channel>) -> Self {
        Self { channel: Arc::clone(channel), counters: SocketCounters::default() }
    }
}

impl DatagramSocket for ScriptSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(local_addr(self.channel.path))
    }

    fn max_gso_segments(&self) -> usize {
        PLAN_DATAGRAMS_MAX
    }

    fn max_gro_segments(&self) -> usize {
        PLAN_DATAGRAMS_MAX
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        let batch = transmit.contents;
        let stride = transmit.segment_size.unwrap_or(batch.len()).max(1);
        self.channel.take(batch, stride);
        self.counters.datagrams_sent += batch.len().div_ceil(stride) as u64;
        self.counters.batches_sent += 1;
        self.counters.bytes_sent += batch.len() as u64;
        Ok(())
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        let (source, destination_ip) = (peer_addr(self.channel.path), Some(local_addr(self.channel.path).ip()));
        let buffers_len = buffers.len().min(metas.len());
        let mut send_side = self.channel.send_side();
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(metas) {
            let Some((len, stride)) = send_side.hand_out(buffer, self.channel.datagram_size) else { break };
            *meta = RecvMeta { source, destination_ip, len, stride, ecn: None };
            self.counters.datagrams_received += len.div_ceil(stride) as u64;
            self.counters.batches_received += 1;
            self.counters.bytes_received += len as u64;
            count += 1;
        }
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if count == buffers_len || send_side.has_more() {
            // The driver has reached its limit for this turn, and has not seen that nothing is
            // left.
            send_side.wake();
        }
        Ok(count)
    }

    fn counters(&self) -> &SocketCounters {
        &self.counters
    }
}

impl LiveSocket for ScriptSocket {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        // Of two handles, the receiving one polls last.
        self.channel.set_waker(waker);
        Readiness::Waker
    }

    fn receiver(&mut self) -> io::Result<Option<Box<dyn LiveSocket>>> {
        Ok(Some(Box::new(Self::new(&self.channel))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::cipher::{Cipher, Tls};
    use crate::link::Link;
    use crate::peer::Peer;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn of_two_handles_the_last_to_register_is_woken() {
        let tls = Tls::new(Cipher::Aes128Gcm).unwrap();
        let link = Link::new(Peer::new(&tls, 1472, 0).unwrap(), 1, 1472);
        let mut sender = ScriptSocket::new(&link.channels[0]);
        let mut receiver = sender.receiver().unwrap().expect("there is a second handle");
        let (sends, receives) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let ask = |socket: &mut dyn LiveSocket, count: &Arc<Count>| socket.readiness(&Waker::from(Arc::clone(count)));
        ask(&mut sender, &sends);
        ask(&mut *receiver, &receives);
        let before = [&sends, &receives].map(|count| count.0.load(Ordering::Relaxed));
        link.channels[0].feed(Vec::new());
        let after = [&sends, &receives].map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(after, [before[0], before[1] + 1]);
        // The receiver was dropped.
        ask(&mut sender, &sends);
        link.channels[0].feed(Vec::new());
        assert!(sends.0.load(Ordering::Relaxed) > after[0] && receives.0.load(Ordering::Relaxed) == after[1]);
    }
}
