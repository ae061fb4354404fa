//! The results: as JSON, and as a page of the documents.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::cases::CASES;
use super::run::Role;

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It showed what it should; a remark.
    Passed(String),
    /// What went wrong.
    Failed(String),
    /// The peer cannot do it, and why.
    Unsupported(String),
}

/// One cell of the table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The case.
    pub case: &'static str,
    /// The role of Litz.
    pub role: Role,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// What was found out about one peer.
#[derive(Clone, Debug)]
pub struct PeerResult {
    /// Its name.
    pub name: &'static str,
    /// Its version; or why its program could not be built.
    pub version: Result<String, String>,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// The marks between which the page is made.
const BEGIN: &str = "<!-- made by `make interop-full`: begin -->";
const END: &str = "<!-- made by `make interop-full`: end -->";

/// The results as JSON.
pub fn to_json(peers: &[PeerResult], context: &Value) -> Value {
    let cell = |cell: &Cell| {
        let (outcome, text) = match &cell.outcome {
            Outcome::Passed(remark) => ("passed", remark.as_str()),
            Outcome::Failed(reason) => ("failed", reason.as_str()),
            Outcome::Unsupported(reason) => ("unsupported", reason.as_str()),
        };
        json!({
            "case": cell.case,
            "litz_is": cell.role.name(),
            "outcome": outcome,
            "text": text,
            "seconds": (cell.seconds * 100.0).round() / 100.0,
        })
    };
    let peer = |peer: &PeerResult| {
        json!({
            "peer": peer.name,
            "version": peer.version.as_ref().ok(),
            "build_error": peer.version.as_ref().err(),
            "cells": peer.cells.iter().map(cell).collect::<Vec<_>>(),
        })
    };
    json!({ "context": context, "peers": peers.iter().map(peer).collect::<Vec<_>>() })
}

/// The part of the page between the marks.
fn page(peers: &[PeerResult], context: &Value) -> String {
    let mut notes: Vec<String> = Vec::new();
    let mut note = |text: String| -> String {
        let index = notes.iter().position(|known| *known == text).unwrap_or_else(|| {
            notes.push(text);
            notes.len() - 1
        });
        format!("[{}]", index + 1)
    };
    let mut page = String::new();
    for role in [Role::Client, Role::Server] {
        let title = match role {
            Role::Client => "Litz as client",
            Role::Server => "Litz as server",
        };
        let _ = writeln!(page, "## {title}\n");
        let header = |peer: &PeerResult| match &peer.version {
            Ok(version) => format!("{} {version}", peer.name),
            Err(_) => peer.name.to_owned(),
        };
        let headers: Vec<String> = peers.iter().map(header).collect();
        let _ = writeln!(page, "| case | {} |", headers.join(" | "));
        let _ = writeln!(page, "|---|{}", "---|".repeat(peers.len()));
        for case in CASES {
            let _ = write!(page, "| {} |", case.title);
            for peer in peers {
                let found = peer.cells.iter().find(|cell| cell.case == case.name && cell.role == role);
                let text = match (&peer.version, found.map(|cell| &cell.outcome)) {
                    (Err(reason), _) => {
                        format!("not built {}", note(format!("{} could not be built: {reason}", peer.name)))
                    }
                    (_, None) => "not run".to_owned(),
                    (_, Some(Outcome::Passed(_))) => "pass".to_owned(),
                    (_, Some(Outcome::Failed(reason))) => format!("**fail** {}", note(reason.clone())),
                    (_, Some(Outcome::Unsupported(reason))) => format!("unsupported {}", note(reason.clone())),
                };
                let _ = write!(page, " {text} |");
            }
            page.push('\n');
        }
        page.push('\n');
    }
    for (index, text) in notes.iter().enumerate() {
        let _ = writeln!(page, "{}", wrap(&format!("- [{}] {}.", index + 1, text.replace('\n', " "))));
    }
    let of = |key: &str| context[key].as_str().unwrap_or("unknown").to_owned();
    let _ = write!(page, "\nRun on {} ({}), seed {}.\n", of("date"), of("machine"), context["seed"]);
    page
}

/// Lines of at most 100 characters; those after the first one are indented.
fn wrap(text: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > 100 {
            lines.push(std::mem::replace(&mut line, "  ".to_owned()));
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

/// Writes the tables into the page at `path`, between its marks.
///
/// # Errors
/// If it cannot be read or written, or has no marks.
pub fn write_page(path: &Path, peers: &[PeerResult], context: &Value) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| format!("{} has no begin mark", path.display()))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{} has no end mark", path.display()))?;
    let text = format!("{before}{BEGIN}\n\n{}\n{END}{after}", page(peers, context));
    std::fs::write(path, text).map_err(failed)
}
