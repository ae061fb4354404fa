//! The service of one sender's connection.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use litz::Connection;
use litz::identity::PublicKey;
use serde_json::json;
use transfer::{
    Authoriser, CLOSE_CODE, ConnectionLink, ReceiveOptions, Summary, TicketAuthoriser, TransferError, control,
    proof_context, receive,
};

use super::Receiver;
use super::admission::VisitorId;
use super::allowed::ListedAuthoriser;
use super::arrivals::TimedLink;
use super::authorisation::Admission;
use super::directory::current_umask;
use super::sender_folder;
use super::visits::PlacingAuthoriser;
use crate::cli::connection_log::{log_connected, log_ended};
use crate::cli::host;
use crate::cli::path_report::{self, watch_paths};
use crate::cli::progress::{Direction, Progress};
use crate::cli::takeover::TakeoverAuthoriser;

/// How the connection of one sender ended.
pub(super) struct Attempt {
    pub(super) peer: SocketAddr,
    /// The peer's key, as the handshake has authenticated it.
    pub(super) key: PublicKey,
    pub(super) authorised: bool,
    pub(super) result: Result<Summary, TransferError>,
}

impl Receiver<'_> {
    pub(super) fn receive_from(&self, connection: &Connection, key: PublicKey, id: VisitorId) -> Attempt {
        let peer = connection.remote_addr();
        log_connected(connection);
        let progress = Progress::new(Direction::Receiving, &self.options.transport);
        let mut authoriser = self.authoriser(connection, id);
        let link = TimedLink::new(ConnectionLink::new(connection));
        let started = progress.now();
        let result = self.transfer(&link, connection, key, &mut authoriser, &progress);
        match &result {
            Ok(summary) => progress.finish(summary, progress.now() - started),
            Err(_) => progress.clear(),
        }
        if authoriser.let_in {
            let (arrivals, paths) = (link.arrivals(), connection.stats().paths);
            progress.json(&json!({
                "event": "stats",
                "first_byte_us": arrivals.first.as_micros(),
                "last_byte_us": arrivals.last.as_micros(),
                "longest_gap_us": arrivals.longest_gap.as_micros(),
                "paths": paths.iter().map(path_report::as_json).collect::<Vec<_>>(),
            }));
        }
        if result.is_err() {
            connection.close(CLOSE_CODE, "the transfer ended");
        }
        if let Some(number) = authoriser.attempt {
            self.current.release(number);
        }
        log_ended(connection);
        Attempt { peer, key, authorised: authoriser.let_in, result }
    }

    fn transfer(
        &self,
        link: &TimedLink,
        connection: &Connection,
        key: PublicKey,
        authoriser: &mut TakeoverAuthoriser<'_>,
        progress: &Progress,
    ) -> Result<Summary, TransferError> {
        let broken = |error: String| TransferError::Connection(std::io::Error::other(error));
        let context = proof_context(connection, key, self.state.key.public().fingerprint())
            .map_err(|error| broken(error.to_string()))?;
        // A visitor that opens no stream is closed when its Hello is late, which ends this wait.
        let streams = connection.accept_bi().map_err(|error| TransferError::Connection(error.into()))?;
        let directory = self.directory_of(&key).map_err(broken)?;
        let quota = self.options.quota.filter(|_| directory != self.directory);
        let room = quota.map(|quota| self.rooms.take(&directory, quota.as_bytes())).transpose().map_err(broken)?;
        let options = ReceiveOptions::default()
            .with_overwrite(self.options.overwrite)
            .with_bytes_max(self.options.max_size.map(|size| size.as_bytes()))
            .with_room(room)
            .with_umask(current_umask())
            .with_open_files(self.open_files.clone())
            .with_output(self.output.clone())
            .with_cancel(self.cancel.clone());
        watch_paths(connection, Direction::Receiving, progress, None, || {
            receive::run(link, control(streams), &context, &directory, &options, authoriser, progress)
        })
    }

    /// Where the files of this sender go. Only a listed key gets a folder; another one is refused
    /// later.
    fn directory_of(&self, key: &PublicKey) -> Result<PathBuf, String> {
        match &self.admission {
            Admission::Keys(keys) if self.options.folder_per_sender && keys.allows(key) => {
                sender_folder::open(&self.directory, keys.label(key).as_deref(), key)
            }
            Admission::Keys(_) | Admission::Ticket(_) => Ok(self.directory.clone()),
        }
    }

    fn authoriser(&self, connection: &Connection, id: VisitorId) -> TakeoverAuthoriser<'_> {
        let (inner, current): (Box<dyn Authoriser>, _) = match &self.admission {
            Admission::Ticket(_) => {
                let (store, directory) = (self.state.store.clone(), self.directory.clone());
                (Box::new(TicketAuthoriser::new(store, directory, host::now_unix())), Some(&self.current))
            }
            // A listed key may run several transfers at a time.
            Admission::Keys(keys) => (Box::new(ListedAuthoriser(Arc::clone(keys))), None),
        };
        let (connection, json) = (connection.clone(), self.options.transport.json);
        let visits = Arc::clone(&self.visits);
        let inner = Box::new(PlacingAuthoriser { inner, visits, id, connection: connection.clone() });
        TakeoverAuthoriser { inner, connection, current, json, let_in: false, run: None, attempt: None }
    }
}
