//! A connection's paths: opening them, giving them up, what they are to be used for.

use units::Instant;
use wire::quic::{PathId, Side, Space};

use super::Connection;
use crate::control::paths::OpenPathError;
use crate::exchange::ToSend;
use crate::journal::format::tag;
use crate::journal::outcome::Answer;
use crate::open::Opened;
use crate::send::frames::ControlFrame;
use crate::send::path::{Addresses, SendPath};

/// Where datagrams come from, as far as their path is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// From where the path is.
    Known,
    /// The path is not known yet.
    New,
    /// From other addresses than those of the path.
    Elsewhere,
}

impl Connection {
    /// Where datagrams of `path` come from; none if nothing is to be made of them.
    pub(super) fn origin_of(&self, path: PathId, addresses: &Addresses) -> Option<Origin> {
        match self.send.path_of(path) {
            Some(known) if known.addresses.is_same_route(addresses) => Some(Origin::Known),
            // No migration before the handshake is confirmed (RFC 9000, section 9), and servers do not move.
            Some(_) => (self.control.is_confirmed() && self.side == Side::Server).then_some(Origin::Elsewhere),
            None => (self.control.is_confirmed() && self.control.takes_packets_of(path)).then_some(Origin::New),
        }
    }

    /// Whether packets of `path` that came from elsewhere mean that it has moved: the newest of it must be among them (RFC 9000,
    /// section 9.3), and more than questions (section 9.2), which may come from anywhere. A path that does not work as it is
    /// follows questions, too: they are all that a client sends there.
    pub(super) fn moves(&self, path: PathId, heard_before: Option<u64>, opened: &Opened) -> bool {
        let works = self.send.path_of(path).is_some_and(SendPath::is_active);
        let mut of_path = opened.packets.iter().filter(|packet| packet.space == Space::Data && packet.path == path);
        of_path.any(|packet| {
            let last = packet.number + u64::from(packet.count) - 1;
            heard_before.is_none_or(|heard| last > heard) && (!works || !opened.only_probes(packet))
        })
    }

    /// Opens another path, between the ends given. It is used once it has answered (RFC 9000, section 8.2), and asked again,
    /// at least once a second, until it does: [`Event::PathOpened`](crate::Event::PathOpened) tells its ID,
    /// [`Event::PathState`](crate::Event::PathState) what becomes of it.
    /// `is_backup` asks both sides to use it only if no other path works.
    ///
    /// # Errors
    /// [`OpenPathError`] says why not.
    pub fn open_path(&mut self, now: Instant, addresses: Addresses, is_backup: bool) -> Result<(), OpenPathError> {
        self.note(|journal| journal.open_path(now, &addresses, is_backup));
        let result = self.begin_path(now, addresses, is_backup);
        self.note_answer(|| Answer::path(result));
        result
    }

    fn begin_path(&mut self, now: Instant, addresses: Addresses, is_backup: bool) -> Result<(), OpenPathError> {
        let is_handshake_address =
            self.send.path_of(PathId::ZERO).is_some_and(|first| first.addresses.remote == addresses.remote);
        self.control.want_path(addresses, is_backup, is_handshake_address)?;
        self.control.open_wanted(&mut self.exchange, &mut self.events);
        self.settle(now);
        Ok(())
    }

    /// Gives a path up, for the reason `code` (multipath draft-21, section 4.2.1); false if there is no such path or it is the
    /// last one.
    pub fn abandon_path(&mut self, now: Instant, path: PathId, code: u64) -> bool {
        self.note(|journal| journal.of_path(tag::ABANDON_PATH, now, path, code));
        let is_given_up = self.control.abandon_path(path, code, &mut self.exchange, &mut self.events);
        self.settle(now);
        self.note_answer(|| Answer::yes(is_given_up));
        is_given_up
    }

    /// Asks both sides to use a path only if no other works, or like the others; false if there is no such path.
    pub fn set_path_backup(&mut self, now: Instant, path: PathId, is_backup: bool) -> bool {
        self.note(|journal| journal.of_path(tag::SET_BACKUP, now, path, u64::from(is_backup)));
        let Some(sequence) = self.send.set_backup(path, is_backup).filter(|_| self.control.is_multipath()) else {
            return false;
        };
        let frame = ControlFrame::PathStatus { path, sequence, available: !is_backup };
        self.exchange.to_send.push_back(ToSend::Control(frame));
        self.settle(now);
        true
    }

    /// The system takes no datagrams as large as those that were planned for a path: from now on they have 1200 bytes. False if
    /// they have no more already.
    pub fn handle_too_large(&mut self, now: Instant, path: PathId) -> bool {
        self.note(|journal| journal.of_path(tag::TOO_LARGE, now, path, 0));
        let is_smaller = self.send.on_too_large(path);
        self.settle(now);
        is_smaller
    }

    /// The system refuses to send on a path for good, which is as good as silence: others carry what it was given, and it is
    /// asked again. False if there is no other.
    pub fn handle_refused(&mut self, now: Instant, path: PathId) -> bool {
        self.note(|journal| journal.of_path(tag::REFUSED, now, path, 0));
        let has_other = self.send.on_refused(now, path, &mut self.exchange);
        self.settle(now);
        has_other
    }
}
