//! The receiver's persistent store of issued tickets.
//!
//! A ticket is bound to the first sender key that proves its secret and serves that key alone until
//! its transfer completes or it expires:
//!
//! ```text
//!   issued ──first proof──▶ bound to a key ──transfer complete──▶ completed
//!      └───────────expiry───────────┴──────▶ expired
//! ```
//!
//! If a transfer is refused before any byte was stored, its binding is undone. A revoked ticket is
//! removed.
//!
//! Each change is written atomically (0600, synced) before the decision that caused it is reported.
//! A lock serialises several receivers of one user. The file is JSON with a version; it is bounded
//! by [`TICKETS_MAX`]. It holds the tickets' secrets, so read access to it permits sending.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::proof::{Proof, ProofContext, Role};
use super::ticket::Secret;
use credentials::private_file::NON_BLOCKING;
use credentials::{base32, private_file};
use quic_endpoint::identity::PublicKey;
use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

mod format;
mod lifetime;
mod serving;

use format::{StateFile, TicketRecord, Version};
pub use serving::Serving;

/// The tickets of one user's receivers. Cheap to clone; every call reads the file again.
#[derive(Clone, Debug)]
pub struct TicketStore {
    path: PathBuf,
    lock: PathBuf,
}

/// One issued ticket.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Issued {
    /// The ticket's identifier in the store; not secret.
    pub id: String,
    /// The secret that the sender must prove.
    pub secret: Secret,
    /// Time of issue in seconds since 1970, by the clock at that time. `None` for a ticket of an
    /// earlier version of this program.
    pub issued_unix: Option<u64>,
    /// Time in seconds since 1970 from which the ticket is refused. It moves if the clock turns out
    /// to have been wrong: see [`Issued::is_expired`].
    pub expires_unix: u64,
    /// UDP port in the ticket: a restarted receiver must listen there again.
    pub port: u16,
    /// The target directory.
    pub directory: PathBuf,
    /// The only sender key that may use the ticket from now on.
    pub bound: Option<PublicKey>,
    /// Whether the ticket's transfer is complete, so that the ticket is spent.
    pub completed: bool,
}

/// The decision to accept a sender.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Accepted {
    /// Id of the ticket used, for [`TicketStore::complete`].
    pub id: String,
    /// Receiver's proof, to send back.
    pub proof: Proof,
    /// Whether this decision bound the ticket to this sender; otherwise the sender resumes its
    /// transfer.
    pub first_use: bool,
}

/// Reason why a sender is refused. Only a sender that proved the secret gets more than "unknown".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum Refusal {
    /// No ticket of this receiver matches the proof, or the sender gave no proof.
    UnknownOrWrongProof = 1,
    /// The ticket has expired.
    Expired = 2,
    /// Another sender used the ticket first.
    BoundToAnotherKey = 3,
    /// The ticket's transfer is complete.
    Completed = 4,
    /// The receiver has a list of keys and the sender's is not on it.
    KeyNotAllowed = 5,
    /// The receiver could not read or write its state. Its log has the reason.
    Unavailable = 6,
    /// Another run of the sender has a transfer with the ticket under way.
    Running = 7,
}

/// Errors of reading and writing the state.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The file could not be read or written.
    Io(PathBuf, io::Error),
    /// The folder of the file could not be made or used.
    Folder(PathBuf, io::Error),
    /// The file is damaged or is not a ticket store.
    Content(PathBuf, String),
    /// Others than the owner may write to the folder of the file, and so replace the file.
    FolderOpenToOthers(PathBuf),
    /// Others than the owner may read the file, which holds secrets, or write it.
    OpenToOthers(PathBuf),
    /// The file was written by a later version of this program.
    Version(PathBuf, u32),
    /// [`TICKETS_MAX`] tickets are open.
    Full,
    /// A running receiver serves this ticket.
    Served(String),
    /// The system provided no randomness.
    Random,
    /// No directory for state: neither `XDG_STATE_HOME` nor `HOME` is set.
    NoHome,
}

