//! Search for the largest packet that the path carries, without reports of routers (RFC 4821, RFC
//! 8899).
//!
//! Segments begin with the largest size that both sides accept. If a path drops large packets
//! without a report, nothing is acknowledged: after the second consecutive timeout segments become
//! small, and a search for the largest size that gets through begins. A probe is one larger segment
//! of new data. Its loss is no sign of congestion; its data are resent in small segments.

use recovery::MtuSearch;
use units::Instant;

use super::SendHalf;
use super::log::Run;
use super::lost::Lost;
use super::path_mtu::PathMtu;
use crate::position::FIRST_BYTE;

/// Common packet sizes of networks: Ethernet, and jumbo frames.
const COMMON: [usize; 2] = [1500, 9000];

/// Fallback packet sizes, each with the number of consecutive timeouts before it. Few paths carry
/// less than the first (RFC 8899, section 5.1.2, BASE_PLPMTU), and none over IPv6 (RFC 8200,
/// section 5).
const FALLBACKS: [(u32, u64); 2] = [(2, 1280), (4, 576)];

/// Minimum number of data segments waiting behind a probe.
const FOLLOWING: u64 = 3;

/// Length of the IPv6 and TCP headers.
const IPV6_HEADERS: u64 = 60;

impl SendHalf {
    /// Returns the number of the plan with the probe in flight.
    pub(super) fn probe_number(&self) -> Option<u64> {
        self.path_mtu.as_ref()?.search.probe_number()
    }

    /// Handles a retransmission timeout: shrinks the segments if large ones may be the cause.
    pub(super) fn suspect_black_hole(&mut self) {
        let headers = u64::from(self.path_headers);
        if headers == 0 {
            return;
        }
        let longest = self.log.runs().next().map_or(0, Run::len).min(self.segment);
        // Over IPv6 the first size is the smallest.
        let fallbacks = if headers >= IPV6_HEADERS { &FALLBACKS[..1] } else { &FALLBACKS[..] };
        let timeouts = self.timers.backoff;
        let base = fallbacks.iter().rfind(|(after, _)| timeouts >= *after).map(|(_, size)| *size);
        if let Some(base) = base.filter(|base| longest > base - headers) {
            self.begin_search(base, None);
        }
    }

    /// Sets the packet size to `size` bytes, smaller than before, because of the path. The search
    /// for a larger size begins now, or later if a router reported the size at `reported_at`.
    pub(super) fn begin_search(&mut self, size: u64, reported_at: Option<Instant>) {
        let headers = u64::from(self.path_headers);
        if headers == 0 {
            return;
        }
        let mut search = MtuSearch::new(size as usize, usize::from(self.segment_max) + headers as usize, &COMMON);
        if let Some(at) = reported_at {
            search.pause(at);
        }
        self.path_mtu = Some(Box::new(PathMtu { search, probe_end: 0, smaller: (0, 0) }));
        self.set_segment(size - headers);
    }

    /// Returns the data size of a probe due now, if new data and `window` permit it.
    pub(super) fn probe_due(&mut self, now: Instant, window: u64, granted: u64) -> Option<u64> {
        let is_busy = self.is_recovering() || self.suspicion.is_some();
        let (segment, unsent) = (self.segment, self.unsent());
        let mtu = self.path_mtu.as_mut().filter(|_| !is_busy)?;
        let len = mtu.search.due(now)? as u64 - u64::from(self.path_headers);
        // The data after it will show whether it is lost.
        let has_more = unsent >= len + FOLLOWING * segment;
        (has_more && len <= window.min(granted)).then_some(len)
    }

    /// Records that a probe leaves.
    pub(super) fn on_probe_sent(&mut self, transmission: u64, len: u64, end: u64) {
        if let Some(mtu) = &mut self.path_mtu {
            mtu.search.on_planned(transmission, len as usize + usize::from(self.path_headers));
            mtu.probe_end = end;
        }
    }

    /// Records that everything before `una` is acknowledged, and with it the probe, unless it was
    /// lost before.
    pub(super) fn note_probe_acked(&mut self) {
        let Some(mtu) = self.path_mtu.as_mut().filter(|mtu| mtu.probe_end > FIRST_BYTE && self.una >= mtu.probe_end)
        else {
            return;
        };
        mtu.probe_end = 0;
        if let Some(size) = mtu.search.on_acked() {
            mtu.smaller = (self.nxt, self.segment);
            self.set_segment(size as u64 - u64::from(self.path_headers));
        }
    }

    /// Counts a lost run, unless it is the probe, whose loss is no sign of congestion (RFC 4821,
    /// section 7.3).
    pub(super) fn count_lost(run: &Run, probe: Option<u64>, lost: &mut Lost, delivery: &mut recovery::DeliveryRate) {
        if probe == Some(run.transmission) {
            lost.has_probe = true;
        } else {
            lost.add(run, delivery);
        }
    }

    /// Records the loss of the probe.
    pub(super) fn on_probe_lost(&mut self) {
        if let Some(mtu) = &mut self.path_mtu {
            mtu.probe_end = 0;
            mtu.search.on_lost();
        }
    }

    /// Returns the size of the segments in flight, as far as the peer may report them individually.
    pub(super) fn segment_in_flight(&self) -> u64 {
        match &self.path_mtu {
            Some(mtu) if self.una < mtu.smaller.0 => mtu.smaller.1.min(self.segment),
            _ => self.segment,
        }
    }
}
