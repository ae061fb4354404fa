//! `litz id`: the public key of this host.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{exit, host, out};

/// The end of the help text.
pub(crate) const HELP: &str = "\
Exit status:
  0    the key was printed
  2    an error: the key cannot be read or created";

#[derive(Args, Debug)]
pub(crate) struct IdOptions {
    /// Print the key's fingerprint, which a list of keys accepts as well
    #[arg(long)]
    pub(crate) fingerprint: bool,

    /// Print the key and its fingerprint as one JSON object
    #[arg(long, conflicts_with = "fingerprint")]
    pub(crate) json: bool,

    /// Folder for keys and tickets [default: litz in XDG_STATE_HOME]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

pub(crate) fn run(options: &IdOptions) -> ExitCode {
    let key = match host::open_state(options.state_dir.as_deref()) {
        Ok(state) => state.key.public(),
        Err(message) => return exit::fail(options.json, exit::FAILED, &message),
    };
    let fingerprint = key.fingerprint();
    if options.json {
        out::json(&json!({ "event": "id", "key": key.to_string(), "fingerprint": fingerprint.to_string() }));
    } else if options.fingerprint {
        out::line(&fingerprint.to_string());
    } else {
        out::line(&key.to_string());
    }
    ExitCode::from(exit::DONE)
}
