//! `litz paths TICKET`: shows which paths a sender would use, and why. Nothing is sent.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use litz::paths::{Candidate, Choice, Rejected, advice};
use scheduler::trace::{Difference, Replay};
use serde_json::{Value, json};

use super::path_options::PathOptions;
use super::ticket::TicketOptions;
use super::{connect, exit, heading, out, scheduler_trace, ticket};

/// The end of the help text.
pub(crate) const HELP: &str = "\
The paths follow from the interfaces and routes of this host. Nothing is sent, so this command does not \
show whether the receiver answers.

Exit status:
  0    at least one path would be used; with --replay: all choices are the same
  2    an error: bad arguments, a bad or expired ticket, no path; with --replay: an unreadable trace, or a choice that differs";

#[derive(Args, Debug)]
pub(crate) struct PathsOptions {
    /// The ticket that the far host printed
    #[arg(conflicts_with_all = ["to", "ticket_file"])]
    pub(crate) ticket: Option<OsString>,

    #[command(flatten)]
    pub(crate) ticket_options: TicketOptions,

    /// Repeat the path choices of a trace that --trace-scheduler wrote, and report those that
    /// differ
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ticket", "to", "ticket_file", "paths", "limit"], help_heading = heading::RECORDING)]
    pub(crate) replay: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) paths: PathOptions,

    /// Print the result as one JSON object
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) json: bool,
}

pub(crate) fn run(options: &PathsOptions) -> ExitCode {
    match show(options) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(message) => exit::fail(options.json, exit::FAILED, &message),
    }
}

fn show(options: &PathsOptions) -> Result<(), String> {
    if let Some(trace) = &options.replay {
        return show_replay(trace, options.json);
    }
    let ticket = options.ticket_options.only(options.ticket.as_deref(), ticket::RECEIVER)?;
    let remotes = connect::resolve(&ticket.addresses)?;
    let choice = options.paths.choose(&remotes).map_err(|error| error.to_string())?;
    let advice = advice_for(&choice)?;
    let last = connect::tried_last(&options.paths, &choice, &remotes);
    if options.json {
        out::json(&as_json(&choice, &last, &advice));
    } else {
        out::print(&as_text(&choice, &last, &advice));
    }
    if choice.candidates.is_empty() {
        return Err("no path leads to the far host".to_owned());
    }
    Ok(())
}

fn show_replay(trace: &Path, json: bool) -> Result<(), String> {
    let replay = scheduler_trace::replay_file(trace)?;
    let Replay { strategy, decisions, differences, differences_count } = &replay;
    if json {
        let differences = differences.iter().map(|Difference { line, recorded, replayed }| {
            json!({ "line": line, "recorded": recorded, "replayed": replayed })
        });
        out::json(&json!({
            "event": "replay", "strategy": strategy.to_string(), "decisions": decisions,
            "differences_count": differences_count, "differences": differences.collect::<Vec<_>>(),
        }));
    } else if *differences_count == 0 {
        out::line(&format!("{decisions} choices by {strategy}: all the same in the replay"));
    } else {
        differences.iter().for_each(|difference| out::line(&difference.to_string()));
        let more = differences_count - differences.len() as u64;
        if more > 0 {
            out::line(&format!("and {more} more"));
        }
    }
    if *differences_count > 0 {
        return Err(format!("{}: {differences_count} of {decisions} choices differ in the replay", trace.display()));
    }
    Ok(())
}

fn advice_for(choice: &Choice) -> Result<Vec<String>, String> {
    let interfaces = net::interfaces().map_err(|error| format!("cannot list the network interfaces: {error}"))?;
    let used = choice.candidates.iter().filter_map(|path| Some((path.device.as_deref()?, path.local.ip())));
    let used: Vec<(&str, IpAddr)> = used.collect();
    Ok(advice::advise_here(&interfaces, &used))
}

fn as_json(choice: &Choice, last: &[SocketAddr], advice: &[String]) -> Value {
    let path = |path: &Candidate| {
        json!({
            "local": path.local.to_string(), "device": path.device, "remote": path.remote.to_string(),
            "backup": path.backup, "link": path.why.link.label(), "turn": path.why.turn.label(),
            "why": path.why.to_string(),
        })
    };
    let unused = |rejected: &Rejected| {
        json!({
            "device": rejected.device, "local": rejected.local.map(|local| local.ip().to_string()),
            "remote": rejected.remote.map(|remote| remote.to_string()), "spare": rejected.why.is_spare(),
            "reason": rejected.why.label(), "why": rejected.why.to_string(),
        })
    };
    json!({
        "event": "paths",
        "paths": choice.candidates.iter().map(path).collect::<Vec<_>>(),
        "unused": choice.rejected.iter().map(unused).collect::<Vec<_>>(),
        "tried_last": last.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "advice": advice,
    })
}

