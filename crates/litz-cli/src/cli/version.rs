//! `litz version`: the version of the program and of what it speaks.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::{exit, out, ticket};
use crate::provenance::{PROGRAM, UNKNOWN_COMMIT, VERSION};

/// The version of the multipath extension.
const MULTIPATH: &str = "draft-ietf-quic-multipath-21";

/// The end of the help text.
pub(crate) const HELP: &str = "\
Exit status:
  0    the version was printed";

#[derive(Args, Debug)]
pub(crate) struct VersionOptions {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &VersionOptions) -> ExitCode {
    if options.json {
        out::json(&as_json());
    } else {
        out::line(&format!("litz {VERSION}"));
        out::line(&format!("QUIC versions 1 and 2, multipath {}", MULTIPATH));
        out::line(&format!("file protocol {}; tickets {}", protocols().join(", "), ticket::PREFIX));
        out::line(&format!("forwarding protocol {}; tunnel {}", name(forward::ALPN), name(tunnel::PROTOCOL)));
    }
    ExitCode::from(exit::DONE)
}

fn as_json() -> Value {
    let commit = Some(PROGRAM.litz_commit).filter(|commit| *commit != UNKNOWN_COMMIT);
    json!({
        "event": "version", "version": PROGRAM.litz_version, "commit": commit,
        "quic": [1, 2], "multipath": MULTIPATH, "protocols": protocols(),
        "forward": name(forward::ALPN), "tunnel": name(tunnel::PROTOCOL), "ticket": ticket::PREFIX, "journal": quic::journal::VERSION,
        "tcp_journal": tcp::journal::VERSION,
    })
}

/// A protocol as TLS negotiates it.
fn name(protocol: &[u8]) -> String {
    String::from_utf8_lossy(protocol).into_owned()
}

/// The versions of the file protocol, oldest first.
fn protocols() -> Vec<String> {
    transfer::PROTOCOLS.into_iter().rev().map(name).collect()
}
