//! A transfer with any number of interruptions ends like an uninterrupted one: with the same files,
//! directories and links, modes, times and holes, whatever the receiver's user, and the same files
//! deleted.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};

use super::disk_faults::on_faulty_disk;
use super::*;
use crate::extent::Extent;

const KEEP: Keep = Keep { modes: true, links: true, hard_links: true, holes: true };

/// Number of interruptions of each tree.
const ATTEMPTS: u32 = 50;

/// Number of trees for each user. `LITZ_TEST_SHARE=100` tries all.
const TREES: usize = 60;

/// Compared properties of one path.
#[derive(PartialEq, Debug)]
struct Found {
    kind: &'static str,
    mode: u32,
    /// Modification time; absent for directories that existed before and keep their times, because
    /// their entries changed.
    modified: Option<(i64, i64)>,
    link: Option<PathBuf>,
    content: Vec<u8>,
    /// Starts and lengths of data extents.
    data: Vec<(u64, u64)>,
    /// First path, in the order of names, of the same file.
    same_as: PathBuf,
}

fn listing(top: &Path, existing: &[&str]) -> BTreeMap<PathBuf, Found> {
    let mut found = BTreeMap::new();
    let mut first_names: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut paths = Vec::new();
    let mut waiting = vec![top.to_owned()];
    // The owner may lack access, so the modes are read first.
    let mut closed = Vec::new();
    while let Some(directory) = waiting.pop() {
        for child in fs::read_dir(&directory).unwrap() {
            let path = child.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if !metadata.is_symlink() {
                fs::set_permissions(&path, fs::Permissions::from_mode(metadata.mode() & 0o777 | 0o700)).unwrap();
                closed.push((path.clone(), metadata.mode() & 0o777));
            }
            if metadata.is_dir() {
                waiting.push(path.clone());
            }
            paths.push((path, metadata));
        }
    }
    paths.sort_by(|a, b| a.0.cmp(&b.0));
    for (path, metadata) in paths {
        let relative = path.strip_prefix(top).unwrap().to_owned();
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => "directory",
            kind if kind.is_symlink() => "link",
            _ => "file",
        };
        let is_existing = metadata.is_dir() && existing.iter().any(|name| relative == Path::new(name));
        let file = metadata.is_file().then(|| fs::File::open(&path).unwrap());
        let same_as = first_names.entry(metadata.ino()).or_insert_with(|| relative.clone()).clone();
        let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(
            relative,
            Found {
                kind,
                mode: metadata.mode() & 0o777,
                modified: (!is_existing).then(|| (metadata.mtime(), metadata.mtime_nsec())),
                link: metadata.is_symlink().then(|| fs::read_link(&path).unwrap()),
                content,
                data: file.map(|file| data_of(&file, metadata.len())).unwrap_or_default(),
                same_as,
            },
        );
    }
    for (path, mode) in closed.into_iter().rev() {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    found
}

fn data_of(file: &fs::File, size: u64) -> Vec<(u64, u64)> {
    let (mut offset, mut data) = (0, Vec::new());
    while offset < size {
        match Extent::at(file, offset) {
            Extent::Hole(len) => offset += len.min(size - offset),
            Extent::Data(len) => {
                let len = len.min(size - offset);
                data.push((offset, len));
                offset += len;
            }
        }
    }
    data
}

/// Creates a tree with everything, and returns the modes to send it with: the sender could not read
/// many of them.
fn grow(fixture: &Fixture, rng: &mut Rng, has_links_out: bool) -> BTreeMap<String, u16> {
    let mut modes = BTreeMap::new();
    let mut directories = vec!["tree".to_owned()];
    for index in 0..rng.between(4, 9) {
        let parent = directories[rng.below(directories.len() as u64) as usize].clone();
        directories.push(format!("{parent}/d{index}"));
    }
    for (index, directory) in directories.iter().enumerate() {
        fs::create_dir_all(fixture.source(directory)).unwrap();
        for file in 0..rng.below(5) {
            let name = format!("{directory}/f{file}");
            let len = match rng.below(6) {
                0 => 0,
                1 => rng.between(300_000, 400_000),
                _ => rng.between(1, 9000),
            };
            fixture.write(&name, rng.below(u64::MAX), len as usize);
            modes.insert(name, random_mode(rng));
        }
        // It leads out of the tree from its root: a sender skips such a link, and then nothing is
        // deleted.
        if index > 0 || has_links_out {
            symlink("../missing", fixture.source(&format!("{directory}/to-parent"))).unwrap();
        }
        if rng.below(3) == 0 {
            let sparse = fs::File::create(fixture.source(&format!("{directory}/sparse"))).unwrap();
            sparse.set_len(700_000).unwrap();
            sparse.write_all_at(&random_bytes(index as u64, 9000), rng.below(80) * 8192).unwrap();
            modes.insert(format!("{directory}/sparse"), 0o640);
        }
    }
    fixture.write("tree/named", 77, 5000);
    fs::hard_link(fixture.source("tree/named"), fixture.source(&format!("{}/again", directories[1]))).unwrap();
    fixture.write("tree/old", 5, 300);
    for directory in directories {
        let old = std::time::UNIX_EPOCH + std::time::Duration::new(rng.between(1, 1_500_000_000), 5);
        fs::File::open(fixture.source(&directory)).unwrap().set_modified(old).unwrap();
        modes.insert(directory, random_mode(rng));
    }
    modes
}

