//! The receive half: reassembly, the window, and the cipher above the byte stream, which runs after
//! it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use driver::protocol::Job;

use crate::app::{Fault, ToyCell};
use crate::wire::{FIN, Header, apply_keystream};

/// The window: bytes that the peer may send beyond those that the application has read.
pub(crate) const WINDOW: u64 = 1 << 20;

/// Limits of the bytes of one job and of the jobs in flight.
const JOB_BYTES_MAX: usize = 24 << 10;
const JOBS_MAX: usize = 64;

/// Decrypts bytes that the serial step has put in order.
pub(crate) struct Decrypt {
    key: u64,
    offset: u64,
    pieces: Vec<Vec<u8>>,
    len: usize,
    panics: bool,
}

impl Decrypt {
    pub(crate) fn new(key: u64, offset: u64, pieces: Vec<Vec<u8>>) -> Self {
        let len = pieces.iter().map(Vec::len).sum();
        Self { key, offset, pieces, len, panics: false }
    }
}

impl Job for Decrypt {
    type Output = Vec<u8>;

    fn work_bytes(&self) -> usize {
        self.len
    }

    fn run(&self, out: &mut Vec<u8>) {
        assert!(!self.panics, "the test has requested this panic");
        out.clear();
        self.pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        apply_keystream(self.key, self.offset, out);
    }
}

/// The state that the receive half reports to the peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReceiveState {
    /// Offset below which all data was received.
    pub(crate) next: u64,
    pub(crate) held: u16,
}

pub(crate) struct ReceiveHalf {
    pub(crate) cell: Arc<ToyCell>,
    key: u64,
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    fin_at: Option<u64>,
    /// Data in order and encrypted. The first byte is at `ready_at`.
    ready: VecDeque<Vec<u8>>,
    ready_at: u64,
    /// Offset below which all data was decrypted.
    done_at: u64,
    jobs: usize,
    is_eof: bool,
    /// The limit that was sent to the peer, or a lower one.
    pub(crate) limit: u64,
    pub(crate) ack_due: bool,
    pub(crate) fault: Option<Fault>,
}

impl ReceiveHalf {
    pub(crate) fn new(cell: Arc<ToyCell>, key: u64) -> Self {
        Self {
            cell,
            key,
            next: 0,
            waiting: BTreeMap::new(),
            fin_at: None,
            ready: VecDeque::new(),
            ready_at: 0,
            done_at: 0,
            jobs: 0,
            is_eof: false,
            limit: WINDOW,
            ack_due: false,
            fault: None,
        }
    }

    pub(crate) fn state(&self) -> ReceiveState {
        ReceiveState { next: self.next, held: self.waiting.len().min(usize::from(u16::MAX)) as u16 }
    }

    /// Returns whether the stream of the peer has ended and the application has all of it.
    pub(crate) fn is_eof(&self) -> bool {
        self.is_eof
    }

    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs > 0
    }

    /// The serial step: sorts the payload of a segment at `offset` into the stream.
    pub(crate) fn absorb(&mut self, header: &Header, offset: u64, payload: &[u8]) {
        assert!(self.fault != Some(Fault::Absorb), "the test has requested this panic");
        let end = offset + payload.len() as u64;
        if payload.is_empty() && !header.has(FIN) {
            return;
        }
        self.ack_due = true;
        if end > self.limit {
            return;
        }
        if header.has(FIN) && self.fin_at.is_none_or(|at| at == end) && self.waiting.keys().all(|at| *at < end) {
            self.fin_at = Some(end);
        }
        if !payload.is_empty() && self.fin_at.is_none_or(|at| end <= at) {
            if offset > self.next {
                self.waiting.entry(offset).or_insert_with(|| payload.to_vec());
            } else if end > self.next {
                self.push(payload[(self.next - offset) as usize..].to_vec());
                while let Some(entry) = self.waiting.first_entry().filter(|entry| *entry.key() <= self.next) {
                    let (at, data) = entry.remove_entry();
                    let known = (self.next - at) as usize;
                    if known < data.len() {
                        self.push(data[known..].to_vec());
                    }
                }
            }
        }
        if self.fin_at == Some(self.next) {
            // The end of the stream takes one number.
            self.next += 1;
        }
        self.note_eof();
    }

    fn push(&mut self, data: Vec<u8>) {
        self.next += data.len() as u64;
        self.ready.push_back(data);
    }

    // ── The stage after the serial step ──────────────────────────────────────────────────────────

    pub(crate) fn poll_job(&mut self) -> Option<Decrypt> {
        if self.ready.is_empty() || self.jobs >= JOBS_MAX {
            return None;
        }
        let (mut pieces, mut len) = (Vec::new(), 0);
        while len < JOB_BYTES_MAX
            && let Some(piece) = self.ready.pop_front()
        {
            len += piece.len();
            pieces.push(piece);
        }
        let offset = self.ready_at;
        self.ready_at += len as u64;
        self.jobs += 1;
        Some(Decrypt { panics: self.fault == Some(Fault::Job), ..Decrypt::new(self.key, offset, pieces) })
    }

    pub(crate) fn finish_job(&mut self, job: &Decrypt, output: &mut Vec<u8>) {
        assert!(self.fault != Some(Fault::FinishJob), "the test has requested this panic");
        assert_eq!((job.offset, job.len), (self.done_at, output.len()), "jobs are finished in order");
        self.jobs -= 1;
        self.done_at += job.len as u64;
        self.cell.bring(std::mem::take(output));
        self.note_eof();
    }

    fn note_eof(&mut self) {
        if !self.is_eof && self.fin_at.is_some_and(|at| self.next > at && self.done_at == at) {
            self.is_eof = true;
            self.cell.bring_eof();
        }
    }

    /// Runs all jobs.
    pub(crate) fn run_jobs(&mut self) {
        while let Some(job) = self.poll_job() {
            let mut output = Vec::new();
            job.run(&mut output);
            self.finish_job(&job, &mut output);
        }
    }
}
