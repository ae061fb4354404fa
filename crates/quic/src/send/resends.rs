//! Lost data bound to the path that lost them
//! ([`RetransmissionPolicy::OwnPath`](crate::RetransmissionPolicy)).
//!
//! A range that waits here is in no sent log and not among the ready data of streams: it is in
//! exactly one place. It leaves when the path's window allows it, or returns to its stream, for any
//! path, as soon as this path is not usable.

use std::ops::Range;

use units::Instant;
use wire::quic::StreamId;

use super::SendHalf;
use super::path::SendPath;
use super::streams::SendStreams;
use crate::spaces::DATA;

impl SendHalf {
    /// Requeues stream data of packets that were lost or never sent: on this path, if the policy
    /// says so and the path is usable, otherwise on any path the scheduler chooses.
    pub(super) fn requeue_stream(&mut self, index: usize, id: StreamId, range: Range<u64>, fin: bool) {
        if self.config.policy.resends_on_own_path() && index >= DATA && self.paths.len() > 1 {
            let path = &mut self.paths[index - DATA];
            if path.is_usable() && self.streams.allows(id, path.id) && path.queues.has_place_for_resend() {
                return path.queues.queue_resend(id, range, fin);
            }
        }
        self.streams.on_lost(id, range, fin);
    }
}

/// Data do not wait for a path that is silent, closed or refused by the system, or whose socket
/// stays full: the stream would stall with it.
pub(super) fn release_stalled(
    paths: &mut [SendPath],
    streams: &mut SendStreams,
    now: Instant,
    is_writable: impl Fn(&SendPath) -> bool,
) {
    for path in paths.iter_mut().filter(|path| !path.queues.resends.is_empty()) {
        let is_writable = is_writable(path);
        path.link.note_writable(now, is_writable);
        let is_stuck = path.socket_stuck_at().is_some_and(|socket_stuck_at| socket_stuck_at <= now);
        if is_stuck || !path.is_usable() {
            path.queues.release_resends(streams);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::Rng;
    use wire::quic::{ConnectionId, Dir, PathId, Side, Version};

    use super::*;
    use crate::addresses::Addresses;
    use crate::config::TransportConfig;
    use crate::policy::Policy;
    use crate::send::path::RESENDS_WAITING_MAX;
    use crate::stats::PathState;

    /// A client's send half with two paths.
    fn send_half(policy: Policy) -> SendHalf {
        let config = Arc::new(TransportConfig { policy, ..TransportConfig::default() });
        let addresses = Addresses::of("10.0.0.1:1".parse().expect("an address"));
        let (rng, id) = (Rng::from_seed(1), ConnectionId::new(&[1; 8]).expect("an identifier"));
        let path = SendPath::new(PathId::ZERO, addresses, id, &config, true, &rng);
        let mut send = SendHalf::new(Side::Client, config, Version::V1, id, path, rng);
        send.open_path(Instant::ZERO, PathId(1), addresses, id).phase.state = PathState::Active;
        send
    }

    fn waiting(send: &SendHalf, at: usize) -> Vec<Range<u64>> {
        send.paths[at].queues.resends.iter().map(|repeat| repeat.range.clone()).collect()
    }

    const ID: StreamId = StreamId::new(Side::Client, Dir::Uni, 0);

    #[test]
    fn adjacent_lost_ranges_are_merged_until_a_fin() {
        let mut send = send_half(Policy::DRDA);
        for (range, fin) in [(0..10, false), (10..20, false), (30..40, true), (40..50, false)] {
            send.requeue_stream(DATA + 1, ID, range, fin);
        }
        assert_eq!(waiting(&send, 1), [0..20, 30..40, 40..50]);
        assert!(waiting(&send, 0).is_empty());
    }

    #[test]
    fn the_ranges_waiting_for_a_path_are_bounded() {
        let mut send = send_half(Policy::DRCA);
        for index in 0..RESENDS_WAITING_MAX as u64 + 10 {
            send.requeue_stream(DATA + 1, ID, index * 10..index * 10 + 5, false);
        }
        assert_eq!(waiting(&send, 1).len(), RESENDS_WAITING_MAX);
    }

    #[test]
    fn ranges_wait_only_for_a_usable_path_and_only_under_an_own_path_policy() {
        let failures: [fn(&mut SendPath); 5] = [
            |path| path.phase.state = PathState::Silent,
            |path| path.phase.state = PathState::Abandoned,
            |path| path.recovery.suspicion.is_suspect = true,
            |path| path.link.refused_until = Some(Instant::ZERO),
            |path| path.link.set_unvalidated(0, 0),
        ];
        for fail in failures {
            let mut send = send_half(Policy::DRDA);
            send.requeue_stream(DATA + 1, ID, 0..10, false);
            assert_eq!(waiting(&send, 1).len(), 1);
            fail(&mut send.paths[1]);
            send.requeue_stream(DATA + 1, ID, 20..30, false);
            assert_eq!(waiting(&send, 1).len(), 1, "what is lost then goes to all paths");
            release_stalled(&mut send.paths, &mut send.streams, Instant::ZERO, |_| true);
            assert!(waiting(&send, 1).is_empty(), "and so does what waits already");
        }
        let mut send = send_half(Policy::CRCA);
        send.requeue_stream(DATA + 1, ID, 0..10, false);
        assert!(waiting(&send, 1).is_empty());
    }

    #[test]
    fn waiting_ranges_are_released_when_one_path_remains() {
        let mut send = send_half(Policy::DRDA);
        send.requeue_stream(DATA, ID, 0..10, false);
        assert_eq!(waiting(&send, 0).len(), 1);
        send.forget_path(PathId(1), &mut crate::exchange::Exchange::default());
        assert!(waiting(&send, 0).is_empty());
    }
}