fn random_mode(rng: &mut Rng) -> u16 {
    let usual = [0o755, 0o555, 0o500, 0o644, 0o444, 0o400, 0o111, 0o200, 0o000];
    if rng.below(4) == 0 { rng.below(0o1000) as u16 } else { usual[rng.below(usual.len() as u64) as usize] }
}

/// Creates the receiver's entries before the first attempt.
fn prepare(inbox: &Path, is_overwriting: bool, is_deleting: bool) {
    fs::create_dir_all(inbox.join("tree/d0")).unwrap();
    fs::set_permissions(inbox.join("tree/d0"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(inbox.join("tree/old"), if is_overwriting { vec![1; 9] } else { random_bytes(5, 300) }).unwrap();
    fs::set_permissions(inbox.join("tree/old"), fs::Permissions::from_mode(0o604)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(inbox.join("tree/old")).unwrap().set_modified(old).unwrap();
    if is_deleting {
        fs::create_dir_all(inbox.join("tree/d0/gone/deep")).unwrap();
        fs::write(inbox.join("tree/d0/gone/deep/file"), "unlisted").unwrap();
        for (name, mode) in [("deep", 0o500), ("", 0o000)] {
            fs::set_permissions(inbox.join("tree/d0/gone").join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(inbox.join("tree/gone"), "unlisted").unwrap();
    }
}

/// Adds or removes the sender's files that exist only during the first attempts. The times of
/// directories stay.
fn set_passing_files(fixture: &Fixture, modes: &BTreeMap<String, u16>, is_there: bool) {
    for directory in modes.keys().map(|name| fixture.source(name)).filter(|path| path.is_dir()) {
        let modified = fs::metadata(&directory).unwrap().modified().unwrap();
        let file = directory.join("passing");
        if is_there {
            fs::write(file, "passing").unwrap()
        } else {
            fs::remove_file(file).unwrap()
        }
        fs::File::open(&directory).unwrap().set_modified(modified).unwrap();
    }
}

/// Tries the tree of `seed`; returns the number of interrupted attempts, and of failed files.
fn interrupt(seed: u64) -> (u32, u32) {
    let mut rng = Rng::from_seed(seed);
    let (mut fixture, disk) = on_faulty_disk();
    let (has_existing, is_overwriting) = (rng.below(2) == 0, rng.below(2) == 0);
    let is_deleting = is_overwriting && rng.below(2) == 0;
    fixture.receive.overwrite = is_overwriting;
    fixture.receive.delete = is_deleting.then(Filter::default);
    let modes = grow(&fixture, &mut rng, !is_deleting);
    let existing: &[&str] = if has_existing && !is_overwriting { &["tree", "tree/d0"] } else { &[] };
    let scan = || {
        let mut source = Source::scan_keeping(&[fixture.source("tree")], KEEP, &CancelToken::new()).unwrap();
        source.set_modes(&modes);
        source
    };
    let inbox = fixture.top.path().join("in");
    let begin = || {
        fs::create_dir_all(&inbox).unwrap();
        if has_existing {
            prepare(&inbox, is_overwriting, is_deleting);
        }
    };
    begin();
    fixture.transfer_source(&scan(), |_| {}).complete();
    let wanted = listing(&inbox, existing);
    assert!(!wanted.contains_key(Path::new("tree/gone")), "seed {seed}: deletions");
    fs::rename(&inbox, fixture.top.path().join("uninterrupted")).unwrap();
    begin();
    let (mut interrupted, mut failed) = (0, 0);
    let passing_attempts = if is_deleting { 1 + rng.below(6) as u32 } else { 0 };
    for attempt in 0.. {
        if is_deleting && attempt == 0 {
            set_passing_files(&fixture, &modes, true);
        } else if is_deleting && attempt == passing_attempts {
            set_passing_files(&fixture, &modes, false);
        }
        disk.heal();
        let is_last = attempt == ATTEMPTS;
        match rng.below(8) {
            _ if is_last => {}
            0 => disk.fail_next_sync(),
            1 => disk.write_limit.store(rng.between(1, 400_000), Ordering::SeqCst),
            2 => disk.fail_next_directory_sync(),
            _ => {}
        }
        // Where nothing else fails, a complete attempt would end the transfer.
        let cut = if is_last || rng.below(20) == 0 { u64::MAX } else { rng.between(1, 60_000) };
        let outcome = fixture.transfer_source(&scan(), |link| link.faults().bytes_left.store(cut, Ordering::SeqCst));
        // Whatever was reported to the sender, this is the end, except for the files it still has.
        if outcome.is_spent {
            if attempt >= passing_attempts {
                break;
            }
            continue;
        }
        match &outcome.received {
            Err(_) => interrupted += 1,
            Ok(summary) => failed += summary.failed as u32,
        }
        assert!(!is_last, "seed {seed}: {:?} {:?}", outcome.received, outcome.receiver_events);
    }
    let found = listing(&inbox, existing);
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "seed {seed}");
    for (path, found) in &found {
        assert!(*found == wanted[path], "seed {seed}: {}\n{:?}", path.display(), differences(found, &wanted[path]));
    }
    open_up(fixture.top.path());
    (interrupted, failed)
}

/// Returns the differences, without the contents.
fn differences(found: &Found, wanted: &Found) -> String {
    let text = |of: &Found| {
        format!(
            "{} {:o} {:?} {:?} {} bytes {:?} {}",
            of.kind,
            of.mode,
            of.modified,
            of.link,
            of.content.len(),
            of.data,
            of.same_as.display()
        )
    };
    format!("found  {}\nwanted {}", text(found), text(wanted))
}

/// Makes everything accessible, so that a user who is not root can remove it.
fn open_up(top: &Path) {
    for child in fs::read_dir(top).unwrap() {
        let path = child.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            open_up(&path);
        }
    }
}

fn trees() {
    let share = std::env::var("LITZ_TEST_SHARE").map_or(10, |share| share.parse().expect("a number"));
    let (mut interrupted, mut failed) = (0, 0);
    for seed in 0..(TREES * share / 100) as u64 {
        let (more_interrupted, more_failed) = interrupt(seed);
        interrupted += more_interrupted;
        failed += more_failed;
    }
    assert!(interrupted > 20 && failed > 0, "{interrupted} interrupted, {failed} failed files");
}

#[test]
fn an_interrupted_transfer_ends_as_an_uninterrupted_one() {
    trees();
}

/// Environment variable set in a process that runs as an unprivileged user.
const AS_USER: &str = "LITZ_TEST_AS_USER";

#[test]
fn an_interrupted_transfer_of_a_user_without_privileges_ends_as_an_uninterrupted_one() {
    if std::env::var_os(AS_USER).is_some() || !rustix::process::geteuid().is_root() {
        return trees();
    }
    // The program may lie where only root has access.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::an_interrupted_transfer_of_a_user_without_privileges_ends_as_an_uninterrupted_one");
    let ran = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", &name])
        .env(AS_USER, "1")
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .stdin(Stdio::null())
        .output();
    let ran = ran.expect("setpriv of util-linux");
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn a_directory_that_is_read_only_in_the_end_takes_a_file_that_failed_first() {
    let (fixture, disk) = on_faulty_disk();
    fixture.write("tree/a", 1, 500);
    fs::create_dir(fixture.source("tree/sub")).unwrap();
    fixture.write("tree/sub/b", 2, 3000);
    let source = || {
        let mut source = Source::scan(&[fixture.source("tree")], &CancelToken::new()).unwrap();
        source.set_modes(&[("tree".to_owned(), 0o555), ("tree/sub".to_owned(), 0o555)].into());
        source
    };
    // The limit is per file: several threads write, in any order.
    disk.file_limit.store(1000, Ordering::SeqCst);
    let outcome = fixture.transfer_source(&source(), |_| {});
    assert_eq!(outcome.failures(), BTreeMap::from([("tree/sub/b".into(), "no_space".into())]));
    let mode = |name: &str| fs::metadata(fixture.target(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("tree"), mode("tree/sub")), (0o555, 0o555));
    disk.heal();
    fixture.transfer_source(&source(), |_| {}).complete();
    assert_eq!((mode("tree"), mode("tree/sub")), (0o555, 0o555));
    let modified = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    for name in ["tree", "tree/sub"] {
        assert_eq!(modified(fixture.target(name)), modified(fixture.source(name)), "{name}");
    }
    assert_eq!(names(&fixture.top.path().join("in")), ["tree"]);
    // Directories of a complete transfer are like any others: their owner may have changed them.
    fs::set_permissions(fixture.target("tree"), fs::Permissions::from_mode(0o700)).unwrap();
    fixture.transfer_source(&source(), |_| {}).complete();
    assert_eq!(mode("tree"), 0o700);
    open_up(fixture.top.path());
}
