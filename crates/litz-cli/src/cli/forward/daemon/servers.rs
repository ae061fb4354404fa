//! The servers of a daemon that has several (`--servers FILE`): tables of a file of settings.

use std::path::Path;

use forward::policy::Policy;
use serde::Deserialize;
use toml::Spanned;
use transfer::Ticket;

use crate::cli::credential::CredentialOptions;
use crate::cli::ticket::TicketOptions;
use crate::cli::tunnel::settings_file;
use crate::cli::tunnel::texts::Texts;

/// Servers of a daemon. Each has a connection, and threads of its own.
const SERVERS_MAX: usize = 16;

/// The name of their tables.
const SERVER: &str = "server";

/// The command whose tickets they are.
pub(in crate::cli::forward) const PRINTED_BY: &str = "litz forward serve";

/// A server.
pub(in crate::cli::forward) struct ListedServer {
    /// For the user.
    pub(in crate::cli::forward) name: String,
    pub(in crate::cli::forward) ticket: Ticket,
    /// It knows this host's key, and no secret is proven.
    pub(in crate::cli::forward) by_key: bool,
    /// The targets and places that are for this server.
    pub(in crate::cli::forward) rules: Policy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    name: Spanned<String>,
    ticket_file: Spanned<String>,
    #[serde(default)]
    by_key: bool,
    #[serde(default)]
    target: Texts,
    #[serde(default)]
    permit_listen: Texts,
}

/// The servers in the file at `path`: at least one.
///
/// # Errors
/// A message for the user, with the line.
pub(super) fn load(path: &Path) -> Result<Vec<ListedServer>, String> {
    parse(path, &settings_file::read(path)?)
}

fn parse(path: &Path, text: &str) -> Result<Vec<ListedServer>, String> {
    if let Some(at) = settings_file::single_table(text, SERVER) {
        return Err(settings_file::error_at(path, text, at, &settings_file::one_of_several(SERVER)));
    }
    let file: File = toml::from_str(text).map_err(|error| settings_file::syntax_error(path, text, &error))?;
    if file.server.is_empty() || file.server.len() > SERVERS_MAX {
        return Err(format!("{} must have 1 to {SERVERS_MAX} tables [[server]]", path.display()));
    }
    let mut servers: Vec<ListedServer> = Vec::new();
    for table in file.server {
        let fails = |at: &Spanned<String>, why: &str| settings_file::error_at(path, text, at.span().start, why);
        if servers.iter().any(|other| other.name == *table.name.get_ref()) {
            return Err(fails(&table.name, "another server has this name"));
        }
        let (targets, listeners) = (table.target.as_slice(), table.permit_listen.as_slice());
        if targets.is_empty() && listeners.is_empty() {
            let why = "nothing goes to this server: add target = [\"10.0.0.0/8:*\"], for instance, or permit-listen";
            return Err(fails(&table.name, why));
        }
        let rules = Policy::new(rules(path, text, targets)?, rules(path, text, listeners)?);
        // Beside the file, if the path is relative.
        let ticket_file = path.parent().unwrap_or(Path::new("")).join(table.ticket_file.get_ref());
        let ticket = TicketOptions { to: None, ticket_file: Some(ticket_file) };
        let credential = CredentialOptions { ticket, by_key: table.by_key };
        let ticket = credential.only(None, PRINTED_BY).map_err(|why| fails(&table.ticket_file, &why))?;
        servers.push(ListedServer { name: table.name.into_inner(), ticket, by_key: table.by_key, rules });
    }
    Ok(servers)
}

/// The rules of a list.
fn rules<T: std::str::FromStr<Err = String>>(
    path: &Path,
    text: &str,
    list: &[Spanned<String>],
) -> Result<Vec<T>, String> {
    let rule = |rule: &Spanned<String>| {
        rule.get_ref().parse().map_err(|why: String| settings_file::error_at(path, text, rule.span().start, &why))
    };
    list.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_a_file_are_named_with_their_line() {
        let path = Path::new("/nonexistent/servers.toml");
        let server = "[[server]]\nname = \"a\"\nticket-file = \"t\"\n";
        for (text, words) in [
            ("", "1 to 16 tables"),
            (server.repeat(17).as_str(), "1 to 16 tables"),
            ("server = 1", "line 1"),
            ("\n[server]\nname = \"a\"\n", "line 2: there may be several tables `server`: write [[server]]"),
            (format!("{server}target = \"db\"\n").as_str(), "line 4: \"db\" is neither"),
            (format!("{server}target = \"*:*\"\n").as_str(), "line 3: cannot read the ticket in /nonexistent/t"),
            (format!("{server}target = 9\n").as_str(), "line 4: "),
            (server, "line 2: nothing goes to this server"),
            (format!("{server}targets = []\n").as_str(), "unknown field"),
            (format!("{server}target = [\"*:*\", \"db\"]\n").as_str(), "line 4: \"db\" is neither"),
            (format!("{server}permit-listen = [\"x\"]\n").as_str(), "line 4: "),
            (format!("{server}target = [\"*:*\"]\n").as_str(), "line 3: cannot read the ticket in /nonexistent/t"),
            ("[[server]]\nname = \"a\"\ntarget = [\"*:*\"]\n", "ticket-file"),
        ] {
            let error = parse(path, text).err().unwrap_or_else(|| panic!("{text}"));
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
