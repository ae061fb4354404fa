//! Transfers that are killed, and disks that fail, at random: a file is never wrong under its final
//! name, and once nothing fails any more everything arrives.
//!
//! Each round has a tree of its own and some attempts. In each attempt the receiver may run under
//! `strace`, which makes some of its calls to the disk fail with EIO or ENOSPC, and one side or both are
//! killed. The last attempt has no fault. `LITZ_CRASHES=500` runs that many rounds; `LITZ_CRASH_SEED=7`
//! only the one that printed that seed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use units::Rng;

use crate::support::needs::has_root;
use crate::support::run::names;
use crate::support::{Litz, Place};

/// Rounds of a run without the variable.
const ROUNDS: u64 = 4;

/// A side that says nothing for this time is killed.
const EVENT_WAIT: Duration = Duration::from_millis(500);

/// What happened, so that the test can say that its faults were real.
#[derive(Default, Debug)]
struct Tally {
    attempts: u32,
    killed_receivers: u32,
    killed_senders: u32,
    /// Attempts in which the receiver reported a file that failed.
    disk_faults: u32,
    /// Final names that existed when a side was dead, and were looked at.
    looked_at: u32,
    /// Old versions among them.
    old: u32,
}

struct Round {
    place: Place,
    rng: Rng,
    /// The content of each file below the inbox: new, and old if it is to be overwritten.
    files: BTreeMap<PathBuf, (Vec<u8>, Option<Vec<u8>>)>,
    /// The directories, and whether they were there before.
    directories: BTreeMap<PathBuf, bool>,
    is_overwriting: bool,
    has_strace: bool,
    /// The receiver runs as a user without privileges, for whom modes count.
    is_unprivileged: bool,
}

#[test]
#[expect(clippy::print_stdout, reason = "the seed of a round that fails, and the count of faults")]
fn no_crash_puts_a_wrong_file_under_its_name() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let has_strace = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|done| done.success());
    let rounds = number("LITZ_CRASHES").unwrap_or(ROUNDS);
    let seeds = number("LITZ_CRASH_SEED").map_or(0..rounds, |seed| seed..seed + 1);
    let mut tally = Tally::default();
    for seed in seeds.clone() {
        println!("crash: seed {seed}");
        Round::new(seed, has_strace).run(&mut tally);
    }
    println!("crash: {} rounds, strace {has_strace}: {tally:?}", seeds.clone().count());
    if seeds.count() as u64 >= ROUNDS {
        assert!(tally.killed_receivers > 0 && tally.killed_senders > 0, "{tally:?}");
        assert!(tally.looked_at > 0, "nothing had arrived when a side was killed: {tally:?}");
    }
    if has_strace && rounds >= 50 {
        assert!(tally.disk_faults > 0, "no call to the disk failed: {tally:?}");
    }
}

impl Round {
    fn new(seed: u64, has_strace: bool) -> Self {
        let mut rng = Rng::from_seed(seed);
        let place = Place::new();
        let is_overwriting = rng.below(2) == 0;
        let mut files = BTreeMap::new();
        for index in 0..rng.between(3, 40) {
            let len = match rng.below(8) {
                0 => 0,
                // More than one segment, so that there is a journal.
                1 if index < 3 => rng.between(5_000_000, 13_000_000),
                2 => rng.between(1, 2_000_000),
                _ => rng.between(1, 20_000),
            };
            let name = format!("tree/{}/f{index}", index % 3);
            let source = place.file(&name, len as usize, seed * 100 + index);
            let old = (is_overwriting && rng.below(2) == 0).then(|| {
                let mut old = vec![0; rng.below(30_000) as usize];
                rng.fill(&mut old);
                let target = place.inbox().join(&name);
                std::fs::create_dir_all(target.parent().expect("a folder")).expect("folders");
                std::fs::write(&target, &old).expect("an old version");
                old
            });
            files.insert(PathBuf::from(name), (std::fs::read(source).expect("just written"), old));
        }
        let parents = files.keys().flat_map(|name| name.ancestors().skip(1)).filter(|name| name.iter().count() > 0);
        let directories = parents.map(|name| (name.to_owned(), place.inbox().join(name).exists())).collect();
        let mut round = Self { place, rng, files, directories, is_overwriting, has_strace, is_unprivileged: false };
        round.is_unprivileged = round.rng.below(2) == 0 && round.give_up_privileges();
        for name in round.directories.keys() {
            let mode = [0o755, 0o555, 0o500, 0o700][round.rng.below(4) as usize];
            set_mode(&round.place.path("out").join(name), mode);
        }
        round
    }

