//! Reports of the driver on a plan: it leaves, or the system refused it.

use units::Instant;
use wire::quic::Space;

use super::SendHalf;
use crate::plan::Receipt;
use crate::spaces::DATA;

impl SendHalf {
    /// The plan for the path at `at` is about to be sent. The caller reports this before the system
    /// call, so that no acknowledgement can overtake it.
    pub(crate) fn on_emitted(&mut self, receipt: &Receipt, at: Instant) {
        let Some(index) = self.path_index(receipt.path) else { return };
        for space in Space::ALL {
            if let Some((first, last)) = receipt.numbers[space.index()] {
                self.spaces[Self::index_of(space, index)].log.mark_emitted(first, last, at);
            }
        }
    }

    /// The plan was not sent: its content is due again, and nothing counts as lost.
    pub(crate) fn on_not_emitted(&mut self, receipt: &Receipt) {
        for space in Space::ALL {
            let Some(at) = self.path_index(receipt.path) else { break };
            let Some((first, last)) = receipt.numbers[space.index()] else { continue };
            let mut runs = std::mem::take(&mut self.scratch.runs);
            runs.clear();
            let index = Self::index_of(space, at);
            self.spaces[index].log.take_unsent(first, last, |run| runs.push(run));
            if let Some(mtu) = &mut self.paths[at].size.search {
                mtu.on_unsent(first);
            }
            for run in runs.drain(..) {
                self.paths[at].recovery.in_flight -= run.in_flight_bytes();
                self.requeue(space, index, run);
            }
            self.scratch.runs = runs;
            self.paths[at].recovery.suspicion.end_without_evidence(&self.spaces[DATA + at].log);
        }
        self.closing.on_not_emitted(self.best_path_index());
        self.stats.plans_not_sent += 1;
    }
}
