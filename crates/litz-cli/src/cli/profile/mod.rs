//! `litz profile`: measures where the time of a packet goes, and how much more processors could
//! gain.

mod options;
mod table;
mod tcp_table;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use transfer::CancelToken;

use super::{exit, out, signals};
use crate::profile::{self, Failure};

use options::OtherProfile;
pub(crate) use options::{HELP, ProfileOptions};

pub(crate) fn run(options: &ProfileOptions) -> ExitCode {
    match &options.other {
        None => {
            let steps = |settings: &profile::Settings| settings.steps();
            measure(options.json, options.settings(), steps, profile::measure, table::render)
        }
        Some(OtherProfile::Tcp(options)) => {
            let steps = |settings: &profile::TcpSettings| settings.steps();
            measure(options.json, options.settings(), steps, profile::measure_tcp, tcp_table::render)
        }
    }
}

/// Measures, and prints the report.
fn measure<S, R: Serialize>(
    json: bool,
    settings: Result<S, String>,
    steps: impl FnOnce(&S) -> usize,
    measure: impl FnOnce(&S, &CancelToken, &dyn Fn(&str)) -> Result<R, Failure>,
    render: impl FnOnce(&R) -> String,
) -> ExitCode {
    let fail = |status, message: &str| exit::fail(json, status, message);
    let settings = match settings {
        Ok(settings) => settings,
        Err(message) => return fail(exit::FAILED, &message),
    };
    let cancel = match signals::cancel_token() {
        Ok(cancel) => cancel,
        Err(error) => return fail(exit::FAILED, &format!("cannot handle interrupts: {error}")),
    };
    let bar = bar(steps(&settings), json);
    let measured = measure(&settings, &cancel, &|step| {
        bar.set_message(step.to_owned());
        bar.inc(1);
    });
    bar.finish_and_clear();
    match measured {
        Ok(report) if json => print_json(&report),
        Ok(report) => print(&render(&report)),
        Err(Failure::Interrupted) => fail(exit::INTERRUPTED, "interrupted; no result was written"),
        Err(Failure::Error(message)) => fail(exit::FAILED, &message),
    }
}

fn print(text: &str) -> ExitCode {
    out::print(text);
    ExitCode::from(exit::DONE)
}

fn print_json(report: &impl Serialize) -> ExitCode {
    match serde_json::to_string(report) {
        Ok(line) => print(&format!("{line}\n")),
        Err(error) => exit::fail(true, exit::FAILED, &format!("cannot write the result as JSON: {error}")),
    }
}

/// A progress bar on standard error, hidden with `--json`.
pub(super) fn bar(steps: usize, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("measuring [{bar:40}] {pos} of {len}  {msg}") {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}