    /// Gives the receiver's folders to a user without privileges. Returns false if that cannot be.
    fn give_up_privileges(&self) -> bool {
        if !has_root() {
            return false;
        }
        set_mode(self.place.root.path(), 0o755);
        std::fs::create_dir(self.place.path("state-in")).expect("a folder");
        let mut owned = Command::new("chown");
        let owned = owned.arg("-R").arg(NOBODY).arg(self.place.inbox()).arg(self.place.path("state-in")).status();
        // The program may lie where only root has access.
        let mut version = Command::new("setpriv");
        version.args(SETPRIV).args([env!("CARGO_BIN_EXE_litz"), "version"]).stdout(Stdio::null()).stderr(Stdio::null());
        owned.is_ok_and(|status| status.success()) && version.status().is_ok_and(|status| status.success())
    }

    fn run(mut self, tally: &mut Tally) {
        for _ in 0..self.rng.between(1, 3) {
            tally.attempts += 1;
            // A receiver that cannot write its state ends.
            let Some((mut receiver, ticket)) = self.recv(true) else { continue };
            let mut sender = self.send(&ticket);
            self.crash(&mut receiver, &mut sender, tally);
            self.look(tally);
        }
        let (mut receiver, ticket) = self.recv(false).expect("nothing fails now");
        let mut sender = self.send(&ticket);
        sender.succeed();
        receiver.succeed();
        self.check_complete();
    }

    /// Kills one side after some events of the other, and the other one a moment later.
    fn crash(&mut self, receiver: &mut Litz, sender: &mut Litz, tally: &mut Tally) {
        let events = self.rng.below(2 * self.files.len() as u64 + 4);
        let is_receiver_first = self.rng.below(2) == 0;
        let counted = if is_receiver_first { &mut *sender } else { &mut *receiver };
        for _ in 0..events {
            // `finished`: the other one may do its last steps now. None: it waits for a sender that has
            // ended.
            if counted.next_within(EVENT_WAIT).is_none_or(|event| event["event"] == "finished") {
                break;
            }
        }
        self.pause();
        if is_receiver_first {
            receiver.kill();
            tally.killed_receivers += 1;
            self.pause();
            sender.kill();
        } else {
            sender.kill();
            tally.killed_senders += 1;
            self.pause();
            receiver.kill();
        }
        while receiver.next().is_some() {}
        tally.disk_faults += u32::from(receiver.seen.iter().any(|event| event["event"] == "file_failed"));
    }

    /// Lets a random time pass, so that the kill comes between any two steps.
    #[expect(clippy::disallowed_methods, reason = "nothing depends on the length of this time")]
    fn pause(&mut self) {
        std::thread::sleep(Duration::from_micros(self.rng.below(20_000)));
    }

    /// Every file that has its final name is the new one or the old one.
    fn look(&self, tally: &mut Tally) {
        for (name, (new, old)) in &self.files {
            let Ok(found) = std::fs::read(self.place.inbox().join(name)) else {
                assert!(old.is_none(), "{}: the old version has gone", name.display());
                continue;
            };
            tally.looked_at += 1;
            let is_old = old.as_ref() == Some(&found);
            tally.old += u32::from(is_old);
            assert!(is_old || found == *new, "{}: {} bytes that are wrong", name.display(), found.len());
        }
    }

