//! The calls about a connection's paths: opening, abandoning, backup status, errors of the system.

use units::Instant;
use wire::quic::{ConnectionId, PathId, Side, Space};

use super::Connection;
use crate::addresses::Addresses;
use crate::control::paths::migrate::MigrateError;
use crate::control::paths::open::OpenPathError;
use crate::exchange::{ToControl, ToPath, ToSend};
use crate::journal::format::tag;
use crate::journal::outcome::Answer;
use crate::open::opened::Opened;
use crate::send::frames::ControlFrame;
use crate::send::path::SendPath;

/// The origin of datagrams, compared with their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the address of the path.
    Known,
    /// The path is not known yet.
    New,
    /// From another address than that of the path.
    Elsewhere,
}

impl Connection {
    /// The origin of datagrams of `path`; none if they are dropped.
    pub(super) fn origin_of(&self, path: PathId, addresses: &Addresses) -> Option<Origin> {
        match self.send.path_of(path) {
            Some(known) if known.link.addresses.is_same_route(addresses) => Some(Origin::Known),
            // No migration before the handshake is confirmed (RFC 9000, section 9), and servers do
            // not migrate: a client expects packets only from an address that it probes itself.
            Some(_) => {
                let is_expected = self.side == Side::Server || self.send.is_off_path(path, addresses);
                (self.control.is_confirmed() && is_expected).then_some(Origin::Elsewhere)
            }
            None => (self.control.is_confirmed() && self.control.takes_packets_of(path)).then_some(Origin::New),
        }
    }

    /// Whether packets of `path` from another address mean that the peer has migrated. The newest
    /// packet of the path must be among them (RFC 9000, section 9.3), and must not be a mere probe
    /// (section 9.2), which may come from anywhere. A path that does not work follows probes, too:
    /// a client sends nothing else on it.
    pub(super) fn is_migration(&self, path: PathId, largest_before: Option<u64>, opened: &Opened) -> bool {
        if self.side == Side::Client {
            return false;
        }
        let works = self.send.path_of(path).is_some_and(SendPath::is_active);
        let mut of_path = opened.packets.iter().filter(|packet| packet.space == Space::Data && packet.path == path);
        of_path.any(|packet| {
            let last = packet.number + u64::from(packet.count) - 1;
            largest_before.is_none_or(|largest| last > largest) && (!works || !opened.only_probes(packet))
        })
    }

    /// A connection ID of the peer for packets of `path` to another address than its own.
    pub(super) fn spare_remote_id(&self, path: PathId) -> Option<ConnectionId> {
        let in_use = self.send.path_of(path)?.link.remote_id;
        self.control.remote_ids_of(path)?.other_than(in_use)
    }

    /// Moves the connection, which has one path, to other addresses (RFC 9000, section 9.2): for a
    /// client whose path has failed, or whose network changes. The new path is probed, at least
    /// once a second, and used once it responds; until then the connection stays where it is.
    /// [`path_stats`](Self::path_stats) shows the addresses in use. Another call replaces an
    /// attempt that has not succeeded. With several paths, [open](Self::open_path) another one
    /// instead.
    ///
    /// # Errors
    /// [`MigrateError`] if it may not, or not now.
    pub fn migrate(&mut self, now: Instant, addresses: Addresses) -> Result<(), MigrateError> {
        self.record(|journal| journal.migrate(now, &addresses));
        let result = self.begin_migration(now, addresses);
        self.record_answer(|| Answer::migration(result));
        result
    }

