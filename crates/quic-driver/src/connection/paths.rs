//! Path requests and path events.

use quic::{Addresses, Event, MigrateError, OpenPathError, PathId, PathState};
use units::Instant;

use super::Connection;
use crate::cells::connection::{Interest, PATH_REQUESTS_MAX, PathRequest};
use crate::packets::Packets;
use crate::path_events::PathEvent;

impl<K: Packets> Connection<K> {
    /// Adds requests of the handles. Beyond [`PATH_REQUESTS_MAX`], requests to open a path and to
    /// migrate are refused with an event; other requests are dropped.
    pub(super) fn add_path_requests(&mut self, requests: Vec<PathRequest>) {
        for request in requests {
            // The newest request replaces a waiting one.
            if let PathRequest::Migrate { .. } = request {
                self.paths.retain(|waiting| !matches!(waiting, PathRequest::Migrate { .. }));
            }
            if self.paths.len() < PATH_REQUESTS_MAX {
                self.paths.push(request);
            } else if let PathRequest::Open { addresses, .. } = request {
                self.report_refused(addresses, OpenPathError::TooMany);
            } else if let PathRequest::Migrate { addresses } = request {
                self.report_migration_refused(addresses, MigrateError::TooMany);
            }
        }
    }

    /// Processes path requests, once the handshake is confirmed.
    pub(super) fn serve_paths(&mut self, now: Instant) {
        if self.paths.is_empty() || self.quic.is_handshaking() {
            return;
        }
        let mut early = Vec::new();
        for request in std::mem::take(&mut self.paths) {
            match request {
                PathRequest::Open { addresses, is_backup } => match self.quic.open_path(now, addresses, is_backup) {
                    Ok(()) => self.report_waiting(addresses),
                    Err(OpenPathError::TooEarly) => early.push(request),
                    Err(error) => self.report_refused(addresses, error),
                },
                PathRequest::Migrate { addresses } => match self.quic.migrate(now, addresses) {
                    Ok(()) => {}
                    // The peer's frames will allow it: HANDSHAKE_DONE, or a connection ID.
                    Err(MigrateError::TooEarly | MigrateError::NoConnectionId) => early.push(request),
                    Err(error) => self.report_migration_refused(addresses, error),
                },
                PathRequest::Abandon { path, code } => {
                    // The call has no effect on an unknown path and on the last one.
                    let _abandoned = self.quic.abandon_path(now, path, code);
                }
                PathRequest::SetBackup { path, is_backup } => {
                    let _known = self.quic.set_path_backup(now, path, is_backup);
                }
            }
        }
        self.paths = early;
    }

    /// Reports an event of the protocol that concerns a path. A connection without
    /// the multipath extension has no such events: the state of its path is that of the connection.
    pub(super) fn on_path_event(&mut self, event: &Event) {
        if let Event::PathState(path, state) = event {
            tracing::debug!(%path, state = state.name(), "a path has changed its state");
            if *state == PathState::Abandoned {
                self.unpin_datagrams(*path);
            }
        }
        if let Event::Migrated(path) = *event {
            let Addresses { remote, socket, .. } = self.quic.addresses();
            self.report(PathEvent::Migrated { path, socket: usize::from(socket), remote });
        }
        if !self.quic.is_multipath() {
            return;
        }
        let event = match *event {
            Event::PathState(path, state) => PathEvent::State { path, state },
            Event::PathOpened(path) => {
                // An unknown path has been abandoned in the meantime.
                let Some(stats) = self.quic.path_stats().into_iter().find(|stats| stats.id == path) else { return };
                let Addresses { remote, socket, .. } = stats.addresses;
                PathEvent::Opened { path, socket: usize::from(socket), remote }
            }
            _ => return,
        };
        self.report(event);
    }

    fn report_refused(&self, Addresses { remote, socket, .. }: Addresses, error: OpenPathError) {
        tracing::debug!(%remote, %error, "cannot open a path");
        self.report(PathEvent::Refused { socket: usize::from(socket), remote, error });
    }

    /// Reports that the system refused to send on a path.
    pub(super) fn report_send_refused(&self, path: PathId, error: String, is_smaller: bool) {
        self.report(PathEvent::SendRefused { path, error, is_smaller });
    }

    fn report_migration_refused(&self, Addresses { remote, socket, .. }: Addresses, error: MigrateError) {
        tracing::debug!(%remote, %error, "cannot migrate");
        self.report(PathEvent::MigrationRefused { socket: usize::from(socket), remote, error });
    }

    /// Reports that the path requested last is waiting, if it is.
    fn report_waiting(&self, Addresses { remote, socket, .. }: Addresses) {
        if let Some(reason) = self.quic.path_wait() {
            tracing::debug!(%remote, %reason, "a requested path waits");
            self.report(PathEvent::Waiting { socket: usize::from(socket), remote, reason });
        }
    }

    fn report(&self, event: PathEvent) {
        let wakers = {
            let mut state = self.cell.lock();
            state.path_events.push(event);
            state.take_wakers(Interest::PathEvent)
        };
        wakers.wake();
    }
}
