//! How other hosts are authorised: by a ticket that this command serves, or by a list of keys.

use std::sync::Arc;

use litz::identity::PublicKey;
use transfer::StoreError;
use transfer::store::{Issued, Serving};
use units::Duration;

use super::admission::{Places, Visitors};
use super::allowed::AllowedKeys;
use super::served_ticket::ServedTicket;
use super::start::AdmissionRequest;
use super::visits::Visits;
use crate::cli::host::{self, HostState};
use crate::cli::transport_options::TransportOptions;
use crate::cli::warning::Warning;

/// The lifetime of a ticket, if the user has said nothing.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// Refuses a lifetime in which no host can use a ticket.
///
/// # Errors
/// A message for the user, about the hosts that use it.
pub(crate) fn check_lifetime(expires: Option<Duration>, peer: &str) -> Result<(), String> {
    match expires {
        Some(expires) if expires.is_zero() => {
            Err(format!("--expires must be more than 0: a {peer} needs time to use the ticket"))
        }
        _ => Ok(()),
    }
}

/// How other hosts are authorised.
pub(crate) enum Admission {
    Ticket(Box<ServedTicket>),
    Keys(Arc<AllowedKeys>),
}

impl Admission {
    /// By the list of keys, the unfinished ticket or a new ticket.
    pub(crate) fn prepare(
        request: &AdmissionRequest<'_>,
        output: &TransportOptions,
        state: &HostState,
        now: u64,
        port: u16,
        unfinished: Option<(Issued, Serving)>,
    ) -> Result<Self, String> {
        if let Some(key) = request.invited {
            return Ok(Self::Keys(Arc::new(AllowedKeys::only(key))));
        }
        if let Some(path) = request.allow {
            let keys = match &request.read_keys {
                Some(read) => AllowedKeys::load_with(path, Arc::clone(read))?,
                None => AllowedKeys::load(path)?,
            };
            if let Some(note) = keys.emptiness_note() {
                Warning::AllowedKeys.print(output.json, output.quiet, &note);
            }
            return Ok(Self::Keys(Arc::new(keys)));
        }
        let failed = |error: StoreError| error.to_string();
        let store = &state.store;
        let (issued, serving) = match unfinished {
            Some((issued, serving)) => {
                if request.expires.is_some() {
                    let until = host::utc(issued.expires_unix);
                    let note = format!(
                        "--expires is for new tickets: the earlier one is served again, until {until}, unless \
                         --new-ticket is given"
                    );
                    Warning::ExpiresIgnored.print(output.json, output.quiet, &note);
                }
                store.set_port(&issued.id, port).map_err(failed)?;
                (issued, serving)
            }
            None => {
                // Otherwise a host with an old ticket could still use it.
                if !request.is_for_one_run {
                    store.revoke_unfinished(now, request.purpose).map_err(failed)?;
                }
                let lifetime = request.expires.unwrap_or(LIFETIME_DEFAULT);
                let expires = now.saturating_add(lifetime.as_millis().div_ceil(1000));
                let issued = store.issue(now, request.purpose, port, expires).map_err(failed)?;
                let serving = store.serve(&issued.id).map_err(failed)?;
                (issued, serving)
            }
        };
        Ok(Self::Ticket(Box::new(ServedTicket::new(store.clone(), issued, serving))))
    }

    pub(crate) fn visitors(&self, places: Places) -> Visitors {
        match self {
            Self::Ticket(_) => Visitors::of_ticket(places),
            Self::Keys(_) => Visitors::of_keys(places),
        }
    }

    /// Whether this key has the right, so that a visitor with it gets a place of its own.
    pub(crate) fn is_known(&self, key: &PublicKey) -> bool {
        match self {
            Self::Ticket(ticket) => ticket.bound().as_ref() == Some(key),
            Self::Keys(keys) => keys.allows(key),
        }
    }

    /// Reads the list of keys again if it changed, and ends the visits of removed keys. `warn` tells the user if
    /// the list is empty or cannot be used.
    pub(crate) fn refresh_keys(&self, visits: &Visits, warn: impl FnOnce(Warning, &str)) {
        let Self::Keys(keys) = self else { return };
        let refreshed = keys.refresh();
        if let Some(warning) = refreshed.warning {
            warn(Warning::AllowedKeys, &warning);
        }
        if refreshed.is_changed {
            visits.close_unless(|key| keys.allows(key));
        }
    }
}

/// The unfinished ticket for the same purpose, which this command serves from now on; none with
/// --allow or --new-ticket.
pub(crate) fn unfinished_ticket(
    request: &AdmissionRequest<'_>,
    state: &HostState,
    now: u64,
) -> Result<Option<(Issued, Serving)>, String> {
    if request.invited.is_some() || request.allow.is_some() || request.new_ticket || request.is_for_one_run {
        return Ok(None);
    }
    let newest = state.store.usable(now, request.purpose).map_err(|error| error.to_string())?.pop();
    let serve = |issued: Issued| state.store.serve(&issued.id).map(|serving| (issued, serving));
    newest.map(serve).transpose().map_err(|error| error.to_string())
}
