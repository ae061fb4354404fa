//! Runs of datagrams: packets with one DATAGRAM frame each, all of one length (RFC 9221).
//!
//! ```text
//!  queue  [1300][1300][1300][700]...      one plan: three packets of one size, then a smaller one
//! ```
//!
//! The packets of a plan have one size but for the last, because the kernel cuts the plan into
//! datagrams of that size. So the length of the first datagram in the queue sets the size, and not that
//! of the path: datagrams that fit every path are smaller than a full packet on most of them.

use units::Instant;

use super::PlanScope;
use super::packet_run::LoggedRun;
use crate::exchange::Exchange;
use crate::plan::{Piece, Plan, RunFrame};
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
            && self.handshake_complete
            && self.spaces[DATA + at].probes_due == 0
            && !self.paths[at].validation.has_due()
            && !self.has_frames_due()
    }

    /// Plans a run of at most `packets` packets with the oldest datagrams, and sets the plan's packet size
    /// if it is empty. Returns the number planned, zero if the oldest datagram shares its packet with
    /// others or has another length than those in the plan.
    #[expect(clippy::too_many_arguments, reason = "one run's context; a struct would only rename them")]
    pub(super) fn plan_datagram_run(
        &mut self,
        now: Instant,
        at: usize,
        packets: usize,
        number_len: usize,
        fixed_bit: bool,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) -> usize {
        let Some(len) = self.datagrams.front().map(bytes::Bytes::len) else { return 0 };
        let overhead = 1 + self.paths[at].link.remote_id.len() + number_len + RunFrame::Datagram.header_len() + TAG_LEN;
        let size = overhead + len;
        let is_first = plan.items.is_empty();
        // Two that fit into one packet share it.
        let is_alone = size + len > self.paths[at].size.bytes();
        if packets == 0 || !is_alone || size > plan.segment_size || (!is_first && size != plan.segment_size) {
            return 0;
        }
        self.maybe_skip_number(at, plan);
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
        self.finish_run(now, at, run, Content::Datagram, number_len, fixed_bit, plan, exchange);
        count
    }
}
