//! `litz bench`: benchmarks on this machine. `speedup` is the only one so far.

mod options;
mod table;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{exit, host, out, signals};
use crate::speedup::{self, Failure, Settings, SpeedupReport};
use options::{Command, SpeedupOptions};

pub(crate) use options::{BenchOptions, HELP};

pub(crate) fn run(options: &BenchOptions) -> ExitCode {
    match &options.command {
        Command::Speedup(options) => match run_speedup(options) {
            Ok(()) => ExitCode::from(exit::DONE),
            Err((status, message)) => exit::fail(options.json, status, &message),
        },
    }
}

/// The exit status and the message of an error.
type Fault = (u8, String);

fn run_speedup(options: &SpeedupOptions) -> Result<(), Fault> {
    let failed = |message: String| (exit::FAILED, message);
    let settings = options.settings(&net::processors::allowed()).map_err(failed)?;
    // Checked before the measurement, which takes minutes.
    options.check_files().map_err(failed)?;
    let cancel = signals::cancel_token().map_err(|error| failed(format!("cannot handle interrupts: {error}")))?;
    let bar = bar(&settings, options.json);
    let measured = speedup::measure(&settings, &cancel, &|step| {
        bar.set_message(step.to_owned());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let mut report = measured.map_err(|failure| match failure {
        Failure::Interrupted => (exit::INTERRUPTED, "interrupted; no result was written".to_owned()),
        Failure::Error(message) => failed(message),
    })?;
    if let Some(folder) = &options.out {
        let now_unix = host::now_unix();
        report.date_unix = Some(now_unix);
        write(&folder.join(format!("speedup-{now_unix}.json")), &format!("{}\n", json(&report)?))?;
    }
    if let Some(file) = &options.plot {
        write(file, &speedup::plot(&report))?;
    }
    if options.json {
        out::line(&json(&report)?);
    } else {
        out::print(&table::render(&report));
    }
    Ok(())
}

fn json(report: &SpeedupReport) -> Result<String, Fault> {
    serde_json::to_string(report).map_err(|error| (exit::FAILED, format!("cannot write the result as JSON: {error}")))
}

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(path, text).map_err(|error| (exit::FAILED, format!("cannot write {}: {error}", path.display())))
}

/// A progress bar on standard error, hidden with `--json`.
fn bar(settings: &Settings, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    out::note(&format!(
        "takes a little more than {}, in runs of {}",
        settings.duration(),
        settings.warm_up + settings.time
    ));
    let bar = ProgressBar::with_draw_target(Some(settings.steps() as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("measuring [{bar:40}] {pos} of {len}  {msg}") {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}
