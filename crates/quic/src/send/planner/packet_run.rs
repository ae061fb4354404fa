//! Bulk data: packet runs, full packets of one stream planned as one entry.

use recovery::SendStamp;
use wire::quic::Space;
use wire::quic::frame::stream_header_len;

use super::{HeaderForm, Pass};
use crate::plan::{PLAN_BYTES_MAX, PacketRun, Planned, RunFrame};
use crate::send::SendHalf;
use crate::send::sent_log::{Content, Run};
use crate::session::TAG_LEN;
use crate::spaces::DATA;

/// The packets of a run that is planned.
#[derive(Clone, Copy)]
pub(super) struct LoggedRun {
    pub(super) count: u32,
    /// Payload of each packet, in bytes.
    pub(super) stride: u32,
    pub(super) frame: RunFrame,
    /// The first piece of the payload.
    pub(super) pieces_from: u32,
}

impl SendHalf {
    /// True if the next packets may hold stream data only: no acknowledgement, control frame or
    /// probe is due.
    pub(super) fn is_bulk_due(&self, at: usize, ack_pending: bool) -> bool {
        self.progress.is_complete
            && !ack_pending
            && self.spaces[DATA + at].probes_due == 0
            && !self.paths[at].validation.has_due()
            && !self.has_control_due()
    }

    /// True if all data to send belong to one stream, are too few for `packets` full packets, and
    /// do not end it.
    pub(crate) fn has_only_a_tail(&mut self, ack_pending: bool, packets: usize) -> bool {
        let size = self.paths[0].size.bytes();
        let full = (packets.min(PLAN_BYTES_MAX / size) * size) as u64;
        // With several paths the scheduler decides which data wait.
        self.paths.len() == 1
            && self.is_bulk_due(0, ack_pending)
            && self.streams.only_ready_len().is_some_and(|len| len < full)
    }

    /// Bytes that the application wants sent before all others: datagrams and the most urgent
    /// streams, none of them background.
    pub(crate) fn urgent_bytes(&self) -> u64 {
        self.datagrams.bytes() + self.streams.urgent_bytes()
    }

    /// Plans a run of at most `packets` full packets of the next stream. Returns the number
    /// planned, zero if the stream does not fill a packet.
    pub(super) fn plan_packet_run(&mut self, pass: &mut Pass<'_>, packets: u32, form: HeaderForm) -> u32 {
        let Some((id, limit)) = self.streams.next_ready() else { return 0 };
        let Some(due) = self.streams.peek_bulk(id, limit) else { return 0 };
        if pass.is_empty() {
            // Only between plans: the packet numbers of a plan are consecutive.
            self.paths[pass.at].numbers.maybe_skip(&mut self.spaces[DATA + pass.at], &mut self.randomness.rng);
        }
        let plan = &mut *pass.plan;
        // The segment size of this plan: less than the path's datagram size for an unvalidated
        // address.
        let (size, dcid) = (plan.segment_size, self.paths[pass.at].link.remote_id);
        let header_len = stream_header_len(id, due.start, 0, true);
        let stride = (size - TAG_LEN - (1 + dcid.len() + form.number_len) - header_len) as u64;
        // Larger offsets take more bytes; a run ends where the frame header grows.
        let is_uniform = |count: u64| stream_header_len(id, due.start + (count - 1) * stride, 0, true) == header_len;
        let mut count = u64::from(packets).min((due.end - due.start) / stride);
        while count > 0 && !is_uniform(count) {
            count -= 1;
        }
        if count == 0 {
            return 0;
        }
        let range = self.streams.take_bulk(id, limit, count * stride);
        let pieces_from = plan.pieces.len() as u32;
        self.streams.get(id).expect("a ready stream exists").buffer.add_to_plan(range.clone(), plan);
        let frame = RunFrame::Stream { id, offset: range.start };
        let content = Content::Stream { id, offset: range.start, stride: stride as u32 };
        let run = LoggedRun { count: count as u32, stride: stride as u32, frame, pieces_from };
        self.finish_run(pass, run, content, form);
        count as u32
    }

    /// Adds a run, whose payload is in the last pieces of the plan, to the plan and to the log.
    pub(super) fn finish_run(&mut self, pass: &mut Pass<'_>, run: LoggedRun, content: Content, form: HeaderForm) {
        let (now, at) = (pass.now, pass.at);
        let plan = &mut *pass.plan;
        let LoggedRun { count, stride, frame, pieces_from } = run;
        let (number, size) = (self.spaces[DATA + at].next_number, plan.segment_size);
        plan.items.push(Planned::Run(PacketRun {
            number,
            count,
            number_len: form.number_len as u8,
            key_phase: self.seal.phase_bit(),
            fixed_bit: form.fixed_bit,
            dcid: self.paths[at].link.remote_id,
            frame,
            stride,
            pieces_from,
            pieces_to: plan.pieces.len() as u32,
        }));
        plan.packet_count += count as usize;
        plan.datagram_count += count as usize;
        plan.size_bytes += count as usize * size;
        plan.note_numbers(Space::Data, number, number + u64::from(count) - 1);
        self.spaces[DATA + at].next_number += u64::from(count);
        self.paths[at].pings.on_eliciting();
        let size = size as u16;
        let stamp = SendStamp::default();
        let run = Run { first: number, count, size, eliciting: true, sent_at: now, stamp, moved: false, content };
        self.log_run(pass, Space::Data, run);
    }
}
