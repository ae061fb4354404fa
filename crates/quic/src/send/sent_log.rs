//! The packets in flight in one packet number space, as runs.
//!
//! A run is a sequence of packets that differ only in packet number and stream offset: full packets
//! of one stream, or packets with a datagram each, sent in one batch. A batch is one run, and its
//! acknowledgement is one step. A packet of another kind (control frames, several streams) is a run of one whose frames are kept
//! in a side table. Losses split runs.

use std::collections::VecDeque;
use std::ops::Range;

use recovery::{LossDetector, SendStamp, Verdict};
use units::Instant;
use wire::quic::StreamId;

use super::frames::SentFrame;

#[cfg(test)]
mod tests;

/// The most runs that a log holds. Beyond it the planner sends nothing but acknowledgements and
/// probes, so that a peer cannot make us use unbounded memory by acknowledging every other packet.
pub(crate) const RUNS_MAX: usize = 16_384;

/// The content of a run's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing that needs retransmission: PADDING, PING.
    Nothing,
    /// One STREAM frame each, without FIN: packet `i` holds `stride` bytes from `offset + i *
    /// stride`.
    Stream { id: StreamId, offset: u64, stride: u32 },
    /// One DATAGRAM frame each, which is never sent again (RFC 9221, section 5.2).
    Datagram,
    /// A run of one packet; its frames are in the side table.
    Side(u32),
}

impl Content {
    /// Whether there is something to send again if the packet is lost.
    fn is_repeated(self) -> bool {
        !matches!(self, Self::Nothing | Self::Datagram)
    }
}

/// A sequence of consecutive packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the first packet.
    pub(crate) first: u64,
    /// Number of packets; never zero.
    pub(crate) count: u32,
    /// Size of each packet in bytes, header and tag included.
    pub(crate) size: u16,
    /// Whether the packets are ack-eliciting. All logged packets count against the congestion
    /// window (RFC 9002, section 2: ack-eliciting or padded).
    pub(crate) eliciting: bool,
    /// The content was requeued for another path: if this packet is lost, nothing is retransmitted.
    pub(crate) moved: bool,
    /// When the packets were sent; until the emit report arrives, when they were planned.
    pub(crate) sent_at: Instant,
    /// The amount delivered by then, for the delivery-rate estimate.
    pub(crate) stamp: SendStamp,
    pub(crate) content: Content,
}

impl Run {
    /// The number after the last packet.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// The part of the run with numbers in `range`, which must lie inside the run.
    pub(crate) fn part(&self, range: Range<u64>) -> Self {
        debug_assert!(self.first <= range.start && range.end <= self.end() && !range.is_empty());
        let content = match self.content {
            Content::Stream { id, offset, stride } => {
                Content::Stream { id, offset: offset + (range.start - self.first) * u64::from(stride), stride }
            }
            other => other,
        };
        Self { first: range.start, count: (range.end - range.start) as u32, content, ..*self }
    }

    /// Whether `content` is the content of the packet after this run, if it belongs to the run.
    fn continues_with(&self, content: Content) -> bool {
        match (self.content, content) {
            (Content::Stream { id, offset, stride }, Content::Stream { id: next_id, offset: next, stride: step }) => {
                id == next_id && stride == step && offset + u64::from(stride) * u64::from(self.count) == next
            }
            (Content::Datagram, Content::Datagram) => true,
            _ => false,
        }
    }

    /// Bytes that count against the congestion window.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.count)
    }

    /// The stream bytes that all packets of the run carry together.
    pub(crate) fn stream_range(&self) -> Option<(StreamId, Range<u64>)> {
        match self.content {
            Content::Stream { id, offset, stride } => {
                Some((id, offset..offset + u64::from(stride) * u64::from(self.count)))
            }
            _ => None,
        }
    }
}

/// The sent packets of one number space that are neither acknowledged nor declared lost.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    /// Ascending by number; also by time, since emit reports arrive in plan order.
    runs: VecDeque<Run>,
    side: SideTable,
    /// Ack-eliciting packets in the log.
    eliciting_count: u64,
}

/// The frames of single packets, by slot. Slots and their memory are reused.
#[derive(Debug, Default)]
struct SideTable {
    slots: Vec<Vec<SentFrame>>,
    free: Vec<u32>,
}

