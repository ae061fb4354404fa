use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;

fn journal(folder: &tempfile::TempDir) -> DirectoryJournal {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    DirectoryJournal::new(Arc::new(rustix::fs::open(folder.path(), flags, Mode::empty()).unwrap())).unwrap()
}

fn path(text: &str) -> RelativePath {
    RelativePath::from_components(text.split('/').map(str::as_bytes)).unwrap()
}

/// Returns the directories that a later attempt with this list takes over.
fn take_over(journal: &mut DirectoryJournal, listed: &[&str]) -> Known {
    journal.take_over(&listed.iter().map(|path| path.as_bytes()).collect(), Duration::ZERO)
}

fn file(folder: &tempfile::TempDir, number: usize) -> PathBuf {
    folder.path().join(names().nth(number).unwrap())
}

fn count(folder: &tempfile::TempDir) -> usize {
    folder.path().read_dir().unwrap().count()
}

#[test]
fn directories_are_known_until_their_transfer_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = journal(&folder);
    assert!(take_over(&mut first, &["a"]).is_empty());
    assert_eq!(count(&folder), 0, "nothing is made for nothing");
    first.intend(&path("a")).unwrap();
    first.made(&path("a"), (1, 2)).unwrap();
    first.intend(&path("a/b")).unwrap();
    drop(first);
    let known: Known = [(b"a".to_vec(), Some((1, 2))), (b"a/b".to_vec(), None)].into();
    assert!(take_over(&mut journal(&folder), &["c"]).is_empty(), "it is for other directories");
    let mut second = journal(&folder);
    assert_eq!(take_over(&mut second, &["a"]), known);
    second.intend(&path("d")).unwrap();
    drop(second);
    let mut third = journal(&folder);
    assert_eq!(take_over(&mut third, &["a"]).len(), 3);
    third.settle([path("a"), path("a/b")].iter());
    let mut fourth = journal(&folder);
    assert_eq!(take_over(&mut fourth, &["a", "d"]), [(b"d".to_vec(), None)].into());
    fourth.settle([path("d")].iter());
    assert_eq!(count(&folder), 0);
}

#[test]
fn directories_of_a_running_transfer_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (journal(&folder), journal(&folder));
    first.intend(&path("a")).unwrap();
    first.made(&path("a"), (1, 2)).unwrap();
    assert!(take_over(&mut second, &["a"]).is_empty());
    second.intend(&path("a/b")).unwrap();
    drop((first, second));
    // The journals of two attempts become one.
    let mut third = journal(&folder);
    assert_eq!(take_over(&mut third, &["a", "a/b"]).len(), 2);
    assert_eq!(count(&folder), 1);
    drop(third);
    let mut fourth = journal(&folder);
    assert_eq!(take_over(&mut fourth, &["a"]).len(), 2);
    fourth.settle([path("a"), path("a/b")].iter());
    assert_eq!(count(&folder), 0);
}

#[test]
fn an_attempt_that_is_about_to_end_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = journal(&folder);
    first.intend(&path("a")).unwrap();
    std::thread::scope(|scope| {
        let later = scope.spawn(|| {
            let listed = [b"a".as_slice()].into();
            journal(&folder).take_over(&listed, Duration::from_secs(60)).len()
        });
        drop(first);
        assert_eq!(later.join().unwrap(), 1);
    });
}

#[test]
fn a_device_that_has_another_number_after_a_restart_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut stat = rustix::fs::stat(folder.path()).unwrap();
    let before = journal(&folder);
    let mut after = journal(&folder);
    let same = before.identity(&stat);
    (after.root_device, stat.st_dev) = (after.root_device + 77, stat.st_dev + 77);
    assert_eq!(after.identity(&stat), same);
    stat.st_dev += 1;
    assert_ne!(after.identity(&stat), same, "another one below it");
}

#[test]
fn a_file_that_another_user_may_have_written_is_left_alone_and_not_waited_for() {
    type Spoil<'a> = &'a dyn Fn(&PathBuf);
    let mode = |path: &PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let give_away = |path: &PathBuf| std::os::unix::fs::chown(path, Some(65_534), None).unwrap();
    let link = |path: &PathBuf| fs::hard_link(path, path.with_extension("other")).unwrap();
    let redirect = |path: &PathBuf| {
        fs::rename(path, path.with_extension("other")).unwrap();
        symlink(path.with_extension("other"), path).unwrap();
    };
    let (all, group) = (|path: &PathBuf| mode(path, 0o666), |path: &PathBuf| mode(path, 0o620));
    let mut spoils: Vec<Spoil<'_>> = vec![&all, &group, &link, &redirect];
    if rustix::process::geteuid().is_root() {
        spoils.push(&give_away);
    }
    for (index, spoil) in spoils.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let mut forged = journal(&folder);
        forged.intend(&path("a")).unwrap();
        drop(forged);
        spoil(&file(&folder, 0));
        // Another user may hold it this way.
        let held = File::open(file(&folder, 0)).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let before = fs::read(file(&folder, 0)).unwrap();
        let mut later = journal(&folder);
        assert!(take_over(&mut later, &["a"]).is_empty(), "{index}");
        later.intend(&path("b")).unwrap();
        assert_eq!(fs::read(file(&folder, 0)).unwrap(), before, "{index}");
        assert!(file(&folder, 1).exists(), "{index}");
        later.settle([path("b")].iter());
        assert!(!file(&folder, 1).exists(), "{index}");
    }
}

#[test]
fn a_transfer_goes_on_if_there_can_be_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    names().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
    let mut journal = journal(&folder);
    assert!(take_over(&mut journal, &["a"]).is_empty());
    journal.intend(&path("a")).unwrap();
    journal.made(&path("a"), (1, 2)).unwrap();
    journal.settle([path("a")].iter());
}

#[test]
fn abandoned_journals_are_used_again_when_there_are_many() {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..2 * JOURNALS_MAX {
        journal(&folder).intend(&path(&format!("d{index}"))).unwrap();
    }
    assert_eq!(count(&folder), JOURNALS_MAX as usize);
    let last = format!("d{}", 2 * JOURNALS_MAX - 1);
    assert_eq!(take_over(&mut journal(&folder), &[&last]).len(), 1);
    // A killed process leaves it without a record.
    names().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
    take_over(&mut journal(&folder), &["a"]);
    assert_eq!(count(&folder), 0);
}

#[test]
fn records_after_a_torn_one_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = journal(&folder);
    for name in ["a", "b", "c"] {
        first.intend(&path(name)).unwrap();
    }
    drop(first);
    let whole = fs::read(file(&folder, 0)).unwrap();
    for len in 0..whole.len() {
        fs::write(file(&folder, 0), &whole[..len]).unwrap();
        let mut again = journal(&folder);
        let before = take_over(&mut again, &["a"]).len();
        again.intend(&path("d")).unwrap();
        drop(again);
        let after = take_over(&mut journal(&folder), &["d"]);
        assert!(after.contains_key(b"d".as_slice()), "{len}");
        assert_eq!(after.len(), before + 1, "{len}");
    }
}
