//! Lost data that wait for the path that lost them ([`RetransmissionPolicy::OwnPath`](crate::RetransmissionPolicy)).
//!
//! A range that waits here is in no sent log and not among what streams have ready: it is in one place at a time. It leaves
//! with the path's next window, or goes to the streams, for any path, as soon as this one is no place to wait at.

use std::ops::Range;

use units::Instant;
use wire::quic::StreamId;

use super::SendHalf;
use super::path::{Repeat, SendPath};
use crate::spaces::DATA;

/// Ranges that wait for one path, at most; neighbours are one. Others carry what is lost beyond them.
pub(crate) const RESENDS_WAITING_MAX: usize = 4096;

impl SendHalf {
    /// Stream data of packets that did not arrive, or never left, are due again: here, if the policy says so and the path is
    /// sound, otherwise wherever the scheduler says.
    pub(super) fn requeue_stream(&mut self, index: usize, id: StreamId, range: Range<u64>, fin: bool) {
        if self.config.policy.resends_on_own_path() && index >= DATA && self.paths.len() > 1 {
            let path = &mut self.paths[index - DATA];
            if path.is_sound() && self.streams.allows(id, path.id) && path.resends.len() < RESENDS_WAITING_MAX {
                return path.queue_resend(id, range, fin);
            }
        }
        self.streams.on_lost(id, range, fin);
    }

    /// What waits for path `at` is for any path.
    pub(super) fn share_resends(&mut self, at: usize) {
        while let Some(Repeat { id, range, fin }) = self.paths[at].resends.pop_front() {
            self.streams.on_lost(id, range, fin);
        }
    }

    /// Nothing waits for a path that answers no more, is given up or refused, or whose socket stays full: the stream would wait
    /// with it.
    pub(super) fn share_stranded(&mut self, now: Instant, room: &dyn Fn(u16) -> usize) {
        for at in 0..self.paths.len() {
            let path = &mut self.paths[at];
            if path.resends.is_empty() {
                continue;
            }
            path.note_room(now, room(path.addresses.socket) > 0);
            let is_stuck = path.stuck_at().is_some_and(|stuck_at| stuck_at <= now);
            if is_stuck || !path.is_sound() {
                self.share_resends(at);
            }
        }
    }

    /// Nothing leaves now: looks again when a full socket has been so for too long.
    pub(super) fn watch_resends(&mut self, now: Instant) {
        let waiting = self.paths.iter().filter(|path| !path.resends.is_empty());
        let stuck_at = waiting.filter_map(SendPath::stuck_at).filter(|at| *at > now).min();
        self.ask_again_at = self.ask_again_at.into_iter().chain(stuck_at).min();
    }
}

impl SendPath {
    /// It answers, and the system sends on it, to an address that has proved itself.
    fn is_sound(&self) -> bool {
        let is_proved = self.amplification_room() == u64::MAX;
        self.is_active() && !self.is_doubted && self.refused_until.is_none() && is_proved
    }

    /// The caller has looked whether there is room.
    fn queue_resend(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        if let Some(last) = self.resends.back_mut()
            && last.id == id
            && last.range.end == range.start
            && !last.fin
        {
            (last.range.end, last.fin) = (range.end, fin);
            return;
        }
        self.resends.push_back(Repeat { id, range, fin });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::Rng;
    use wire::quic::{ConnectionId, Dir, PathId, Side};

    use super::*;
    use crate::config::TransportConfig;
    use crate::policy::Policy;
    use crate::send::path::Addresses;
    use crate::stats::PathState;

    /// A client's send half with two paths.
    fn send_half(policy: Policy) -> SendHalf {
        let config = Arc::new(TransportConfig { policy, ..TransportConfig::default() });
        let addresses = Addresses::of("10.0.0.1:1".parse().expect("an address"));
        let (rng, id) = (Rng::from_seed(1), ConnectionId::new(&[1; 8]).expect("an identifier"));
        let path = SendPath::new(PathId::ZERO, addresses, id, &config, true, &rng);
        let mut send = SendHalf::new(Side::Client, config, id, path, rng);
        send.open_path(Instant::ZERO, PathId(1), addresses, id).state = PathState::Active;
        send
    }

    fn waiting(send: &SendHalf, at: usize) -> Vec<Range<u64>> {
        send.paths[at].resends.iter().map(|repeat| repeat.range.clone()).collect()
    }

    const ID: StreamId = StreamId::new(Side::Client, Dir::Uni, 0);

    #[test]
    fn neighbours_that_were_lost_wait_as_one_and_an_end_closes_them() {
        let mut send = send_half(Policy::DRDA);
        for (range, fin) in [(0..10, false), (10..20, false), (30..40, true), (40..50, false)] {
            send.requeue_stream(DATA + 1, ID, range, fin);
        }
        assert_eq!(waiting(&send, 1), [0..20, 30..40, 40..50]);
        assert!(waiting(&send, 0).is_empty());
    }

    #[test]
    fn no_more_than_so_many_ranges_wait_for_a_path() {
        let mut send = send_half(Policy::DRCA);
        for index in 0..RESENDS_WAITING_MAX as u64 + 10 {
            send.requeue_stream(DATA + 1, ID, index * 10..index * 10 + 5, false);
        }
        assert_eq!(waiting(&send, 1).len(), RESENDS_WAITING_MAX);
    }

    #[test]
    fn nothing_waits_for_a_path_that_is_not_sound_or_by_the_other_policies() {
        let spoils: [fn(&mut SendPath); 5] = [
            |path| path.state = PathState::Silent,
            |path| path.state = PathState::Abandoned,
            |path| path.is_doubted = true,
            |path| path.refused_until = Some(Instant::ZERO),
            |path| path.set_unvalidated(0),
        ];
        for spoil in spoils {
            let mut send = send_half(Policy::DRDA);
            send.requeue_stream(DATA + 1, ID, 0..10, false);
            assert_eq!(waiting(&send, 1).len(), 1);
            spoil(&mut send.paths[1]);
            send.requeue_stream(DATA + 1, ID, 20..30, false);
            assert_eq!(waiting(&send, 1).len(), 1, "what is lost then goes to all paths");
            send.share_stranded(Instant::ZERO, &|_| 1);
            assert!(waiting(&send, 1).is_empty(), "and so does what waits already");
        }
        let mut send = send_half(Policy::CRCA);
        send.requeue_stream(DATA + 1, ID, 0..10, false);
        assert!(waiting(&send, 1).is_empty());
    }

    #[test]
    fn what_waits_for_the_last_path_but_one_is_shared_when_that_is_forgotten() {
        let mut send = send_half(Policy::DRDA);
        send.requeue_stream(DATA, ID, 0..10, false);
        assert_eq!(waiting(&send, 0).len(), 1);
        send.forget_path(PathId(1));
        assert!(waiting(&send, 0).is_empty());
    }
}
