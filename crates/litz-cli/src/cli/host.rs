//! This host: its key, its state folder and its wall clock.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use litz::identity::KeyPair;
use rustix::time::{ClockId, clock_gettime};
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

/// The state folder of this host.
///
/// # Errors
/// If none was chosen and this user has no home directory.
pub(crate) fn state_directory(chosen: Option<&Path>) -> Result<PathBuf, String> {
    chosen.map_or_else(|| default_state_dir().map_err(|error| error.to_string()), |chosen| Ok(chosen.to_owned()))
}

/// Seconds since 1970 by the clock that tickets expire by. It begins with the wall clock when the process
/// starts, and counts the time since, in which the machine may have slept. A wall clock that is set
/// meanwhile does not change the age of a ticket.
pub(crate) fn ticket_clock() -> u64 {
    static START: OnceLock<(u64, i64)> = OnceLock::new();
    let since_boot = || clock_gettime(ClockId::Boottime).tv_sec;
    let (unix, boot) = *START.get_or_init(|| (now_unix(), since_boot()));
    unix.saturating_add_signed(since_boot().saturating_sub(boot))
}

/// Seconds since 1970; 0 if the clock is before it.
#[expect(clippy::disallowed_methods, reason = "files and tickets have the time of the wall clock")]
pub(crate) fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// A time in seconds since 1970 as date and time of day, UTC.
pub(crate) fn utc(unix: u64) -> String {
    let (mut days, minutes) = (unix / 86_400, unix % 86_400 / 60);
    // The Gregorian calendar repeats after 400 years, which begin in March so that a leap day is the
    // last day of its year.
    days += 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} at {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_dates() {
        for (unix, text) in [
            (0, "1970-01-01 at 00:00 UTC"),
            (951_782_399, "2000-02-28 at 23:59 UTC"),
            (951_782_400, "2000-02-29 at 00:00 UTC"),
            (1_709_251_199, "2024-02-29 at 23:59 UTC"),
            (1_709_251_200, "2024-03-01 at 00:00 UTC"),
            (4_107_542_399, "2100-02-28 at 23:59 UTC"),
            (4_107_542_400, "2100-03-01 at 00:00 UTC"),
        ] {
            assert_eq!(utc(unix), text);
        }
    }
}
