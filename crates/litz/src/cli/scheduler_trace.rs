//! `--trace-scheduler FILE` and `litz paths --replay FILE`: every choice of a path, written down and made again.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use litz::TraceSink;
use scheduler::trace::{Difference, replay};

/// A sink that writes to `path`: the first connection with several paths there, later ones to the same name with a number.
///
/// # Errors
/// If the file cannot be made.
pub(crate) fn sink(path: &Path) -> Result<TraceSink, String> {
    File::create(path).map_err(|error| format!("cannot write the trace {}: {error}", path.display()))?;
    let (path, count) = (path.to_owned(), AtomicU32::new(0));
    Ok(TraceSink(Arc::new(move || {
        let path = numbered(&path, count.fetch_add(1, Ordering::Relaxed));
        let mut out = File::create(&path).map(BufWriter::new).map_err(|error| {
            tracing::warn!(path = %path.display(), %error, "the scheduler is not traced");
        });
        Box::new(move |line| {
            // A full disk must not end a transfer: the trace ends instead, and says so.
            if let Ok(file) = &mut out
                && let Err(error) = writeln!(file, "{line}")
            {
                tracing::warn!(%error, "the trace of the scheduler ends here");
                out = Err(());
            }
        })
    })))
}

fn numbered(path: &Path, count: u32) -> PathBuf {
    if count == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{count}"));
    name.into()
}

/// Makes the choices of a trace again; how many there are and how many came out otherwise, in words.
///
/// # Errors
/// If the trace cannot be read, or a choice comes out otherwise.
pub(crate) fn replay_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let outcome = replay(BufReader::new(file)).map_err(|error| format!("{shown}: {error}"))?;
    if outcome.differences_count == 0 {
        return Ok(format!("{} choices by {}, all the same again", outcome.decisions, outcome.strategy));
    }
    let first = outcome.differences.first().map(|Difference { line, .. }| format!(", the first in line {line}"));
    Err(format!(
        "{shown}: {} of {} choices come out otherwise{}",
        outcome.differences_count,
        outcome.decisions,
        first.unwrap_or_default()
    ))
}
