//! The files that a receiver uses once it runs.

use std::path::{Path, PathBuf};

use super::sandbox::Places;
use crate::cli::args::RecvOptions;
use crate::cli::host;

/// The files that the receiver uses from now on.
pub(super) fn places(options: &RecvOptions, directory: &Path) -> Result<Places, String> {
    let mut places = Places::default();
    if options.output.is_none() {
        places.writable.push(directory.to_owned());
    }
    places.writable.push(host::state_directory(options.transport.state_dir.as_deref())?);
    // What does not exist yet is created in its parent.
    let recorded = [&options.transport.journal, &options.transport.qlog].into_iter().flatten();
    let recorded = recorded.map(|folder| if folder.is_dir() { folder.clone() } else { Places::folder_of(folder) });
    let key_log = std::env::var_os("SSLKEYLOGFILE").map(PathBuf::from);
    let files = [options.transport.trace_scheduler.as_ref(), key_log.as_ref()].into_iter().flatten();
    let written = recorded.chain(files.map(|file| Places::folder_of(file)));
    places.writable.extend(written.filter(|folder| folder.is_dir()));
    // An editor replaces the list by another file of its name. It may be a link to one elsewhere.
    let list = options.allow.as_deref();
    let named = list.into_iter().map(Path::to_owned).chain(list.and_then(|list| list.canonicalize().ok()));
    places.readable.extend(named.map(|list| Places::folder_of(&list)).filter(|folder| folder.is_dir()));
    Ok(places)
}