impl TicketStore {
    /// Opens the store in `state_dir`, which is created (for the owner only) if it is missing.
    ///
    /// # Errors
    /// [`StoreError::Folder`] if it cannot be made, [`StoreError::FolderOpenToOthers`].
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let error = |error| StoreError::Folder(state_dir.to_owned(), error);
        private_file::create_directory(state_dir).map_err(error)?;
        if private_file::is_writable_by_others(state_dir).map_err(error)? {
            return Err(StoreError::FolderOpenToOthers(state_dir.to_owned()));
        }
        Ok(Self { path: state_dir.join("tickets.json"), lock: state_dir.join("tickets.lock") })
    }

    /// Creates a ticket for `directory`, valid from `now_unix` until `expires_unix`, for a receiver
    /// on UDP port `port`.
    ///
    /// # Errors
    /// [`StoreError::Full`] if too many tickets are open; other variants if the file cannot be read
    /// or written.
    pub fn issue(&self, now_unix: u64, directory: &Path, port: u16, expires_unix: u64) -> Result<Issued, StoreError> {
        let secret = Secret::generate().map_err(|_| StoreError::Random)?;
        let mut id = [0; 10];
        #[expect(clippy::disallowed_methods, reason = "ids of tickets must not be guessed")]
        aws_lc_rs::rand::fill(&mut id).map_err(|_| StoreError::Random)?;
        let issued = Issued {
            id: base32::encode(&id),
            secret,
            issued_unix: Some(now_unix),
            expires_unix,
            port,
            directory: directory.to_owned(),
            bound: None,
            completed: false,
        };
        self.change(|tickets| {
            tickets.iter_mut().for_each(|ticket| ticket.follow_clock(now_unix));
            tickets.retain(|ticket| now_unix < ticket.expires_unix.saturating_add(KEEP_EXPIRED_SECONDS));
            drop_spent_if_full(tickets, now_unix)?;
            tickets.push(issued.clone());
            Ok(issued)
        })
    }

    /// Returns the tickets for `directory` that can still be used at `now_unix`, oldest first. A
    /// restarted receiver serves these.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or cannot be written although the clock was set.
    pub fn usable(&self, now_unix: u64, directory: &Path) -> Result<Vec<Issued>, StoreError> {
        self.change(|tickets| {
            tickets.iter_mut().for_each(|ticket| ticket.follow_clock(now_unix));
            let is_usable = |ticket: &&Issued| ticket.is_usable(now_unix) && ticket.directory == directory;
            Ok(tickets.iter().filter(is_usable).cloned().collect())
        })
    }

    /// Returns all stored tickets, oldest first.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn all(&self) -> Result<Vec<Issued>, StoreError> {
        let _lock = self.acquire()?;
        self.read()
    }

    /// Returns the ticket `id`; `None` if it is unknown or was revoked.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn find(&self, id: &str) -> Result<Option<Issued>, StoreError> {
        Ok(self.all()?.into_iter().find(|ticket| ticket.id == id))
    }

    /// Returns the file that holds the tickets. It is replaced at each change.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Declares that this process serves the ticket `id`, until the value is dropped.
    ///
    /// # Errors
    /// [`StoreError::Served`] if another one does.
    pub fn serve(&self, id: &str) -> Result<Serving, StoreError> {
        let path = self.serving_path(id)?;
        // This keeps other processes from testing the lock at the same time.
        let _lock = self.acquire()?;
        let serving = Serving::lock(path.clone()).map_err(|error| StoreError::Io(path, error))?;
        serving.ok_or_else(|| StoreError::Served(id.to_owned()))
    }

    /// Returns whether a running receiver serves the ticket `id`.
    ///
    /// # Errors
    /// Fails if that cannot be found out.
    pub fn is_served(&self, id: &str) -> Result<bool, StoreError> {
        let _lock = self.acquire()?;
        self.is_served_now(id)
    }

    /// Decides whether the sender of `context`, having given `proof`, may send into `directory` at
    /// `now_unix`. A first use binds the ticket to the sender's key, on disk, before this returns.
    ///
    /// # Errors
    /// Returns the reason to send to the sender. [`Refusal::Unavailable`] if the file failed;
    /// [`TicketStore::usable`] then returns the error.
    pub fn decide(
        &self,
        now_unix: u64,
        directory: &Path,
        context: &ProofContext,
        proof: &Proof,
    ) -> Result<Accepted, Refusal> {
        let decision = self.change(|tickets| Ok(decide(tickets, now_unix, directory, context, proof)));
        decision.unwrap_or(Err(Refusal::Unavailable))
    }

    /// Marks the ticket `id` as spent. Does nothing if it is spent already or unknown.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn complete(&self, id: &str) -> Result<(), StoreError> {
        self.change(|tickets| {
            for ticket in tickets.iter_mut().filter(|ticket| ticket.id == id) {
                ticket.completed = true;
            }
            Ok(())
        })
    }

    /// Undoes the binding of the ticket `id` to `key`, because nothing was stored. Does nothing if
    /// it is bound to another key, spent or unknown.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn release(&self, id: &str, key: PublicKey) -> Result<(), StoreError> {
        self.change(|tickets| {
            let is_bound = |ticket: &Issued| ticket.id == id && ticket.bound == Some(key) && !ticket.completed;
            for ticket in tickets.iter_mut().filter(|ticket| is_bound(ticket)) {
                ticket.bound = None;
            }
            Ok(())
        })
    }

    /// Records that the ticket `id` is served on another port from now on.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn set_port(&self, id: &str, port: u16) -> Result<(), StoreError> {
        self.change(|tickets| {
            for ticket in tickets.iter_mut().filter(|ticket| ticket.id == id) {
                ticket.port = port;
            }
            Ok(())
        })
    }

    /// Removes the ticket `id`, which is unknown from then on. Does nothing if it is unknown
    /// already.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn revoke(&self, id: &str) -> Result<(), StoreError> {
        self.change(|tickets| {
            tickets.retain(|ticket| ticket.id != id);
            Ok(())
        })
    }

    /// Removes the tickets for `directory` that could still be used at `now_unix`; returns their
    /// number.
    ///
    /// # Errors
    /// [`StoreError::Served`] if a running receiver serves one of them: then all stay. Other
    /// variants if the file cannot be read or written.
    pub fn revoke_unfinished(&self, now_unix: u64, directory: &Path) -> Result<usize, StoreError> {
        self.change(|tickets| {
            let before = tickets.len();
            let is_unfinished = |ticket: &Issued| ticket.is_usable(now_unix) && ticket.directory == directory;
            for ticket in tickets.iter().filter(|ticket| is_unfinished(ticket)) {
                if self.is_served_now(&ticket.id)? {
                    return Err(StoreError::Served(ticket.id.clone()));
                }
            }
            tickets.retain(|ticket| !is_unfinished(ticket));
            Ok(before - tickets.len())
        })
    }

    /// Reads the state, applies `edit` and, if that changed anything, writes it, all under the
    /// lock.
    fn change<T>(&self, edit: impl FnOnce(&mut Vec<Issued>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let _lock = self.acquire()?;
        let before = self.read()?;
        let mut tickets = before.clone();
        let outcome = edit(&mut tickets)?;
        if tickets != before {
            self.write(&tickets)?;
        }
        // A killed receiver leaves its lock file behind. So there are at most as many as tickets.
        for gone in before.iter().filter(|ticket| tickets.iter().all(|other| other.id != ticket.id)) {
            let _removed = self.serving_path(&gone.id).map(std::fs::remove_file);
        }
        Ok(outcome)
    }

    /// Does the same as [`is_served`](Self::is_served) under the store's lock.
    fn is_served_now(&self, id: &str) -> Result<bool, StoreError> {
        let path = self.serving_path(id)?;
        Serving::is_locked(&path).map_err(|error| StoreError::Io(path, error))
    }

    /// Returns the file that the server of the ticket `id` locks.
    fn serving_path(&self, id: &str) -> Result<PathBuf, StoreError> {
        // The name must not lead out of the directory.
        if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(StoreError::Content(self.path.clone(), "an id is not readable".to_owned()));
        }
        Ok(self.path.with_file_name(format!("serving-{id}.lock")))
    }

    /// Acquires the lock, which is the open file: closing it releases the lock, also when the
    /// process ends.
    fn acquire(&self) -> Result<File, StoreError> {
        let error = |error| StoreError::Io(self.lock.clone(), error);
        // A separate file, because the state file is replaced and a lock on the old file would have
        // no effect.
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(NON_BLOCKING)
            .open(&self.lock);
        let file = file.map_err(error)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| error(errno.into()))?;
        Ok(file)
    }

    fn read(&self) -> Result<Vec<Issued>, StoreError> {
        let bytes = match private_file::read_own(&self.path, STATE_FILE_LEN_MAX) {
            Ok((bytes, false)) => bytes,
            Ok((_, true)) => return Err(StoreError::OpenToOthers(self.path.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::Io(self.path.clone(), error)),
        };
        let content = |what: String| StoreError::Content(self.path.clone(), what);
        // Checks the version first, because a later format may not parse as this one.
        let Version { version } = serde_json::from_slice(&bytes).map_err(|error| content(error.to_string()))?;
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
            return Err(StoreError::Version(self.path.clone(), version));
        }
        let state: StateFile = serde_json::from_slice(&bytes).map_err(|error| content(error.to_string()))?;
        if state.tickets.len() > TICKETS_MAX {
            return Err(content(format!("more than {TICKETS_MAX} tickets")));
        }
        let tickets = state.tickets.into_iter().map(Issued::try_from).collect::<Result<_, _>>();
        tickets.map_err(|what| content(what.to_owned()))
    }

    fn write(&self, tickets: &[Issued]) -> Result<(), StoreError> {
        let state = StateFile { version: FORMAT_VERSION, tickets: tickets.iter().map(TicketRecord::from).collect() };
        let directories: usize = tickets.iter().map(|ticket| 3 * ticket.directory.as_os_str().len()).sum();
        // Enough capacity from the start: no copy of a secret is left behind in freed memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(directories + (1 + tickets.len()) * RECORD_LEN_MAX));
        serde_json::to_writer_pretty(&mut *bytes, &state)
            .map_err(|error| StoreError::Content(self.path.clone(), error.to_string()))?;
        bytes.push(b'\n');
        private_file::replace(&self.path, &bytes).map_err(|error| StoreError::Io(self.path.clone(), error))
    }
}

