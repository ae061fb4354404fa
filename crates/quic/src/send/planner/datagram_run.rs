//! Runs of datagrams: packets with one DATAGRAM frame each, all of one length (RFC 9221).
//!
//! ```text
//!  queue  [1300][1300][1300][700]...      one plan: three packets of one size, then a smaller one
//! ```
//!
//! The packets of a plan have one size but for the last, because the kernel cuts the plan into
//! datagrams of that size. So the length of the first datagram in the queue sets the size, and not that
//! of the path: datagrams that fit every path are smaller than a full packet on most of them.

use super::packet_run::LoggedRun;
use super::{HeaderForm, Pass, PlanScope};
use crate::plan::{Piece, RunFrame};
use crate::send::SendHalf;
use crate::send::sent_log::Content;
use crate::session::TAG_LEN;
use crate::spaces::DATA;

impl SendHalf {
    /// True if the next packets may hold datagrams only: no control frame or probe is due, and no stream
    /// data, which fills packets up and would not leave at all otherwise. Acknowledgements that are due
    /// leave in the last packet of the plan, which may have another size.
    pub(super) fn is_datagram_run_due(&mut self, at: usize, scope: PlanScope) -> bool {
        !self.datagrams.is_empty()
            && (!scope.has_streams() || !self.streams.has_ready())
            && self.progress.is_complete
            && self.spaces[DATA + at].probes_due == 0
            && !self.paths[at].validation.has_due()
            && !self.has_frames_due()
    }

    /// Plans a run of at most `packets` packets with the oldest datagrams, and sets the plan's packet size
    /// if it is empty. Returns the number planned, zero if the oldest datagram shares its packet with
    /// others or has another length than those in the plan.
    pub(super) fn plan_datagram_run(&mut self, pass: &mut Pass<'_>, packets: usize, form: HeaderForm) -> usize {
        let path = &self.paths[pass.at];
        let Some(len) = self.datagrams.front().map(bytes::Bytes::len) else { return 0 };
        let overhead = 1 + path.link.remote_id.len() + form.number_len + RunFrame::Datagram.header_len() + TAG_LEN;
        let size = overhead + len;
        let is_first = pass.is_empty();
        // Two that fit into one packet share it.
        let is_alone = size + len > path.size.bytes();
        let segment_size = pass.plan.segment_size;
        if packets == 0 || !is_alone || size > segment_size || (!is_first && size != segment_size) {
            return 0;
        }
        if pass.is_empty() {
            // Only between plans: the packet numbers of a plan are consecutive.
            self.paths[pass.at].numbers.maybe_skip(&mut self.spaces[DATA + pass.at], &mut self.randomness.rng);
        }
        let plan = &mut *pass.plan;
        let pieces_from = plan.pieces.len() as u32;
        let mut count = 0;
        while count < packets
            && let Some(data) = self.datagrams.pop_front_if(|data| data.len() == len)
        {
            plan.pieces.push(Piece { chunk: plan.chunks.len() as u32, start: 0, len: len as u32 });
            plan.chunks.push(data);
            count += 1;
        }
        self.streams.on_datagram_taken();
        plan.segment_size = size;
        let run = LoggedRun { count: count as u32, stride: len as u32, frame: RunFrame::Datagram, pieces_from };
        self.finish_run(pass, run, Content::Datagram, form);
        count
    }
}
