//! A socket that fails when a test requests it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::Waker;

use super::Intercept;
use crate::datagram::{DatagramSocket, RecvMeta, SendError, Transmit};

/// Faults of a socket, and counters of its calls. The test and, as [`Arc`], the socket share them.
#[derive(Debug, Default)]
pub struct Faults {
    /// Whether `send` panics.
    pub panic_in_send: AtomicBool,
    /// Whether `recv` panics.
    pub panic_in_recv: AtomicBool,
    /// Whether `recv` fails: the network is down.
    pub fail_recv: AtomicBool,
    /// Whether `recv` blocks until [`release`](Self::release).
    pub hang_in_recv: AtomicBool,
    /// Whether `send` fails: the network is unreachable.
    pub refuse_send: AtomicBool,
    /// Number of further sends that fail in the same way.
    pub refusals_left: AtomicU64,
    /// Whether `send` reports a full send buffer.
    pub is_full: AtomicBool,
    /// Whether `send` reports a lack of buffers below the socket.
    pub no_buffers: AtomicBool,
    /// Number of sends that were refused for any reason.
    pub refused: AtomicU64,
    /// Number of sends that were passed on.
    pub sent: AtomicU64,
    /// Number of calls of `flush`: a driver flushes once per turn.
    pub flushes: AtomicU64,
    /// Number of calls of `recv`.
    pub recv_calls: AtomicU64,
    /// Number of calls of `recv` that hang or have hung.
    pub hanging: AtomicU64,
    may_go_on: Mutex<bool>,
    signal: Condvar,
    arrivals: OnceLock<Waker>,
}

impl Faults {
    /// Wakes the driver of the socket, as if something had arrived.
    ///
    /// # Panics
    /// If no driver has taken over the socket.
    pub fn wake(&self) {
        self.arrivals.get().expect("the socket has a driver").wake_by_ref();
    }

    /// Releases calls that [hang](Self::hang_in_recv).
    pub fn release(&self) {
        *self.may_go_on.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.signal.notify_all();
    }

    fn refusal(&self) -> Option<SendError> {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        let fewer = |left: u64| left.checked_sub(1);
        if is_set(&self.is_full) {
            return Some(SendError::WouldBlock);
        }
        if is_set(&self.no_buffers) {
            return Some(SendError::NoBuffers);
        }
        let is_refused = is_set(&self.refuse_send)
            || self.refusals_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok();
        is_refused.then(|| SendError::Other(io::ErrorKind::NetworkUnreachable.into()))
    }
}

impl Intercept for Arc<Faults> {
    fn send(&mut self, inner: &mut dyn DatagramSocket, transmit: &Transmit<'_>) -> Result<(), SendError> {
        assert!(!self.panic_in_send.load(Ordering::SeqCst), "a test requested a panic in send");
        let counter = match self.refusal() {
            Some(error) => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return Err(error);
            }
            None => &self.sent,
        };
        counter.fetch_add(1, Ordering::SeqCst);
        inner.send(transmit)
    }

    fn flush(&mut self, inner: &mut dyn DatagramSocket) -> Result<(), SendError> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        inner.flush()
    }

    fn recv(
        &mut self,
        inner: &mut dyn DatagramSocket,
        buffers: &mut [&mut [u8]],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        self.recv_calls.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panic_in_recv.load(Ordering::SeqCst), "a test requested a panic in recv");
        if self.hang_in_recv.load(Ordering::SeqCst) {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            let may_go_on = self.may_go_on.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.signal.wait_while(may_go_on, |may_go_on| !*may_go_on).unwrap_or_else(PoisonError::into_inner));
        }
        if self.fail_recv.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        inner.recv(buffers, metas)
    }

    fn set_waker(&mut self, waker: &Waker) {
        self.arrivals.set(waker.clone()).expect("one driver takes over the socket, once");
    }
}
