//! Abandoning paths, and forgetting them afterwards (multipath draft-21, section 3.4).

use units::{Duration, Instant};
use wire::quic::{ErrorCode, PathId};

use super::{End, OtherPath, Paths};
use crate::control::Control;
use crate::control::identifiers::Identifiers;
use crate::control::idle_timer::CLOSE_PTOS;
use crate::control::ids::RouteChange;
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToPath, ToReceive, ToSend};
use crate::send::frames::ControlFrame;
use crate::stats::PathState;

impl Paths {
    /// When [`forget_over`](Self::forget_over) has something to do.
    pub(in crate::control) fn timeout(&self) -> Option<Instant> {
        let others = self.others.iter().filter(|path| self.can_forget(path.id)).map(|path| path.end);
        others.chain([self.first_end]).filter_map(|end| end.forget_at).min()
    }

    /// Whether an abandoned path may be forgotten. One that could not be opened yet stays known:
    /// otherwise it would seem new and be abandoned once more.
    fn can_forget(&self, id: PathId) -> bool {
        id.0 < self.next_issued
    }

    /// The peer abandons a path: so do we (section 3.4).
    pub(super) fn on_abandoned(
        &mut self,
        now: Instant,
        path: PathId,
        code: u64,
        pto: Duration,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        tracing::debug!(%path, code, "the peer abandons a path");
        self.mark_abandoned(path, code, exchange, events);
        let end = match path {
            PathId::ZERO if self.first_is_forgotten => return Ok(()),
            PathId::ZERO => &mut self.first_end,
            path => match self.get_mut(path) {
                Some(known) => &mut known.end,
                None => return Ok(()),
            },
        };
        // Late packets of the path are still accepted and acknowledged for a while.
        end.forget_at.get_or_insert(now + pto * CLOSE_PTOS);
        if self.open_count() == 0 {
            return Err(TransportError::new(ErrorCode::NO_ERROR, "the peer gave up the last path"));
        }
        Ok(())
    }

    /// Abandons a path; false if there is no such path or it is the last one.
    fn abandon(&mut self, path: PathId, code: u64, exchange: &mut Exchange, events: &mut Events) -> bool {
        let is_open = |other: &OtherPath| other.is_open && !other.end.abandon_sent;
        // The peer must not get a PATH_ABANDON for a path that it does not know.
        if path != PathId::ZERO && !self.others.iter().any(|other| other.id == path && is_open(other)) {
            return false;
        }
        let others = self.others.iter().filter(|other| other.id != path && is_open(other)).count();
        let first = usize::from(path != PathId::ZERO && !self.first_end.abandon_sent);
        if others + first == 0 {
            return false;
        }
        self.mark_abandoned(path, code, exchange, events)
    }

    fn mark_abandoned(&mut self, path: PathId, code: u64, exchange: &mut Exchange, events: &mut Events) -> bool {
        let end = match path {
            PathId::ZERO => &mut self.first_end,
            path => match self.get_or_new(path) {
                Some(known) => &mut known.end,
                None => return false,
            },
        };
        if std::mem::replace(&mut end.abandon_sent, true) {
            return false;
        }
        exchange.to_send.push_back(ToSend::Path(ToPath::Abandon(path)));
        exchange.to_send.push_back(ToSend::Control(ControlFrame::PathAbandon { path, code }));
        events.push(Event::PathState(path, PathState::Abandoned));
        true
    }

    /// Forgets paths that both sides have abandoned, and lets the peer open as many new ones. Returns
    /// whether there were any.
    pub(in crate::control) fn forget_over(
        &mut self,
        now: Instant,
        ids: &mut Identifiers,
        exchange: &mut Exchange,
    ) -> bool {
        let is_over = |end: End| end.forget_at.is_some_and(|at| at <= now);
        let next_issued = self.next_issued;
        let mut forgotten = 0;
        if is_over(self.first_end) {
            // The number space of the first path remains.
            self.first_end.forget_at = None;
            self.first_is_forgotten = true;
            ids.forget_first_path();
            forgotten += 1;
        }
        for over in self.others.extract_if(.., |path| is_over(path.end) && path.id.0 < next_issued) {
            ids.routes.extend(over.local.iter().map(RouteChange::Remove));
            exchange.to_send.push_back(ToSend::Path(ToPath::Forget(over.id)));
            exchange.to_receive.push_back(ToReceive::ForgetPath(over.id));
            forgotten += 1;
        }
        if forgotten > 0 {
            // Saturates after 2^32 paths.
            self.local_max = self.local_max.saturating_add(forgotten);
            exchange.to_send.push_back(ToSend::Control(ControlFrame::MaxPathId(PathId(self.local_max))));
        }
        forgotten > 0
    }
}

impl Control {
    /// Abandons a path; false if there is no such path or it is the last one.
    pub(crate) fn abandon_path(
        &mut self,
        path: PathId,
        code: u64,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> bool {
        self.paths.as_mut().is_some_and(|paths| paths.abandon(path, code, exchange, events))
    }
}
