//! An application that sends a stream, reads one, and checks every byte.

use std::sync::Arc;
use std::task::Waker;

use crate::app::{End, Fault, Read, ToyCell};
use crate::protocol::FIRST_PORT;
use crate::wire::{Hash, apply_keystream};

const CHUNK: usize = 16 << 10;

/// The number of received bytes at which a fault is injected. More bytes follow.
const FAULT_AFTER: u64 = 64 << 10;

/// Returns the number of an accepted connection: the first host assigns its ports in order.
pub(crate) fn connection_number(cell: &ToyCell) -> u64 {
    u64::from(driver::protocol::Cell::remote(cell).port() - FIRST_PORT)
}

/// Returns the content of the stream with this seed.
fn content(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    apply_keystream(Hash::of(&[seed]), offset, &mut bytes);
    bytes
}

/// Sends `len` bytes of one seed and expects the same number of bytes of another.
pub(crate) struct Transfer {
    cell: Arc<ToyCell>,
    len: u64,
    out_seed: u64,
    in_seed: u64,
    written: u64,
    waiting: Option<Arc<[u8]>>,
    is_finished: bool,
    pub(crate) received: u64,
    has_all: bool,
    end: Option<End>,
    fault: Option<Fault>,
}

impl Transfer {
    /// Creates one side of a transfer. `number` distinguishes the streams of a pair.
    pub(crate) fn new(cell: Arc<ToyCell>, is_client: bool, number: u64, len: u64) -> Self {
        let (mine, other) = (2 * number + u64::from(is_client), 2 * number + u64::from(!is_client));
        Self {
            cell,
            len,
            out_seed: mine,
            in_seed: other,
            written: 0,
            waiting: None,
            is_finished: false,
            received: 0,
            has_all: false,
            end: None,
            fault: None,
        }
    }

    /// Makes the connection panic after part of the stream was received.
    pub(crate) fn with_fault(mut self, fault: Option<Fault>) -> Self {
        self.fault = fault;
        self
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    fn write(&mut self, waker: &Waker) {
        while self.written < self.len || self.waiting.is_some() {
            let chunk = self.waiting.take().unwrap_or_else(|| {
                let len = (self.len - self.written).min(CHUNK as u64) as usize;
                let chunk = content(self.out_seed, self.written, len).into();
                self.written += len as u64;
                chunk
            });
            if !self.cell.write(&chunk, waker) {
                self.waiting = Some(chunk);
                return;
            }
        }
        if !std::mem::replace(&mut self.is_finished, true) {
            self.cell.finish();
        }
    }

    fn read(&mut self, waker: &Waker) {
        while !self.has_all {
            match self.cell.read(waker) {
                Read::Data(data) => {
                    assert!(
                        data == content(self.in_seed, self.received, data.len()),
                        "wrong bytes at {}",
                        self.received
                    );
                    self.received += data.len() as u64;
                }
                Read::Finished => {
                    assert_eq!(self.received, self.len, "all of the stream");
                    self.has_all = true;
                }
                Read::Pending | Read::Ended(_) => return,
            }
        }
    }

    /// Does all possible work, and registers the waker. Returns true once the connection has ended.
    pub(crate) fn step(&mut self, waker: &Waker) -> bool {
        self.write(waker);
        self.read(waker);
        if self.received >= FAULT_AFTER
            && let Some(fault) = self.fault.take()
        {
            self.cell.inject(fault);
        }
        self.end = self.cell.poll_end(waker);
        if self.end.is_some() {
            // More may have been received since.
            self.read(waker);
            assert!(self.has_all || self.end != Some(End::Finished), "a stream that ends well is complete");
        }
        self.end.is_some()
    }
}
