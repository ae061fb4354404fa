//! Files that change while they are sent, and files of which the file system does not know the length.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::AtomicBool;

use super::*;
use crate::manifest::EntryKind;

/// Interference of a program with a file being sent.
type Interference = fn(&Path);

/// Returns the result for the only file, with one call of `interfere` when half of it was sent.
fn send_while(interfere: Interference) -> (Fixture, Outcome) {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 3_000_000);
    let source = Source::scan(std::slice::from_ref(&path), &CancelToken::new()).unwrap();
    let has_acted = AtomicBool::new(false);
    let events = |event: TransferEvent<'_>| {
        let is_half = matches!(event, TransferEvent::Progress { bytes_done, .. } if bytes_done > 1_500_000);
        if is_half && !has_acted.swap(true, Ordering::SeqCst) {
            interfere(&path);
        }
    };
    let outcome = fixture.transfer_observed(&source, |_| {}, &Watch(&events));
    assert!(has_acted.load(Ordering::SeqCst), "the file was sent before it could be changed");
    (fixture, outcome)
}

struct Watch<F>(F);

impl<F: Fn(TransferEvent<'_>) + Sync> Events for Watch<&F> {
    fn event(&self, event: TransferEvent<'_>) {
        (self.0)(event);
    }
}

fn write_at_both_ends(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"one", 0).unwrap();
    file.write_all_at(b"two", 2_999_000).unwrap();
}

#[test]
fn a_mixture_of_two_versions_never_arrives() {
    let interferences: [(&str, Interference); 3] = [
        ("a write", write_at_both_ends),
        ("a write, and the time set back", |path| {
            let before = fs::metadata(path).unwrap().modified().unwrap();
            write_at_both_ends(path);
            fs::File::open(path).unwrap().set_modified(before).unwrap();
        }),
        ("a write, and the length and the time set back", |path| {
            let before = fs::metadata(path).unwrap().modified().unwrap();
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(0).unwrap();
            file.set_len(3_000_000).unwrap();
            file.set_modified(before).unwrap();
        }),
    ];
    for (what, interfere) in interferences {
        let (fixture, outcome) = send_while(interfere);
        assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "source_changed".into())]), "{what}");
        assert!(names(&fixture.top.path().join("in")).is_empty(), "{what}");
    }
}

#[test]
fn a_file_of_which_only_the_status_changes_arrives() {
    let interferences: [(&str, Interference); 3] = [
        ("another mode", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap()),
        ("another name", |path| fs::hard_link(path, path.with_extension("link")).unwrap()),
        ("another file under its name", |path| {
            let other = path.with_extension("new");
            fs::write(&other, "another file").unwrap();
            fs::rename(other, path).unwrap();
        }),
    ];
    for (what, interfere) in interferences {
        let (fixture, outcome) = send_while(interfere);
        outcome.complete();
        assert_eq!(fs::read(fixture.target("file")).unwrap(), random_bytes(1, 3_000_000), "{what}");
    }
}

/// Ends the writer even if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Limit on sending a file that is written all the time. Mostly the first time fails.
const VERSIONS_MAX: usize = 1000;

#[test]
fn a_small_file_that_is_written_all_the_time_arrives_in_one_version_or_not_at_all() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 200_000);
    let is_over = AtomicBool::new(false);
    let (begun, has_begun) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let _over = EndOnDrop(&is_over);
        scope.spawn(|| {
            let begun = begun;
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            for version in 0.. {
                // Written in halves, with the previous time.
                let bytes = vec![version as u8; 100_000];
                file.write_all_at(&bytes, 0).unwrap();
                file.write_all_at(&bytes, 100_000).unwrap();
                file.set_modified(time).unwrap();
                // The first version replaces the fixture's file.
                let _told = begun.try_send(());
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        has_begun.recv().expect("it writes");
        let (mut failed, mut sent) = (0, 0);
        while failed == 0 || sent < 5 {
            sent += 1;
            assert!(sent < VERSIONS_MAX, "no change of a file was noticed");
            let outcome = fixture.transfer(std::slice::from_ref(&path));
            let Ok(found) = fs::read(fixture.target("file")) else {
                assert_eq!(outcome.failures().len(), 1);
                failed += 1;
                continue;
            };
            assert!(found.iter().all(|byte| *byte == found[0]), "a mixture of two versions");
            fs::remove_file(fixture.target("file")).unwrap();
        }
    });
}

/// Files of this host with a wrong reported length: 0 and one page.
const MADE_UP: [&str; 3] = ["/proc/self/limits", "/proc/version", "/sys/kernel/uevent_seqnum"];

#[test]
fn files_are_sent_to_their_end_whatever_length_their_file_system_states() {
    for path in MADE_UP.map(Path::new).into_iter().filter(|path| path.exists()) {
        let fixture = Fixture::new();
        let content = fs::read(path).unwrap();
        assert_ne!(fs::metadata(path).unwrap().len(), content.len() as u64, "{}", path.display());
        let outcome = fixture.transfer(&[path.to_owned()]);
        outcome.complete();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(fs::read(fixture.target(name)).unwrap(), content, "{}", path.display());
    }
}

/// The file exceeds the length that a list holds: it is read when it is listed and when it is sent.
#[test]
fn a_long_file_whose_stated_length_is_wrong_is_sent_to_its_end() {
    let path = Path::new("/proc/kallsyms");
    let Ok(content) = fs::read(path) else { return };
    if content.len() < 2 << 20 {
        return;
    }
    let mut fixture = Fixture::new();
    fixture.send = SendOptions::default().with_threads(1);
    fixture.transfer(&[path.to_owned()]).complete();
    assert!(fs::read(fixture.target("kallsyms")).unwrap() == content);
}

#[test]
fn a_list_tells_the_length_that_was_read() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    let source = Source::scan(&["/proc/version".into(), empty.path().to_owned()], &CancelToken::new()).unwrap();
    let size = fs::read("/proc/version").unwrap().len() as u64;
    assert_eq!(source.entries()[0].kind, EntryKind::File { size });
    assert_eq!(source.entries()[1].kind, EntryKind::File { size: 0 });
}
