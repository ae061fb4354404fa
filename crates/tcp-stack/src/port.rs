//! [`PacketPort`]: the packets of a stack on a TUN device that another thread reads because the
//! device has other users, too.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use bytes::Bytes;
use driver::socket::Received as ReceiveOutcome;
use driver::sync::lock;
use net::tun::Tun;
use tcp_driver::{Count, HostCounters, Received};

use crate::device::received;

/// Limit on packets and super-packets that wait for the stack. Others are dropped, as by a device
/// with a full queue. The windows of TCP keep bulk transfers below it.
const WAITING_MAX: usize = 1024;

/// Limit on packets that the stack takes at a time.
const TAKEN_MAX: usize = 16;

/// A stack's share of a TUN device: packets for the stack are [pushed](Self::push), and the stack
/// writes its packets to the device itself. Clones refer to the same share.
#[derive(Clone)]
pub struct PacketPort {
    pub(crate) tun: Tun,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    packets: VecDeque<Bytes>,
    dropped: u64,
    /// Counters of the stack, once there is one.
    counters: Option<Arc<HostCounters>>,
    waker: Option<Waker>,
}

impl PacketPort {
    /// Creates a share of `tun`.
    pub fn new(tun: Tun) -> Self {
        Self { tun, waiting: Arc::default() }
    }

    /// Passes a packet with its offload header to the stack, as it was read from the device.
    pub fn push(&self, packet: Bytes) {
        let waker = {
            let mut waiting = lock(&self.waiting);
            if waiting.packets.len() >= WAITING_MAX {
                waiting.dropped += 1;
                if let Some(counters) = &waiting.counters {
                    counters.add(Count::Read);
                    counters.add(Count::QueueDrops);
                }
                return;
            }
            waiting.packets.push_back(packet);
            // A stack that has packets checks for more before it waits.
            if waiting.packets.len() == 1 { waiting.waker.clone() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the number of packets dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        lock(&self.waiting).dropped
    }

    pub(crate) fn set_waker(&self, waker: Waker) {
        lock(&self.waiting).waker = Some(waker);
    }

    /// Counts in `counters` from now on.
    pub(crate) fn count_in(&self, counters: &Arc<HostCounters>) {
        lock(&self.waiting).counters = Some(Arc::clone(counters));
    }

    pub(crate) fn receive(&self, batches: &mut Vec<Received>, counters: &HostCounters) -> ReceiveOutcome {
        let mut waiting = lock(&self.waiting);
        let count = waiting.packets.len().min(TAKEN_MAX);
        let taken: Vec<Bytes> = waiting.packets.drain(..count).collect();
        let has_more = !waiting.packets.is_empty();
        drop(waiting);
        counters.add_many(Count::Read, count as u64);
        for packet in taken {
            match received(packet, None) {
                Ok(batch) => batches.push(batch),
                Err(reason) => counters.add(reason),
            }
        }
        if has_more { ReceiveOutcome::MayHaveMore } else { ReceiveOutcome::NoMore }
    }
}

impl fmt::Debug for PacketPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketPort").field("tun", &self.tun).finish_non_exhaustive()
    }
}
