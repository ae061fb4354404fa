//! The room that each sender has left in its folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use transfer::Room;

/// What running transfers may still store, by folder.
#[derive(Default)]
pub(super) struct Rooms(Mutex<BTreeMap<PathBuf, Arc<Slot>>>);

/// The room in one folder, once its files are counted. Its own lock is held while they are: a large
/// folder does not hold up the other senders.
type Slot = Mutex<Option<Room>>;

impl Rooms {
    /// What is left of `quota` bytes in `folder`. Transfers into it that run at the same time share it;
    /// when none does, its files are counted again.
    ///
    /// # Errors
    /// If the files in the folder cannot be counted, with what to do.
    pub(super) fn take(&self, folder: &Path, quota: u64) -> Result<Room, String> {
        let slot = Arc::clone(self.slots().entry(folder.to_owned()).or_default());
        let mut slot = lock(&slot);
        if let Some(room) = slot.as_ref().filter(|room| room.is_shared()) {
            return Ok(room.clone());
        }
        let room = Room::new(quota.saturating_sub(bytes_below(folder)?));
        *slot = Some(room.clone());
        Ok(room)
    }

    /// The slots, without those that no transfer uses.
    fn slots(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Slot>>> {
        let mut slots = lock(&self.0);
        // Only here a slot gets another owner, so one without is not about to be filled.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || lock(slot).as_ref().is_some_and(Room::is_shared));
        slots
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lengths of all files below `folder`, without following links. A file with several names counts
/// for each.
fn bytes_below(folder: &Path) -> Result<u64, String> {
    let (mut bytes, mut waiting) = (0_u64, vec![folder.to_owned()]);
    while let Some(directory) = waiting.pop() {
        let listing = match std::fs::read_dir(&directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(format!(
                    "cannot count the files in {} for the quota: {error}. Make the folder readable for the user of \
                     the receiver",
                    directory.display()
                ));
            }
        };
        for entry in listing {
            // One that another transfer has just moved counts under its new name, or not at all.
            let Ok(metadata) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) else { continue };
            match metadata {
                (path, metadata) if metadata.is_dir() => waiting.push(path),
                (_, metadata) if metadata.is_file() => bytes = bytes.saturating_add(metadata.len()),
                _ => {}
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_the_files_leave_and_shared_by_running_transfers() {
        let folder = tempfile::tempdir().unwrap();
        let rooms = Rooms::default();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/file"), [0; 300]).unwrap();
        std::fs::write(folder.path().join("file.litz-part"), [0; 100]).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
        let first = rooms.take(folder.path(), 1000).unwrap();
        assert_eq!(first.left(), 600);
        // While a transfer runs, its own files are not counted twice.
        std::fs::write(folder.path().join("more"), [0; 50]).unwrap();
        assert_eq!(rooms.take(folder.path(), 1000).unwrap().left(), 600);
        drop(first);
        assert_eq!(rooms.take(folder.path(), 1000).unwrap().left(), 550);
        assert_eq!(rooms.take(folder.path(), 300).unwrap().left(), 0);
        assert_eq!(rooms.take(Path::new("/nonexistent"), 5).unwrap().left(), 5);
        // Slots of ended transfers do not pile up.
        assert_eq!(rooms.slots().len(), 0);
    }
}
