//! The descriptors that this process may use.

use rustix::process::{Resource, getrlimit, setrlimit};
use transfer::OpenFiles;
use transfer::open_files::DESCRIPTORS_PER_FILE;

/// Descriptors for what opens later: sockets that are made again, the ticket store, journals of
/// connections, directories on the way to a file, and the one file that each sender may always have.
const KEPT: usize = 128;

/// More would never be open: 256 files for each of 64 senders.
const FILES_MAX: usize = 1 << 14;

/// Raises the soft limit on descriptors to the hard one, and returns the files that the transfers may
/// have open besides the descriptors that are in use now.
pub(super) fn open_files() -> OpenFiles {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Without the right to do that, the receiver keeps to the limit that there is.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let limit =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let used = std::fs::read_dir("/proc/self/fd").map_or(KEPT, Iterator::count);
    OpenFiles::new(files(limit, used))
}

fn files(limit: usize, used: usize) -> usize {
    (limit.saturating_sub(used).saturating_sub(KEPT) / DESCRIPTORS_PER_FILE).min(FILES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_fit_into_the_limit_with_some_descriptors_left() {
        assert_eq!(files(1024, 40), 285);
        assert_eq!(files(100, 40), 0);
        assert_eq!(files(usize::MAX, 40), FILES_MAX);
    }
}
