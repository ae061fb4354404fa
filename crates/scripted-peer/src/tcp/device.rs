//! [`ScriptDevice`]: a script as the device of the measured stack.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use driver::SendError;
use driver::socket::Received as ReceiveOutcome;
use engine::{Device, Readiness};
use tcp::SuperPacket;
use tcp_driver::{Received, Tcp};

use super::end::local_addr;
use super::feed::Fed;
use super::script::TcpScript;
use crate::link::lock;

/// Limit on packets in a receive call.
const READS_MAX: usize = 16;

/// Segments in a plan: more than fit into 64 KiB with packets of 4 KiB.
const SEGMENTS_MAX: usize = 64;

/// A device in memory. Clones refer to the same script.
#[derive(Debug, Clone)]
pub struct ScriptDevice {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    script: TcpScript,
    waker: Option<Waker>,
}

impl ScriptDevice {
    /// Creates a device connected to `script`.
    pub fn new(script: TcpScript) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { script, waker: None })) }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// Calls `read` with the script.
    pub fn with_script<T>(&self, read: impl FnOnce(&TcpScript) -> T) -> T {
        read(&self.shared().script)
    }
}

impl ScriptDevice {
    /// Passes packets made in advance to the script.
    pub fn feed(&self, packets: Vec<Fed>) {
        let mut shared = self.shared();
        shared.script.feed(packets);
        shared.wake();
    }

    /// Passes packets made in advance to the script, to be sent at the pace of the other direction.
    pub fn feed_in_step(&self, packets: Vec<Fed>) {
        let mut shared = self.shared();
        shared.script.feed_in_step(packets);
        shared.wake();
    }
}

impl Shared {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl Device for ScriptDevice {
    type Protocol = Tcp;
    type Buffers = ();

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(local_addr())
    }

    fn share(self) -> io::Result<[Self; 2]> {
        Ok([self.clone(), self])
    }

    fn readiness(&mut self, waker: &Waker) -> Readiness {
        // Of two handles, the receiving one polls last.
        self.shared().waker = Some(waker.clone());
        Readiness::Waker
    }

    fn receive(&mut self, _buffers: &mut (), batches: &mut Vec<Received>) -> ReceiveOutcome {
        let mut shared = self.shared();
        for _ in 0..READS_MAX {
            match shared.script.next_packet() {
                (Some(packet), _) => batches.push(Received::new(packet, None, false)),
                (None, asks_again) => {
                    if asks_again {
                        shared.wake();
                    }
                    return ReceiveOutcome::NoMore;
                }
            }
        }
        ReceiveOutcome::MayHaveMore
    }

    fn send(&mut self, packets: &SuperPacket) -> Result<(), SendError> {
        let mut shared = self.shared();
        if shared.script.take(packets)? {
            shared.wake();
        }
        Ok(())
    }

    fn batch_max(&self) -> usize {
        SEGMENTS_MAX
    }

    fn size_of(packets: &SuperPacket) -> (usize, usize) {
        (packets.packet_count(), packets.len())
    }
}
