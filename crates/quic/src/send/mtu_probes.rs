//! Sends the probes of path MTU discovery, and applies what they find.

use wire::quic::frame::Frame;
use wire::quic::{PacketType, Space};

use super::SendHalf;
use super::draft::Draft;
use super::frames::SentFrame;
use super::planner::{LoggedPacket, Pass};
use crate::spaces::DATA;

/// So many datagrams must be in flight before a probe is sent, unless the path keeps those of others small.
const IN_FLIGHT_MIN: u64 = 4;

impl SendHalf {
    /// The size that each path should carry if datagrams wait: that of the path with the largest. A datagram may
    /// leave on any path, so one that carries few data would keep all of them small, and so would never carry
    /// enough to be probed for itself. Zero if none wait.
    pub(super) fn datagram_size_wanted(&self) -> usize {
        if self.datagrams.is_empty() {
            return 0;
        }
        self.paths.iter().filter(|path| path.is_active()).map(|path| path.size.bytes()).max().unwrap_or(0)
    }

    /// Fills the plan with the probe that is due on its path; false if there is none.
    pub(super) fn plan_mtu_probe(&mut self, pass: &mut Pass<'_>) -> bool {
        let at = pass.at;
        let path = &self.paths[at];
        let flows = path.recovery.in_flight >= IN_FLIGHT_MIN * path.size.bytes() as u64;
        let is_wanted = flows || path.size.bytes() < self.datagram_size_wanted();
        if !is_wanted || !self.progress.is_confirmed {
            return false;
        }
        let Some(size) = self.paths[at].mtu_probe_due(pass.now) else { return false };
        let plan = &mut *pass.plan;
        plan.segment_size = size;
        let fields = self.fields(at, PacketType::OneRtt, self.header_form(at, Space::Data, 1), &[]);
        let Some(mut draft) = Draft::begin(plan, &fields, size) else { return false };
        draft.put(plan, &Frame::Ping);
        let (number, padding) = (draft.number, size - draft.size());
        let pieces_to = plan.pieces.len();
        let size = draft.finish(plan, &fields, padding, pieces_to);
        plan.size_bytes += size;
        plan.datagram_count += 1;
        plan.note_numbers(Space::Data, number, number);
        self.spaces[DATA + at].next_number += 1;
        let packet = LoggedPacket { space: Space::Data, number, size, eliciting: true, in_flight: true };
        self.record(pass, packet, &mut vec![SentFrame::Ping]);
        self.paths[at].size.search.as_mut().expect("a probe was due").on_planned(number, size);
        self.settle_plan(pass);
        true
    }
}
