//! The service of one sender's connection.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use litz::Connection;
use litz::identity::PublicKey;
use serde_json::json;
use transfer::{
    Authoriser, CLOSE_CODE, ConnectionLink, ReceiveOptions, Refusal, Summary, TicketAuthoriser, TransferError, control,
    proof_context, receive,
};

use super::Receiver;
use super::arrivals::TimedLink;
use super::directory::current_umask;
use super::sender_folder;
use crate::cli::connection_log::{log_connected, log_ended};
use crate::cli::host;
use crate::cli::path_report::{self, watch_paths};
use crate::cli::progress::{Direction, Progress, Sender};
use crate::cli::serving::admission::VisitorId;
use crate::cli::serving::allowed::ListedAuthoriser;
use crate::cli::serving::authorisation::Admission;
use crate::cli::serving::visits::{Closing, PlacingAuthoriser};
use crate::cli::takeover::TakeoverAuthoriser;

/// How the connection of one sender ended.
pub(super) struct Attempt {
    pub(super) peer: SocketAddr,
    /// The sender as the user knows it: by the name in the list of --allow or its key, else by its
    /// address.
    pub(super) name: String,
    /// The peer's key, as the handshake has authenticated it.
    pub(super) key: PublicKey,
    pub(super) authorised: bool,
    /// Why this receiver closed the connection, if that ended the transfer.
    pub(super) closing: Option<Closing>,
    pub(super) result: Result<Summary, TransferError>,
}

/// A receiver that the same user started before may not have noticed yet that its sender was killed: it
/// does after [`SENDER_SILENCE_MAX`](super::SENDER_SILENCE_MAX).
const BUSY_WAIT: Duration = Duration::from_secs(8);

impl Receiver<'_> {
    pub(super) fn receive_from(&self, connection: &Connection, key: PublicKey, id: VisitorId) -> Attempt {
        let peer = connection.remote_addr();
        log_connected(connection);
        let sender = match &self.admission {
            Admission::Keys(keys) if !self.serves_one_transfer() => Some(keys.name(&key)),
            Admission::Ticket(_) | Admission::Keys(_) => None,
        };
        let name = sender.clone().unwrap_or_else(|| peer.to_string());
        let sender = sender.map(|name| Sender { name, peer: peer.to_string(), key: key.to_string() });
        let progress = Progress::new(Direction::Receiving, &self.options.transport).of_sender(sender);
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
                "paths": paths.iter().map(|path| path_report::as_json(path, self.links.ends())).collect::<Vec<_>>(),
            }));
        }
        if result.is_err() {
            connection.close(CLOSE_CODE, "the transfer ended");
        }
        let is_superseded = authoriser.is_superseded.load(Ordering::Relaxed);
        let closing = if is_superseded { Some(Closing::Superseded) } else { self.visits.closing(id) };
        let closing = closing.filter(|_| result.as_ref().is_err_and(is_loss));
        let attempt = Attempt { peer, name, key, authorised: authoriser.let_in, closing, result };
        if attempt.closing == Some(Closing::Superseded) {
            // Before the later connection reports its own end.
            self.print_end(&attempt);
        }
        if let Some(number) = authoriser.attempt {
            self.current.release(number);
        }
        log_ended(connection);
        attempt
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
            .with_overwrite(self.options.overwrite || self.options.update.update)
            .with_update(self.options.update.update)
            .with_dry_run(self.options.update.dry_run)
            .with_delete(self.options.invitation.as_ref().and_then(|invitation| invitation.delete.clone()))
            .with_bytes_max(self.options.max_size.map(|size| size.as_bytes()))
            .with_room(room)
            .with_umask(current_umask())
            .with_open_files(self.open_files.clone())
            .with_output(self.output.clone())
            .with_busy_wait(self.options.invitation.as_ref().map_or(Duration::ZERO, |_| BUSY_WAIT))
            .with_roots(self.options.invitation.as_ref().and_then(|invitation| invitation.roots.clone()))
            .with_cancel(self.cancel.clone());
        watch_paths(connection, Direction::Receiving, progress, self.links.ends(), None, || {
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
                (Box::new(TicketAuthoriser::new(store, directory, host::ticket_clock())), Some(&self.current))
            }
            // A listed key may run several transfers at a time, unless it was invited to one.
            Admission::Keys(keys) => {
                let current = self.serves_one_transfer().then_some(&self.current);
                (Box::new(ListedAuthoriser(Arc::clone(keys))), current)
            }
        };
        let (connection, json) = (connection.clone(), self.options.transport.json);
        let visits = Arc::clone(&self.visits);
        let inner = Box::new(PlacingAuthoriser { inner, visits, id });
        let (run, attempt, is_superseded) = (None, None, Arc::default());
        TakeoverAuthoriser { inner, connection, current, json, let_in: false, run, attempt, is_superseded }
    }
}

/// Whether the transfer ends with this error when its connection is closed, or when its sender gets no
/// place.
fn is_loss(error: &TransferError) -> bool {
    match error {
        TransferError::Connection(_) | TransferError::Refused(Refusal::Unavailable) => true,
        TransferError::StreamBroken(reason) => is_loss(reason),
        _ => false,
    }
}
