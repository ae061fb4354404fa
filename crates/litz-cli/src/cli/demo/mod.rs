//! `litz demo`: transfers a file on this machine over different emulated links, first over each
//! link alone, then over all together while one of them is cut.
//!
//! ```text
//!   litz send ──▶ relay: one emulated link per path ──▶ litz recv      all on loopback, three processes
//! ```
//! | module | contents |
//! |---|---|
//! | [`options`] | the arguments |
//! | [`links`] | the emulated links |
//! | [`capacity`] | the choice of links that this machine carries with ease |
//! | [`transfer`] | one transfer over some of the links |
//! | [`cut`] | the outage of one link |
//! | [`child`] | the sending and receiving processes, and their events |
//! | [`failure`] | why there is no report |
//! | [`files`] | creating and comparing the files |
//! | [`machine`] | the load of the processors |
//! | [`show`] | the progress display |
//! | [`report`] | the result |

mod capacity;
mod child;
mod cut;
mod failure;
mod files;
mod links;
mod machine;
mod options;
mod report;
mod show;
mod transfer;

use std::process::ExitCode;

use net::MonotonicClock;
use units::Duration;

use self::transfer::{Outcome, Setup};
use super::{exit, signals};
use cut::Cut;
use failure::Failure;
use links::DemoLink;
use report::DemoReport;
use show::Show;

pub(crate) use options::DemoOptions;

/// The file for a single link takes at least this long.
const ALONE_SPAN_MIN: Duration = Duration::from_secs(2);

/// The file for a single link takes at least this many round trips. About five of them pass until
/// the sender has found the rate of the link.
const ALONE_ROUND_TRIPS: u64 = 50;

/// The default file for all links together takes this long.
const TOGETHER_SPAN: Duration = Duration::from_secs(10);

/// The end of the help text.
pub(crate) const HELP: &str = "\
Exit status:
  0    the files have arrived as they were sent
  1    a received file differs from the one that was sent
  2    an error: bad arguments, a link that cannot be emulated, a transfer that failed
  130  interrupted";

pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    match demonstrate(options) {
        Ok(report) => {
            report.print(options.json);
            ExitCode::from(if report.files.is_same { exit::DONE } else { exit::INCOMPLETE })
        }
        Err(Failure::Error(message)) => exit::fail(options.json, exit::FAILED, &message),
        Err(Failure::Interrupted) => exit::fail(options.json, exit::INTERRUPTED, "interrupted"),
    }
}

/// Runs all transfers. The processes and the files are removed however it ends.
fn demonstrate(options: &DemoOptions) -> Result<DemoReport, Failure> {
    let given = (!options.links.is_empty()).then(|| DemoLink::parse_all(&options.links)).transpose()?;
    if options.size.is_some_and(|size| size.as_bytes() == 0) {
        return Err("--size must be greater than zero".into());
    }
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle interrupts: {error}"))?;
    let folder = tempfile::Builder::new()
        .prefix("litz-demo-")
        .tempdir()
        .map_err(|error| format!("cannot create a temporary folder in {}: {error}", std::env::temp_dir().display()))?;
    let show = Show::new(options.json);
    show.say("litz demo: one encrypted connection over several emulated links at once\n");
    let setup = Setup {
        folder: folder.path(),
        seed: options.seed,
        clock: MonotonicClock::start(),
        cancel: &cancel,
        show: &show,
    };
    let (links, carried) = match given {
        Some(links) => (links, None),
        None => {
            let chosen = capacity::choose(&setup)?;
            (chosen.links, Some(chosen.carried))
        }
    };
    let bytes = options.size.map_or_else(|| links::sum(&links).bytes_in(TOGETHER_SPAN), |size| size.as_bytes());
    let alone = each_alone(&setup, &links, bytes)?;
    let has_cut = !options.no_cut && !options.cut_for.is_zero();
    let cut = has_cut.then(|| Cut::new(links::fastest(&links), options.cut_for));
    let (together, files) = setup.transfer("all together", &links, bytes, cut)?;
    show.say("  comparing the files\n");
    let files = files::compare(&files.sent, &files.received)?;
    Ok(DemoReport { seed: options.seed, links, carried, alone, together, files })
}

/// Runs a transfer over each link alone.
fn each_alone(setup: &Setup<'_>, links: &[DemoLink], bytes_max: u64) -> Result<Vec<Outcome>, Failure> {
    let alone = links.iter().map(|link| {
        let span = ALONE_SPAN_MIN.max((link.config().delay + link.delay_back()) * ALONE_ROUND_TRIPS);
        let bytes = link.rate.bytes_in(span).clamp(1, bytes_max);
        let (outcome, _files) =
            setup.transfer(&format!("{} alone", link.name), std::slice::from_ref(link), bytes, None)?;
        Ok(outcome)
    });
    alone.collect()
}
