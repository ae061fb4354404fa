//! `litz demo`: a receiver and a sender on this machine, and unlike emulated links between them: each alone, then all
//! together, with one of them cut on the way.
//!
//! ```text
//!   litz send ──▶ relay: one emulated link a path ──▶ litz recv        all on loopback, three processes
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`links`] | the links |
//! | [`transfer`] | one transfer over some of them |
//! | [`cut`] | when one of them is cut, and for how long |
//! | [`child`] | the two processes, and what they say |
//! | [`files`] | what is sent, and whether it arrived |
//! | [`machine`] | how busy the processors are |
//! | [`show`] | progress |
//! | [`report`] | the result |

mod child;
mod cut;
mod files;
mod links;
mod machine;
mod report;
mod show;
mod transfer;

use std::process::ExitCode;

use net::MonotonicClock;
use serde_json::Value;
use units::Duration;

use super::args::DemoOptions;
use super::{exit, signals};
use cut::Cut;
use links::DemoLink;
use report::Report;
use show::Show;
use transfer::{Outcome, Stage};

pub(crate) use links::LINKS;

/// A link alone gets what it carries in this time, so that its start does not count for much.
const ALONE_SPAN: Duration = Duration::from_millis(1500);

/// All links together get what they carry in this time, unless chosen otherwise.
const TOGETHER_SPAN: Duration = Duration::from_millis(4500);

pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    match demonstrate(options) {
        Ok(report) => {
            report.print(options.json);
            ExitCode::from(if report.files.is_same { exit::DONE } else { exit::INCOMPLETE })
        }
        Err(Failure::Told(message)) => exit::fail(options.json, exit::FAILED, &message),
        Err(Failure::Interrupted) => exit::fail(options.json, exit::INTERRUPTED, "interrupted"),
    }
}

/// Why there is nothing to report.
#[derive(Debug)]
enum Failure {
    /// In words for the user.
    Told(String),
    /// The user does not want to wait.
    Interrupted,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Told(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::Told(message.to_owned())
    }
}

/// Runs all transfers. Whatever way it ends, the processes and the files are gone.
fn demonstrate(options: &DemoOptions) -> Result<Report, Failure> {
    let links = DemoLink::parse_all(&options.links)?;
    let bytes = options.size.map_or_else(|| links::sum(&links).bytes_in(TOGETHER_SPAN), |size| size.as_bytes());
    if bytes == 0 {
        return Err("nothing travels in a file of no bytes: --size needs some".into());
    }
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle interrupts: {error}"))?;
    let folder = tempfile::Builder::new()
        .prefix("litz-demo-")
        .tempdir()
        .map_err(|error| format!("cannot prepare the demo in {}: {error}", std::env::temp_dir().display()))?;
    let show = Show::new(options.json);
    show.say("litz demo: one encrypted connection over several emulated links at once\n");
    let stage = Stage {
        folder: folder.path(),
        seed: options.seed,
        clock: MonotonicClock::start(),
        cancel: &cancel,
        show: &show,
    };
    let alone = each_alone(&stage, &links, bytes)?;
    let has_cut = !options.no_cut && !options.cut_for.is_zero();
    let cut = has_cut.then(|| Cut::new(links::fastest(&links), options.cut_for));
    let (together, files) = stage.transfer("all together", &links, bytes, cut)?;
    show.say("  comparing the files\n");
    let files = files::compare(&files.sent, &files.received)?;
    Ok(Report { seed: options.seed, links, alone, together, files })
}

/// What each link carries by itself.
fn each_alone(stage: &Stage<'_>, links: &[DemoLink], bytes_max: u64) -> Result<Vec<Outcome>, Failure> {
    let alone = links.iter().map(|link| {
        let bytes = link.rate.bytes_in(ALONE_SPAN).clamp(1, bytes_max);
        let (outcome, _files) =
            stage.transfer(&format!("{} alone", link.name), std::slice::from_ref(link), bytes, None)?;
        Ok(outcome)
    });
    alone.collect()
}

/// The number under `key`, zero if there is none.
fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or(0)
}
