//! A receive half on the receive worker.

use std::sync::Arc;

use driver::protocol::{HalfReport, HalfUpdate};
use units::{Duration, Instant};

use crate::app::{Fault, ToyCell};
use crate::connection::ack_info;
use crate::packets::{OpenJob, Segments};
use crate::protocol::Toy;
use crate::recv::{ReceiveHalf, ReceiveState};
use crate::send::AckInfo;
use crate::wire::{HEADER_LEN, PROBE, RST, SYN, Tuple};

const UNREPORTED_CALM: usize = 64;

/// Maximum time for which an acknowledgement waits for its report.
pub(crate) const REPORT_WITHIN: Duration = Duration::from_millis(5);

/// An update after the application has read data.
#[derive(Default)]
pub(crate) struct Update {
    /// The limit for the peer.
    pub(crate) limit: u64,
    pub(crate) fault: Option<Fault>,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) acks: Vec<AckInfo>,
    pub(crate) state: ReceiveState,
    pub(crate) ack_due: bool,
    pub(crate) is_eof: bool,
}

impl HalfUpdate for Update {
    type Report = Report;
}

impl HalfReport for Report {
    type Update = Update;
}

pub(crate) struct DetachedHalf {
    pub(crate) half: ReceiveHalf,
    tuple: Tuple,
    our_isn: u64,
    peer_isn: u64,
    acks: Vec<AckInfo>,
    has_report: bool,
    /// Time since which an acknowledgement has been waiting for a report.
    ack_since: Option<Instant>,
    probed: bool,
}

impl DetachedHalf {
    pub(crate) fn new(half: ReceiveHalf, tuple: Tuple, our_isn: u64, peer_isn: u64) -> Self {
        let (acks, has_report, ack_since, probed) = (Vec::new(), false, None, false);
        Self { half, tuple, our_isn, peer_isn, acks, has_report, ack_since, probed }
    }
}

impl driver::protocol::ReceiveHalf<Toy> for DetachedHalf {
    fn cell(&self) -> Option<Arc<ToyCell>> {
        Some(Arc::clone(&self.half.cell))
    }

    fn for_each_route(&self, each: &mut dyn FnMut(Tuple)) {
        each(self.tuple);
    }

    fn absorb(&mut self, now: Instant, _socket: usize, mut batch: Segments) -> Result<(), Segments> {
        let mut job = OpenJob::default();
        driver::protocol::OpenJob::open(&mut job, &mut batch);
        if job.opened.iter().any(|(_, header)| header.has(SYN) || header.has(RST)) {
            return Err(batch);
        }
        for (at, header) in &job.opened {
            let Some(offset) = header.seq.checked_sub(self.peer_isn + 1) else { continue };
            self.acks.extend(ack_info(header, self.our_isn));
            self.probed |= header.has(PROBE);
            self.half.absorb(header, offset, &batch.bytes[at + HEADER_LEN..at + header.segment_len()]);
        }
        self.half.run_jobs();
        self.has_report = true;
        if self.half.ack_due || self.probed {
            self.ack_since.get_or_insert(now);
        }
        Ok(())
    }

    fn handle_update(&mut self, _now: Instant, update: Update) -> bool {
        (self.half.limit, self.half.fault) = (update.limit, update.fault);
        false
    }

    fn wake_readers(&mut self) {
        self.half.cell.wake();
    }

    fn has_report(&self) -> bool {
        self.has_report
    }

    fn is_urgent(&self, now: Instant) -> bool {
        self.acks.len() >= UNREPORTED_CALM || self.ack_since.is_some_and(|since| since + REPORT_WITHIN <= now)
    }

    fn unreported(&self) -> usize {
        self.acks.len()
    }

    fn report(&mut self) -> Option<Report> {
        if !std::mem::take(&mut self.has_report) {
            return None;
        }
        self.ack_since = None;
        Some(Report {
            acks: std::mem::take(&mut self.acks),
            state: self.half.state(),
            ack_due: std::mem::take(&mut self.half.ack_due) | std::mem::take(&mut self.probed),
            is_eof: self.half.is_eof(),
        })
    }
}