impl SentLog {
    /// An empty log.
    pub(crate) const fn new() -> Self {
        Self { runs: VecDeque::new(), side: SideTable { slots: Vec::new(), free: Vec::new() }, eliciting_count: 0 }
    }

    /// Records one packet with a number above the last, and merges it into the last run if it
    /// continues that run.
    pub(crate) fn push(&mut self, run: Run) {
        debug_assert!(self.runs.back().is_none_or(|last| last.end() <= run.first), "numbers ascend");
        self.eliciting_count += if run.eliciting { u64::from(run.count) } else { 0 };
        if let Some(last) = self.runs.back_mut()
            && last.continues_with(run.content)
            && last.end() == run.first
            && last.size == run.size
            && last.sent_at == run.sent_at
            && last.moved == run.moved
        {
            last.count += run.count;
            return;
        }
        self.runs.push_back(run);
    }

    /// Moves the frames of one packet into the side table; the caller's vector is empty afterwards.
    pub(crate) fn store_frames(&mut self, frames: &mut Vec<SentFrame>) -> Content {
        if frames.is_empty() {
            return Content::Nothing;
        }
        let slot = self.side.free.pop().unwrap_or_else(|| {
            self.side.slots.push(Vec::new());
            self.side.slots.len() as u32 - 1
        });
        self.side.slots[slot as usize].append(frames);
        Content::Side(slot)
    }

    /// Moves the frames out of the side table into `frames`.
    pub(crate) fn take_frames(&mut self, slot: u32, frames: &mut Vec<SentFrame>) {
        frames.append(&mut self.side.slots[slot as usize]);
        self.side.free.push(slot);
    }

    /// Returns the frames of a packet that stays in the log; empty if they are not in the side
    /// table.
    pub(crate) fn frames_of(&self, run: &Run) -> &[SentFrame] {
        match run.content {
            Content::Side(slot) => self.frames(slot),
            _ => &[],
        }
    }

    /// Marks the last packet as a copy: its loss needs no retransmission.
    pub(crate) fn mark_last_moved(&mut self) {
        if let Some(last) = self.runs.back_mut() {
            last.moved = true;
        }
    }

    /// Reads the frames of a packet that stays in the log.
    pub(crate) fn frames(&self, slot: u32) -> &[SentFrame] {
        &self.side.slots[slot as usize]
    }

    /// The number of runs held.
    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// True if an ack-eliciting packet is outstanding.
    pub(crate) fn has_eliciting(&self) -> bool {
        self.eliciting_count > 0
    }

