//! The list of `--allow`, read again when its file changes.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litz::identity::{AllowList, PublicKey};
use transfer::{Authoriser, Proof, ProofContext, Refusal};

use super::file_watch::{FileWatch, Stamp};

/// The mode bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// Why a list that was read before cannot be read any more, most often.
const IN_SANDBOX: &str = " (if the file was replaced: the sandbox lets this server read the new one only in a folder \
                          without private files; start it again, or give the list a folder of its own)";

/// The keys that may send now.
pub(crate) struct AllowedKeys {
    state: Mutex<State>,
}

/// How a file lists keys.
pub(crate) type ReadKeys = Arc<dyn Fn(&Path) -> Result<AllowList, String> + Send + Sync>;

struct State {
    /// The file with the list, if there is one.
    source: Option<(FileWatch, ReadKeys)>,
    /// The last good list.
    list: AllowList,
    /// The change that was warned of last. A file that changed recently is read several times.
    warned_of: Option<Option<Stamp>>,
}

/// What a look at the file found.
#[derive(Default)]
pub(crate) struct Refreshed {
    /// The list has other keys than before.
    pub(crate) is_changed: bool,
    /// For the user, once for each change of the file.
    pub(crate) warning: Option<String>,
}

impl AllowedKeys {
    /// Reads the list at `path`.
    ///
    /// # Errors
    /// A message for the user, also if others may write the file.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        Self::load_with(path, Arc::new(read))
    }

    /// As [`load`](Self::load), from a file that lists keys in another way.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn load_with(path: &Path, read: ReadKeys) -> Result<Self, String> {
        let mut watch = FileWatch::new(path.to_owned());
        // The first look comes before the reading, so that a later change is not missed.
        watch.take_change();
        let list = read(path)?;
        Ok(Self { state: Mutex::new(State { source: Some((watch, read)), list, warned_of: None }) })
    }

    /// One key, for as long as the command runs.
    pub(crate) fn only(key: PublicKey) -> Self {
        let list = AllowList::of([key.fingerprint()]);
        Self { state: Mutex::new(State { source: None, list, warned_of: None }) }
    }

    /// A warning if the list has no keys.
    pub(crate) fn emptiness_note(&self) -> Option<String> {
        let state = self.lock();
        let (watch, _) = state.source.as_ref()?;
        state.list.is_empty().then(|| emptiness_note(watch.path()))
    }

    /// Reads the list again if the file may have changed. If it cannot be read, is invalid, or
    /// others may write it, the last good list stays.
    pub(crate) fn refresh(&self) -> Refreshed {
        let mut state = self.lock();
        let state = &mut *state;
        let Some((watch, read)) = &mut state.source else { return Refreshed::default() };
        if !watch.take_change() {
            return Refreshed::default();
        }
        let stamp = watch.stamp();
        let mut refreshed = Refreshed::default();
        let warning = match read(watch.path()) {
            Ok(list) => {
                refreshed.is_changed = list != state.list;
                state.list = list;
                (state.list.is_empty() && refreshed.is_changed).then(|| emptiness_note(watch.path()))
            }
            Err(error) => Some(format!("{error}; the keys that were read before stay in force")),
        };
        if warning.is_none() {
            state.warned_of = None;
        } else if state.warned_of.as_ref() != Some(&stamp) {
            state.warned_of = Some(stamp);
            refreshed.warning = warning;
        }
        refreshed
    }

    /// The number of keys.
    pub(crate) fn count(&self) -> usize {
        self.lock().list.len()
    }

    pub(crate) fn allows(&self, key: &PublicKey) -> bool {
        self.lock().list.allows(key)
    }

    /// The label of a key that is listed.
    pub(crate) fn label(&self, key: &PublicKey) -> Option<String> {
        self.lock().list.label(key).map(str::to_owned)
    }

    /// The label of a key, or else its fingerprint, for the user's terminal.
    pub(crate) fn name(&self, key: &PublicKey) -> String {
        let label = self.label(key).map(|label| label.replace(char::is_control, "\u{fffd}"));
        label.unwrap_or_else(|| key.fingerprint().to_string())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides by the list as it is at the sender's Hello.
pub(crate) struct ListedAuthoriser(pub(crate) Arc<AllowedKeys>);

impl Authoriser for ListedAuthoriser {
    fn authorise(&mut self, context: &ProofContext, _proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        if self.0.allows(&context.sender()) { Ok(None) } else { Err(Refusal::KeyNotAllowed) }
    }

    fn complete(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn emptiness_note(path: &Path) -> String {
    format!("{} lists no keys: every sender is refused until a key is added", path.display())
}

fn read(path: &Path) -> Result<AllowList, String> {
    let shown = path.display();
    let metadata = std::fs::metadata(path).map_err(|error| format!("cannot read the allowed keys {shown}: {error}"))?;
    // Opening a pipe would wait for its other end.
    if !metadata.is_file() {
        return Err(format!("cannot read the allowed keys {shown}: it is not a regular file"));
    }
    if metadata.permissions().mode() & OTHERS_WRITE != 0 {
        return Err(format!(
            "other users may write {shown} and so add keys: run `chmod go-w {shown}`, and check the keys in it"
        ));
    }
    AllowList::load(path).map_err(|error| {
        let is_refused = std::fs::File::open(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        let advice = if is_refused { IN_SANDBOX } else { "" };
        format!("{error}{advice}")
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("allowed")
        }

        /// Replaces the list.
        fn list(&self, keys: &[u8], mode: u32) {
            let lines: String = keys.iter().map(|key| format!("{}\n", key_of(*key))).collect();
            std::fs::write(self.path(), lines).unwrap();
            std::fs::set_permissions(self.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    fn key_of(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32])
    }

    #[test]
    fn an_edited_list_is_in_force_at_the_next_look() {
        let fixture = Fixture::new();
        fixture.list(&[1, 2], 0o644);
        let keys = AllowedKeys::load(&fixture.path()).unwrap();
        assert!(keys.allows(&key_of(1)) && keys.emptiness_note().is_none());
        assert!(!keys.refresh().is_changed, "the same keys");
        fixture.list(&[2, 3], 0o644);
        assert!(keys.refresh().is_changed);
        assert_eq!([1, 2, 3].map(|key| keys.allows(&key_of(key))), [false, true, true]);
    }

    #[test]
    fn a_list_that_cannot_be_used_leaves_the_last_good_one_and_warns_once_per_change() {
        let fixture = Fixture::new();
        fixture.list(&[1], 0o600);
        let keys = AllowedKeys::load(&fixture.path()).unwrap();
        let refuses = |words: &str| {
            let refreshed = keys.refresh();
            let warning = refreshed.warning.expect(words);
            assert!(warning.contains(words) && warning.contains("stay in force"), "{warning}");
            assert!(keys.refresh().warning.is_none(), "once");
            assert!(!refreshed.is_changed && keys.allows(&key_of(1)));
        };
        std::fs::write(fixture.path(), "no key\n").unwrap();
        refuses("not a key");
        fixture.list(&[1, 2], 0o664);
        refuses("other users may write");
        assert!(!keys.allows(&key_of(2)), "others may have added it");
        std::fs::remove_file(fixture.path()).unwrap();
        refuses("cannot read");
        fixture.list(&[], 0o600);
        let refreshed = keys.refresh();
        assert!(refreshed.is_changed && refreshed.warning.unwrap().contains("lists no keys"));
        assert!(!keys.allows(&key_of(1)));
    }

    #[test]
    fn a_list_that_others_may_write_or_that_is_a_pipe_is_refused_at_the_start() {
        let fixture = Fixture::new();
        for mode in [0o620, 0o602] {
            fixture.list(&[1], mode);
            let error = AllowedKeys::load(&fixture.path()).err().unwrap();
            assert!(error.contains("chmod go-w"), "{error}");
        }
        fixture.list(&[], 0o600);
        assert!(AllowedKeys::load(&fixture.path()).unwrap().emptiness_note().is_some());
        let pipe = fixture.folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(AllowedKeys::load(&pipe).err().unwrap().contains("not a regular file"));
    }
}