impl Refusal {
    /// Returns the number of this reason on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the reason with this number; unknown numbers of later versions count as
    /// [`Refusal::UnknownOrWrongProof`].
    pub const fn from_code(code: u8) -> Self {
        match code {
            2 => Self::Expired,
            3 => Self::BoundToAnotherKey,
            4 => Self::Completed,
            5 => Self::KeyNotAllowed,
            6 => Self::Unavailable,
            7 => Self::Running,
            _ => Self::UnknownOrWrongProof,
        }
    }
}

/// Returns `$XDG_STATE_HOME/litz`, or `~/.local/state/litz`.
///
/// # Errors
/// [`StoreError::NoHome`] if the environment names neither.
pub fn default_state_dir() -> Result<PathBuf, StoreError> {
    // The XDG base directory specification requires relative paths to be ignored.
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("litz"))
        .ok_or(StoreError::NoHome)
}

fn decide(
    tickets: &mut [Issued],
    now_unix: u64,
    directory: &Path,
    context: &ProofContext,
    proof: &Proof,
) -> Result<Accepted, Refusal> {
    // All tickets are tried, whatever their state, so that the time reveals only their number.
    let mut matching = None;
    for ticket in tickets.iter_mut() {
        let fits = context.verify(&ticket.secret, Role::Sender, proof);
        if fits && ticket.directory == directory {
            matching = Some(ticket);
        }
    }
    let ticket = matching.ok_or(Refusal::UnknownOrWrongProof)?;
    // A sender with another key gets only the answer that the ticket is bound, and not whether the
    // transfer completed.
    let first_use = match ticket.bound {
        Some(key) if key != context.sender() => return Err(Refusal::BoundToAnotherKey),
        bound => bound.is_none(),
    };
    if ticket.completed {
        return Err(Refusal::Completed);
    }
    ticket.follow_clock(now_unix);
    if ticket.is_expired(now_unix) {
        return Err(Refusal::Expired);
    }
    ticket.bound = Some(context.sender());
    Ok(Accepted { id: ticket.id.clone(), proof: context.prove(&ticket.secret, Role::Receiver), first_use })
}