    /// The outstanding runs, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Run> {
        self.runs.iter()
    }

    /// When the newest outstanding ack-eliciting packet was sent.
    pub(crate) fn last_eliciting_sent_at(&self) -> Option<Instant> {
        if !self.has_eliciting() {
            return None;
        }
        self.runs.iter().rev().find(|run| run.eliciting).map(|run| run.sent_at)
    }

    /// The packets `first..=last` were sent at `at`.
    pub(crate) fn mark_emitted(&mut self, first: u64, last: u64, at: Instant) {
        let from = self.runs.partition_point(|run| run.end() <= first);
        for run in self.runs.range_mut(from..) {
            if run.first > last {
                break;
            }
            run.sent_at = at;
        }
    }

    /// Removes the acknowledged packets and passes them to `sink` as parts of runs, oldest first.
    /// `ranges` are ascending and disjoint; numbers that are not in the log (acknowledged or lost
    /// before) are skipped.
    pub(crate) fn acknowledge(&mut self, ranges: &[(u64, u64)], mut sink: impl FnMut(Run)) {
        // The loop is over the ranges, so that the cost is bounded by what the peer acknowledges:
        // runs between two ranges cost nothing.
        for &(low, high) in ranges {
            let from = self.runs.partition_point(|run| run.end() <= low);
            let to = self.runs.partition_point(|run| run.first <= high);
            if from >= to {
                continue;
            }
            let (first, last) = (self.runs[from], self.runs[to - 1]);
            for run in self.runs.range(from..to) {
                let acked = run.part(run.first.max(low)..run.end().min(high + 1));
                self.eliciting_count -= if acked.eliciting { u64::from(acked.count) } else { 0 };
                sink(acked);
            }
            let head = (first.first < low).then(|| first.part(first.first..low));
            let tail = (high + 1 < last.end()).then(|| last.part(high + 1..last.end()));
            self.replace(from, to, head, tail);
        }
    }

    /// Replaces runs `from..to` by the remainders of the outermost two.
    fn replace(&mut self, from: usize, to: usize, head: Option<Run>, tail: Option<Run>) {
        match (head, tail) {
            (Some(head), Some(tail)) if to - from == 1 => {
                self.runs[from] = head;
                self.runs.insert(to, tail);
            }
            (head, tail) => {
                let mut kept = from;
                for run in [head, tail].into_iter().flatten() {
                    self.runs[kept] = run;
                    kept += 1;
                }
                self.runs.drain(kept..to);
            }
        }
    }

    /// Removes the packets that `detector` declares lost (RFC 9002, section 6.1), all with numbers
    /// below `largest_acked`. Passes them to `sink`, oldest first, and returns when the next one
    /// will be declared lost if it is not acknowledged.
    pub(crate) fn detect_lost(
        &mut self,
        detector: &LossDetector,
        largest_acked: u64,
        mut sink: impl FnMut(Run),
    ) -> Option<Instant> {
        while let Some(run) = self.runs.front().copied() {
            if run.first >= largest_acked {
                return None;
            }
            // The packets of a run were sent together, so the time threshold applies to all of them
            // or none; the packet threshold may split a run.
            if let Verdict::LostAt(at) = detector.verdict(run.first, run.sent_at) {
                return Some(at);
            }
            let old = detector.lost_if_sent_by().is_some_and(|limit| run.sent_at <= limit);
            let too_far_behind = detector.lost_through().map_or(0, |number| number + 1);
            let lost_end = run.end().min(if old { largest_acked } else { too_far_behind });
            let lost = run.part(run.first..lost_end);
            self.eliciting_count -= if lost.eliciting { u64::from(lost.count) } else { 0 };
            if lost_end == run.end() {
                self.runs.pop_front();
            } else {
                self.runs[0] = run.part(lost_end..run.end());
            }
            sink(lost);
        }
        None
    }

    /// When the oldest outstanding ack-eliciting packet was sent.
    pub(crate) fn first_eliciting_sent_at(&self) -> Option<Instant> {
        if !self.has_eliciting() {
            return None;
        }
        self.runs.iter().find(|run| run.eliciting).map(|run| run.sent_at)
    }

    /// The oldest outstanding packets whose content was not requeued for another path.
    pub(crate) fn first_not_moved(&self) -> Option<&Run> {
        self.runs.iter().find(|run| !run.moved && run.content.is_repeated())
    }

    /// Marks runs as moved to another path, from the oldest on, until they hold `bytes`, and passes
    /// them to `sink`. They stay in the log, since they may still be acknowledged. Skips runs for
    /// which `moves` returns false; it is called with the frames of packets that are kept in the
    /// side table.
    pub(crate) fn move_content(
        &mut self,
        bytes: u64,
        moves: impl Fn(&Run, &[SentFrame]) -> bool,
        mut sink: impl FnMut(&Run),
    ) {
        let mut moved = 0;
        for run in self.runs.iter_mut().filter(|run| !run.moved && run.content.is_repeated()) {
            if moved >= bytes {
                return;
            }
            let frames = match run.content {
                Content::Side(slot) => &self.side.slots[slot as usize][..],
                _ => &[],
            };
            if !moves(run, frames) {
                continue;
            }
            run.moved = true;
            moved += u64::from(run.size) * u64::from(run.count);
            sink(run);
        }
    }

    /// Removes the oldest runs until `count` are left, and passes them to `sink`.
    pub(crate) fn forget_oldest(&mut self, count: usize, mut sink: impl FnMut(Run)) {
        while self.runs.len() > count
            && let Some(run) = self.runs.pop_front()
        {
            self.eliciting_count -= if run.eliciting { u64::from(run.count) } else { 0 };
            sink(run);
        }
    }

    /// Removes packets `first..=last`, which were never sent, and passes them to `sink`.
    pub(crate) fn take_unsent(&mut self, first: u64, last: u64, sink: impl FnMut(Run)) {
        self.acknowledge(&[(first, last)], sink);
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.runs.shrink_to_fit();
        if self.side.free.len() == self.side.slots.len() {
            self.side = SideTable::default();
        }
    }

    /// Removes everything: the number space is discarded.
    pub(crate) fn drain(&mut self, mut sink: impl FnMut(Run)) {
        self.eliciting_count = 0;
        for run in self.runs.drain(..) {
            sink(run);
        }
    }
}
