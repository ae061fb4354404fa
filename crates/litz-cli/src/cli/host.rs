//! This host: its key, its state folder and its wall clock.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use litz::identity::KeyPair;
use transfer::TicketStore;
use transfer::store::default_state_dir;

/// The folder of keys and tickets, and the host's key.
pub(crate) struct HostState {
    pub(crate) key: KeyPair,
    pub(crate) store: TicketStore,
}

/// Opens the state folder of this host and creates a key at first use.
///
/// # Errors
/// A message for the user.
pub(crate) fn open_state(chosen: Option<&Path>) -> Result<HostState, String> {
    let directory = state_directory(chosen)?;
    let store = TicketStore::open(&directory).map_err(|error| error.to_string())?;
    let key = KeyPair::load_or_create(&directory.join("host.key")).map_err(|error| error.to_string())?;
    Ok(HostState { key, store })
}

/// Opens the tickets of this host.
///
/// # Errors
/// As [`open_state`].
pub(crate) fn open_store(chosen: Option<&Path>) -> Result<TicketStore, String> {
    TicketStore::open(&state_directory(chosen)?).map_err(|error| error.to_string())
}

fn state_directory(chosen: Option<&Path>) -> Result<PathBuf, String> {
    chosen.map_or_else(|| default_state_dir().map_err(|error| error.to_string()), |chosen| Ok(chosen.to_owned()))
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "tickets expire by the wall clock")]
pub(crate) fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