fn as_text(choice: &Choice, last: &[SocketAddr], advice: &[String]) -> String {
    let mut used = vec![["", "device", "from", "to", "why"].map(str::to_owned)];
    for (path, number) in choice.candidates.iter().zip(1..) {
        let backup = if path.backup { "backup; " } else { "" };
        used.push([
            number.to_string(),
            path.device.clone().unwrap_or_else(|| "any".to_owned()),
            port_if_chosen(path.local),
            path.remote.to_string(),
            format!("{backup}{}", path.why),
        ]);
    }
    let mut unused = vec![["", "device", "from", "to", "why not"].map(str::to_owned)];
    for rejected in &choice.rejected {
        unused.push([
            String::new(),
            rejected.device.clone().unwrap_or_default(),
            rejected.local.map(port_if_chosen).unwrap_or_default(),
            rejected.remote.map(|remote| remote.to_string()).unwrap_or_default(),
            rejected.why.to_string(),
        ]);
    }
    let mut text = String::new();
    for (title, rows) in [("Used:", &used), ("Not used:", &unused)] {
        if rows.len() > 1 {
            let gap = if text.is_empty() { "" } else { "\n" };
            // Writing to a string does not fail.
            let _written = write!(text, "{gap}{title}\n{}", table(rows));
        }
    }
    if !last.is_empty() {
        let addresses = last.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let gap = if text.is_empty() { "" } else { "\n" };
        let _written = writeln!(text, "{gap}Tried last, on the default route: {addresses}");
    }
    for sentence in advice {
        let _written = write!(text, "\nnote: {sentence}\n");
    }
    text
}

fn port_if_chosen(local: SocketAddr) -> String {
    if local.port() == 0 { local.ip().to_string() } else { local.to_string() }
}

/// Formats columns that are as wide as their longest cell.
fn table(rows: &[[String; 5]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz::paths::Request;
    use litz::paths::choose::Turn;
    use net::{Interface, InterfaceAddress};

    fn interface(name: &str, index: u32, ip: &str) -> Interface {
        let address = InterfaceAddress { ip: ip.parse().unwrap(), prefix_len: 24, scope_id: 0 };
        Interface {
            name: name.to_owned(),
            index,
            is_up: true,
            is_running: true,
            is_loopback: name == "lo",
            is_dummy: false,
            is_point_to_point: false,
            is_litz_tunnel: false,
            addresses: vec![address],
        }
    }

    fn choice() -> Choice {
        let interfaces = [interface("lo", 1, "127.0.0.1"), interface("enp1s0", 2, "10.0.0.1")];
        let remotes = ["10.0.0.2:4433".parse().unwrap()];
        let request = Request::new(&interfaces, &remotes);
        let mut choice = litz::paths::choose(&request, &mut |_, _, _| Ok(())).unwrap();
        choice.candidates[0].backup = true;
        choice.candidates[0].why.turn = Turn::IdleInterface;
        choice
    }

    #[test]
    fn columns_are_aligned() {
        let text = as_text(&choice(), &["10.0.9.9:4433".parse().unwrap()], &["turn the knob".to_owned()]);
        let expected = "\
Used:
   device  from      to             why
1  enp1s0  10.0.0.1  10.0.0.2:4433  backup; same subnet (/24); so that the interface is not idle

Not used:
  device  from  to  why not
  lo                loopback leads to this host only

Tried last, on the default route: 10.0.9.9:4433

note: turn the knob
";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_has_the_same_content() {
        let value = as_json(&choice(), &["10.0.9.9:4433".parse().unwrap()], &[]);
        assert_eq!(value["paths"][0]["device"], "enp1s0");
        assert_eq!(value["paths"][0]["link"], "same_subnet");
        assert_eq!(value["paths"][0]["turn"], "idle_interface");
        assert_eq!(value["paths"][0]["backup"], true);
        assert_eq!(value["unused"][0]["reason"], "loopback");
        assert_eq!(value["unused"][0]["spare"], false);
        assert_eq!(value["tried_last"], json!(["10.0.9.9:4433"]));
    }
}