    fn begin_migration(&mut self, now: Instant, addresses: Addresses) -> Result<(), MigrateError> {
        self.control.check_migration()?;
        let [path] = &self.send.path_stats()[..] else { return Err(MigrateError::SeveralPaths) };
        let path = path.id;
        // An ID names one pair of addresses only (RFC 9000, section 9.5).
        let spare = self.spare_remote_id(path);
        if let Some(taken) = spare.filter(|spare| self.send.is_id_in_use(*spare)) {
            self.send.forget_off_paths_with(taken);
            self.receive.exchange.to_control.push_back(ToControl::RetireRemoteId { path, id: taken });
            self.settle(now);
        }
        let remote_id = self.spare_remote_id(path).ok_or(MigrateError::NoConnectionId)?;
        self.receive.exchange.to_send.push_back(ToSend::Path(ToPath::Migrate { addresses, remote_id }));
        self.settle(now);
        Ok(())
    }

    /// Opens another path between these addresses. It is used once it is validated (RFC 9000,
    /// section 8.2), and probed until then, at least once a second.
    /// [`Event::PathOpened`](crate::Event::PathOpened) reports its ID, and
    /// [`Event::PathState`](crate::Event::PathState) its states. `is_backup` asks both sides to use
    /// it only if no other path works. A path that the peer does not allow yet is opened later:
    /// [`path_wait`](Self::path_wait) has the reason.
    ///
    /// # Errors
    /// [`OpenPathError`] if it cannot be opened.
    pub fn open_path(&mut self, now: Instant, addresses: Addresses, is_backup: bool) -> Result<(), OpenPathError> {
        self.record(|journal| journal.open_path(now, &addresses, is_backup));
        let result = self.begin_path(now, addresses, is_backup);
        self.record_answer(|| Answer::path(result));
        result
    }

    fn begin_path(&mut self, now: Instant, addresses: Addresses, is_backup: bool) -> Result<(), OpenPathError> {
        let is_handshake_address =
            self.send.path_of(PathId::ZERO).is_some_and(|first| first.link.addresses.remote == addresses.remote);
        self.control.request_path(addresses, is_backup, is_handshake_address)?;
        self.control.open_requested(&mut self.receive.exchange, &mut self.receive.events);
        self.settle(now);
        Ok(())
    }

    /// Abandons a path, for the reason `code` (multipath draft-21, section 4.2.1); false if there
    /// is no such path or it is the last one.
    pub fn abandon_path(&mut self, now: Instant, path: PathId, code: u64) -> bool {
        self.record(|journal| journal.of_path(tag::ABANDON_PATH, now, path, code));
        let is_given_up = self.control.abandon_path(path, code, &mut self.receive.exchange, &mut self.receive.events);
        self.settle(now);
        self.record_answer(|| Answer::from_bool(is_given_up));
        is_given_up
    }

    /// Asks both sides to use a path only if no other works, or like the others; false if there is
    /// no such path.
    pub fn set_path_backup(&mut self, now: Instant, path: PathId, is_backup: bool) -> bool {
        self.record(|journal| journal.of_path(tag::SET_BACKUP, now, path, u64::from(is_backup)));
        let Some(sequence) = self.send.set_backup(path, is_backup).filter(|_| self.control.is_multipath()) else {
            return false;
        };
        let frame = ControlFrame::PathStatus { path, sequence, available: !is_backup };
        self.receive.exchange.to_send.push_back(ToSend::Control(frame));
        self.settle(now);
        true
    }

    /// The system refuses datagrams of the size that is planned for a path: from now on they have
    /// 1200 bytes. False if they are no larger already.
    pub fn handle_too_large(&mut self, now: Instant, path: PathId) -> bool {
        self.record(|journal| journal.of_path(tag::TOO_LARGE, now, path, 0));
        let is_smaller = self.send.on_too_large(path);
        self.settle(now);
        is_smaller
    }

    /// The system refuses permanently to send on a path. The path counts as silent: its in-flight
    /// data is sent on other paths, and it is probed. False if there is no other path.
    pub fn handle_refused(&mut self, now: Instant, path: PathId) -> bool {
        self.record(|journal| journal.of_path(tag::REFUSED, now, path, 0));
        let has_other = self.send.on_refused(now, path, &mut self.receive.exchange);
        self.settle(now);
        has_other
    }
}
