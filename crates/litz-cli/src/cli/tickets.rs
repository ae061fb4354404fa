//! `litz tickets`: lists and revokes the tickets that this user's receivers and servers issued.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use transfer::TicketStore;
use transfer::store::Issued;

use super::{exit, host, out};

/// The end of the help text.
pub(crate) const HELP: &str = "\
States of a ticket:
  open       it can still be used, but no command serves it now
  serving    it can be used: a running `litz recv`, `litz forward serve` or `litz tunnel serve` serves it
  completed  its transfer is complete
  expired    its lifetime has ended

SENDER is the fingerprint of the only host that may use the ticket from now on, or `unused`. A running \
command ends when its ticket is revoked. In place of a directory, tickets of `litz forward serve` have \
its rules, and those of `litz tunnel serve` its device.

Exit status:
  0    done
  2    an error: bad arguments, an unknown ticket, an unreadable state folder";

#[derive(Args, Debug)]
pub(crate) struct TicketsOptions {
    #[command(subcommand)]
    command: Option<TicketsCommand>,

    /// Print one JSON object per ticket
    #[arg(long, global = true)]
    json: bool,

    /// Folder for keys and tickets [default: litz in XDG_STATE_HOME]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum TicketsCommand {
    /// Revoke tickets: they cannot be used any more
    #[command(after_help = HELP)]
    Revoke(RevokeOptions),
}

#[derive(Args, Debug)]
struct RevokeOptions {
    /// Tickets to revoke, as `litz tickets` lists them
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,

    /// Revoke all tickets that can still be used
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(options: &TicketsOptions) -> ExitCode {
    let done = host::open_store(options.state_dir.as_deref()).and_then(|store| match &options.command {
        None => list(&store, options.json),
        Some(TicketsCommand::Revoke(revoked)) => revoke(&store, revoked, options.json),
    });
    match done {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(message) => exit::fail(options.json, exit::FAILED, &message),
    }
}

/// A ticket as the user sees it.
struct Row {
    ticket: Issued,
    state: &'static str,
    seconds_left: u64,
}

fn list(store: &TicketStore, json: bool) -> Result<(), String> {
    let now = host::ticket_clock();
    let rows = tickets(store)?.into_iter().map(|ticket| Row::new(store, ticket, now));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    if json {
        rows.iter().for_each(|row| out::json(&row.json()));
    } else if rows.is_empty() {
        out::note("no tickets");
    } else {
        out::line(&format!("{:16}  {:9}  {:>9}  {:59}  DIRECTORY", "ID", "STATE", "EXPIRES", "SENDER"));
        rows.iter().for_each(|row| out::line(&row.text()));
    }
    Ok(())
}

fn revoke(store: &TicketStore, options: &RevokeOptions, json: bool) -> Result<(), String> {
    let (tickets, now) = (tickets(store)?, host::ticket_clock());
    if let Some(unknown) = options.ids.iter().find(|id| tickets.iter().all(|ticket| ticket.id != **id)) {
        return Err(format!("there is no ticket {unknown}: nothing was revoked; `litz tickets` lists all"));
    }
    let is_chosen =
        |ticket: &Issued| if options.all { ticket.is_usable(now) } else { options.ids.contains(&ticket.id) };
    for ticket in tickets.iter().filter(|ticket| is_chosen(ticket)) {
        store.revoke(&ticket.id).map_err(|error| error.to_string())?;
        if json {
            out::json(&json!({ "event": "revoked", "id": ticket.id }));
        } else {
            out::line(&format!("{} revoked", ticket.id));
        }
    }
    Ok(())
}

fn tickets(store: &TicketStore) -> Result<Vec<Issued>, String> {
    store.all().map_err(|error| error.to_string())
}

impl Row {
    fn new(store: &TicketStore, ticket: Issued, now: u64) -> Result<Self, String> {
        let state = if ticket.completed {
            "completed"
        } else if !ticket.is_usable(now) {
            "expired"
        } else if store.is_served(&ticket.id).map_err(|error| error.to_string())? {
            "serving"
        } else {
            "open"
        };
        Ok(Self { seconds_left: ticket.expires_unix.saturating_sub(now), state, ticket })
    }

    fn sender(&self) -> Option<String> {
        self.ticket.bound.map(|key| key.fingerprint().to_string())
    }

    fn text(&self) -> String {
        let sender = self.sender().unwrap_or_else(|| "unused".to_owned());
        // A name with control characters must not change the terminal.
        let directory = self.ticket.directory.display().to_string().replace(char::is_control, "\u{fffd}");
        let expires = time_left(self.seconds_left);
        format!("{:16}  {:9}  {expires:>9}  {sender:59}  {directory}", self.ticket.id, self.state)
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "event": "ticket", "id": self.ticket.id, "state": self.state, "sender": self.sender(),
            "expires_unix": self.ticket.expires_unix, "port": self.ticket.port,
            "directory": self.ticket.directory.display().to_string(),
        })
    }
}

/// The time until the expiry, in its two largest units.
fn time_left(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}min"),
        (0, _, _) => format!("{hours}h{minutes:02}min"),
        (1..100, _, _) => format!("{days}d{hours:02}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_has_two_units() {
        let texts = [0, 59, 60, 3599, 3600, 86_399, 86_400, 8_640_000].map(time_left);
        assert_eq!(texts, ["0s", "59s", "1min", "59min", "1h00min", "23h59min", "1d00h", "100d"]);
    }
}