/// Drops the oldest spent ticket if the store is full.
fn drop_spent_if_full(tickets: &mut Vec<Issued>, now_unix: u64) -> Result<(), StoreError> {
    if tickets.len() < TICKETS_MAX {
        return Ok(());
    }
    let spent = tickets.iter().position(|ticket| !ticket.is_usable(now_unix)).ok_or(StoreError::Full)?;
    tickets.remove(spent);
    Ok(())
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownOrWrongProof => {
                "the receiver knows no such ticket: it may be revoked or for another receiver; ask for a new one"
            }
            Self::Expired => "the ticket has expired: ask the receiver for a new one",
            Self::BoundToAnotherKey => {
                "the ticket is bound to another sender, the first that used it: ask the receiver for a new one \
                 (`litz recv --new-ticket`), or send from the same host and user as before"
            }
            Self::Completed => "the ticket's transfer is complete already: ask for a new ticket to send more",
            Self::KeyNotAllowed => "the sender's key is not on the receiver's list of keys: have it added there",
            Self::Running => {
                "a transfer with this ticket is running: ask the receiver for a ticket of your own, or stop the other \
                 `litz send` first"
            }
            Self::Unavailable => "the receiver cannot read or write its own state: see its messages, then try again",
        })
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "cannot use the state file {}: {error}", path.display()),
            Self::Folder(path, error) => write!(
                f,
                "cannot use the state folder {}: {error}; make it usable, or choose another one with --state-dir",
                path.display()
            ),
            Self::Content(path, what) => {
                write!(f, "the state file {} is damaged ({what}): move it away; open tickets are lost", path.display())
            }
            Self::FolderOpenToOthers(path) => {
                let path = path.display();
                write!(
                    f,
                    "other users may write to the folder {path}, and so replace keys and tickets in it: run `chmod \
                     go-w '{path}'`, and see that its files are yours"
                )
            }
            Self::OpenToOthers(path) => {
                let path = path.display();
                write!(
                    f,
                    "other users may read or change {path}, which holds the secrets of tickets: run `chmod 600 \
                     '{path}'`, and revoke the tickets if others may have read it (`litz tickets revoke --all`)"
                )
            }
            Self::Version(path, version) => write!(
                f,
                "the state file {} has format {version}, this program knows {FORMAT_VERSION}: use the newer litz",
                path.display()
            ),
            Self::Full => {
                write!(f, "{TICKETS_MAX} tickets are open: wait for one to be used or to expire, or revoke one")
            }
            Self::Served(id) => {
                write!(
                    f,
                    "another running command serves the ticket {id}: stop it first, or serve another directory or \
                     other targets"
                )
            }
            Self::Random => write!(f, "cannot create a ticket: the system provided no randomness"),
            Self::NoHome => {
                write!(f, "there is no directory for state: set XDG_STATE_HOME or HOME to an absolute path")
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) | Self::Folder(_, error) => Some(error),
            _ => None,
        }
    }
}

/// Limit on stored tickets. A proof is tried against each, which takes about 1 us per ticket.
pub const TICKETS_MAX: usize = 256;

/// An expired ticket is kept for a day, so that its sender gets the reason "expired" instead of
/// "unknown".
const KEEP_EXPIRED_SECONDS: u64 = 24 * 60 * 60;

/// Version of the format; version 2 has the time of issue.
const FORMAT_VERSION: u32 = 2;
const FORMAT_VERSION_MIN: u32 = 1;

/// Length limit of a record without its directory.
const RECORD_LEN_MAX: usize = 600;

/// A record takes under [`RECORD_LEN_MAX`] bytes and a directory of at most 3 x 4096.
const STATE_FILE_LEN_MAX: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