    fn check_complete(&self) {
        for (name, (new, _)) in &self.files {
            let found = std::fs::read(self.place.inbox().join(name)).expect("it has arrived");
            assert!(found == *new, "{} is wrong", name.display());
        }
        for (name, was_there) in &self.directories {
            let at = |top: PathBuf| std::fs::metadata(top.join(name)).expect("a directory");
            let (sent, found) = (at(self.place.path("out")), at(self.place.inbox()));
            assert!(*was_there || found.mode() == sent.mode() & !0o022, "{}: {:o}", name.display(), found.mode());
            let time = |of: &std::fs::Metadata| (of.mtime(), of.mtime_nsec());
            assert!(*was_there || time(&found) == time(&sent), "{}: another time", name.display());
        }
        let inbox: Vec<_> = names(&self.place.inbox());
        assert_eq!(inbox, ["tree"], "something was left");
        for folder in std::fs::read_dir(self.place.inbox().join("tree")).expect("the tree") {
            for child in std::fs::read_dir(folder.expect("a folder").path()).expect("a folder") {
                let name = child.expect("a file").file_name();
                let is_left = [".litz-part", ".litz-journal"].iter().any(|end| has_ending(&name, end));
                assert!(!is_left, "{} was left", name.display());
            }
        }
    }

    fn recv(&mut self, is_faulty: bool) -> Option<(Litz, String)> {
        let mut arguments: Vec<OsString> = Vec::new();
        if self.is_unprivileged {
            arguments.push("setpriv".into());
            arguments.extend(SETPRIV.map(Into::into));
        }
        if is_faulty && self.has_strace && self.rng.below(2) == 0 {
            arguments.extend(self.faults().into_iter().map(Into::into));
        }
        arguments.push(env!("CARGO_BIN_EXE_litz").into());
        arguments.extend(["recv", "--json", "--listen=127.0.0.1:0", "--idle-timeout=3s"].map(Into::into));
        if self.is_overwriting {
            arguments.push("--overwrite".into());
        }
        arguments.push(option("--state-dir", &self.place.path("state-in")));
        arguments.push(self.place.inbox().into());
        let mut process = Litz::of(Command::new(&arguments[0]).args(&arguments[1..]));
        while let Some(event) = process.next() {
            if event["event"] == "listening" {
                return Some((process, event["ticket"].as_str().expect("a ticket").to_owned()));
            }
        }
        None
    }

    fn send(&self, ticket: &str) -> Litz {
        self.place.send(&[&self.place.path("out").join("tree")], ticket, &["--idle-timeout=3s"])
    }

    /// A command that makes some of the receiver's calls fail. `-D` keeps the receiver our own child.
    fn faults(&mut self) -> Vec<String> {
        let calls = ["pwrite64", "fsync,fdatasync,syncfs", "renameat2", "fsync,fdatasync,syncfs,pwrite64"];
        let calls = calls[self.rng.below(calls.len() as u64) as usize];
        let error = if self.rng.below(2) == 0 { "EIO" } else { "ENOSPC" };
        let (first, step) = (self.rng.between(1, 6), self.rng.between(1, 8));
        let text = format!(
            "strace -D -f -qqq -o /dev/null --seccomp-bpf -e trace={calls} -e inject={calls}:error={error}:when={first}+{step}"
        );
        text.split(' ').map(ToOwned::to_owned).collect()
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        // So that the folders can be removed by a user who is not root.
        for top in [self.place.path("out"), self.place.inbox()] {
            for name in self.directories.keys().filter(|name| top.join(name).exists()) {
                set_mode(&top.join(name), 0o755);
            }
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

/// The user and the group of files that belong to no user.
const NOBODY: &str = "65534:65534";

const SETPRIV: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push("=");
    option.push(value);
    option
}

fn has_ending(name: &std::ffi::OsStr, end: &str) -> bool {
    name.as_encoded_bytes().ends_with(end.as_bytes())
}
