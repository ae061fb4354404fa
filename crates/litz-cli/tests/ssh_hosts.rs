//! `litz send PATH... HOST:DIR` and `litz send HOST:PATH... DIR`: with a program in the place of ssh, and with
//! ssh and sshd themselves in a network namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::support::run::{names, run};
use crate::support::{Litz, Place, assert_same, needs, ssh};

/// A program that runs the command of the far host as ssh does: by a shell, in the home directory.
struct FarHost {
    place: Place,
}

impl FarHost {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.path("home")).unwrap();
        let far = Self { place };
        far.program("ssh", "cd \"$FAR_HOME\" && exec sh -c \"$2\"");
        far.program(
            "litz",
            &format!("exec {} \"$@\" --state-dir={}", env!("CARGO_BIN_EXE_litz"), far.text("state-far")),
        );
        far
    }

    fn text(&self, name: &str) -> String {
        self.place.path(name).to_str().unwrap().to_owned()
    }

    fn home(&self) -> PathBuf {
        self.place.path("home")
    }

    /// Writes a shell script.
    fn program(&self, name: &str, text: &str) {
        fs::write(self.place.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(self.place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
        command.env("FAR_HOME", self.home()).current_dir(self.place.path("out"));
        command.args(["send", "-e", &self.text("ssh"), "--litz-path", &self.text("litz")]);
        command.arg(format!("--state-dir={}", self.text("state-out"))).args(arguments);
        command
    }

    fn send(&self, arguments: &[&str]) -> (Output, String) {
        run(&mut self.command(arguments))
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let (output, text) = self.send(arguments);
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    }

    /// Expects an error with this status and these words.
    fn fail(&self, arguments: &[&str], status: i32, words: &str) {
        let (output, text) = self.send(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text:?} does not say {words:?}");
    }
}

#[test]
fn files_are_sent_to_a_far_host_and_fetched_from_it() {
    let far = FarHost::new();
    let odd = "it's a \"name\" $HOME; `x` \\ *";
    for (name, seed) in [("tree/a", 1), ("tree/sub/b", 2), (odd, 3)] {
        far.place.file(name, 300_000, seed);
    }
    let text = far.succeed(&["tree", odd, "host:new dir"]);
    assert!(text.contains("sent and verified"), "{text}");
    let (out, there) = (far.place.path("out"), far.home().join("new dir"));
    for name in ["tree/a", "tree/sub/b", odd] {
        assert_same(&out.join(name), &there.join(name));
    }
    // The second time replaces what changed, as rsync and scp do.
    far.place.file("tree/a", 200_000, 9);
    far.succeed(&["tree", "user@host:~/new dir"]);
    assert_same(&out.join("tree/a"), &there.join("tree/a"));

    let inbox = far.place.inbox();
    let text = far.succeed(&["host:new dir/tree", &format!("host:new dir/{odd}"), inbox.to_str().unwrap()]);
    assert!(text.contains("received and verified 3 files"), "{text}");
    for name in ["tree/a", "tree/sub/b", odd] {
        assert_same(&out.join(name), &inbox.join(name));
    }
    // No ticket is left over at either end.
    for state in ["state-far", "state-out"] {
        let (_, text) = run(Command::new(env!("CARGO_BIN_EXE_litz"))
            .args(["tickets", "--json", "--state-dir"])
            .arg(far.place.path(state)));
        assert!(!text.contains("litz1") && !text.contains("expires"), "{text}");
    }
}

#[test]
fn patterns_choose_the_files_in_both_directions() {
    let far = FarHost::new();
    for name in ["tree/a.c", "tree/a.o", "tree/keep.o", "tree/build/x", "tree/src/b.o"] {
        far.place.file(name, 100, 1);
    }
    let patterns = ["--include=keep.o", "--exclude=*.o", "--exclude", "build/"];
    far.succeed(&[&patterns[..], &["tree", "host:"]].concat());
    let expected = ["a.c", "keep.o", "src"];
    assert_eq!(names(&far.home().join("tree")), expected);
    far.place.file("tree2/a.o", 100, 1);
    fs::rename(far.place.path("out").join("tree2/a.o"), far.home().join("tree/a.o")).unwrap();
    let inbox = far.place.inbox();
    far.succeed(&[&patterns[..], &["host:tree", inbox.to_str().unwrap()]].concat());
    assert_eq!(names(&inbox.join("tree")), expected);
    far.fail(&["--exclude=[a", "tree", "host:"], 2, "the pattern \"[a\" cannot be used");
    far.fail(&["--delete", "--exclude=[a", "host:tree", "."], 2, "the pattern \"[a\" cannot be used");
}

/// The content of a file or the target of a link, with the mode and the time of modification: all that the
/// guide promises. Links have no mode.
fn state_of(path: &Path) -> (String, u32, (i64, i64)) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let time = (metadata.mtime(), metadata.mtime_nsec());
    match metadata {
        metadata if metadata.is_symlink() => (format!("-> {}", fs::read_link(path).unwrap().display()), 0, time),
        metadata if metadata.is_dir() => ("directory".to_owned(), metadata.mode() & 0o7777, time),
        metadata => (fs::read_to_string(path).unwrap(), metadata.mode() & 0o7777, time),
    }
}

/// Everything below a folder. A time of this run, of a directory that is not sent and in which something was
/// deleted, is zero.
fn tree_of(folder: &Path) -> BTreeMap<PathBuf, (String, u32, (i64, i64))> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let mut state = state_of(&path);
            if state.2.0 > SENT_BEFORE {
                state.2 = (0, 0);
            }
            if state.0 == "directory" {
                waiting.push(path.clone());
            }
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), state);
        }
    }
    found
}

/// All files and directories that are sent are older, in seconds since 1970.
const SENT_BEFORE: i64 = 1_750_000_000;

/// Writes files with their content and their time in seconds, and links with their target.
fn grow(folder: &Path, files: &[(&str, &str, u64)], links: &[(&str, &str)]) {
    let make_parent = |path: &Path| fs::create_dir_all(path.parent().unwrap()).unwrap();
    for (name, content, seconds) in files {
        let path = folder.join(name);
        make_parent(&path);
        fs::write(&path, content).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    }
    for (name, target) in links {
        let path = folder.join(name);
        make_parent(&path);
        std::os::unix::fs::symlink(target, path).unwrap();
    }
}

/// A sender's `tree`.
fn grow_source(folder: &Path) {
    let files = [
        ("tree/newer", "sent", 10),
        ("tree/older", "sent", 10),
        ("tree/same", "same", 10),
        ("tree/missing", "sent", 10),
        ("tree/longer", "sent", 10),
        ("tree/sub/deep/file", "sent", 10),
        ("tree/sub/a.o", "sent", 10),
        ("tree/was-a-link", "sent", 10),
    ];
    grow(folder, &files, &[("tree/sub/link", "deep/file")]);
    set_modes(folder, &[("same", 0o600), ("older", 0o755), ("sub", 0o750), ("sub/deep", 0o700), ("", 0o711)]);
    set_times(folder);
}

fn set_modes(folder: &Path, modes: &[(&str, u32)]) {
    for (name, mode) in modes {
        fs::set_permissions(folder.join("tree").join(name), fs::Permissions::from_mode(*mode)).unwrap();
    }
}

/// Gives directories and links a time of their own for each path: several trees are compared.
fn set_times(folder: &Path) {
    let set = |path: &Path, seconds| {
        let time = rustix::fs::Timespec { tv_sec: 1_600_000_000 + seconds, tv_nsec: 5 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    for (index, (path, (content, ..))) in tree_of(folder).into_iter().enumerate() {
        if content == "directory" || content.starts_with("-> ") {
            set(&folder.join(path), index as i64);
        }
    }
}

/// What a receiver has before: some of it, and more.
fn grow_target(folder: &Path) {
    let files = [
        ("tree/newer", "kept, as it is newer", 11),
        ("tree/older", "gone", 9),
        ("tree/same", "same", 10),
        ("tree/longer", "has another length", 10),
        ("tree/extra", "x", 1),
        ("tree/extra.o", "x", 1),
        ("tree/keep.o", "x", 1),
        ("tree/sub/extra", "x", 99),
        ("tree/gone/file", "x", 1),
        ("tree/gone/deep/file", "x", 1),
        ("tree/gone/deep/kept.o", "x", 1),
        ("tree/cache/file", "x", 1),
        ("tree/sub/cache/deep/file", "x", 1),
        ("tree/sub/deep/cache", "a file", 1),
        ("other/file", "x", 1),
        ("file", "x", 1),
    ];
    let links = [("tree/to-other", "../other"), ("tree/gone/to-other", "../../other"), ("tree/was-a-link", "../file")];
    grow(folder, &files, &links);
    set_modes(folder, &[("newer", 0o640), ("longer", 0o400), ("gone/deep", 0o500)]);
    set_times(folder);
}

/// Options that rsync has, too.
const CHOICES: [&[&str]; 6] = [
    &["--update"],
    &["--delete"],
    &["--delete", "--exclude=*.o", "--exclude=cache/"],
    &["--delete", "--update", "--include=keep.o", "--exclude=*.o"],
    &["--delete", "--exclude=/tree/sub"],
    &["--delete", "--include=*/", "--include=file", "--exclude=*"],
];

#[test]
fn updates_and_deletions_have_the_result_of_rsync_in_both_directions() {
    if !needs::has_programs(&["rsync"]) {
        return;
    }
    for choice in CHOICES {
        let far = FarHost::new();
        let (out, inbox) = (far.place.path("out"), far.place.inbox());
        fs::create_dir(far.home().join("from")).unwrap();
        grow_source(&out);
        grow_source(&far.home().join("from"));
        let reference = far.place.path("reference");
        for folder in [&reference, &far.home().join("into"), &inbox] {
            fs::create_dir_all(folder).unwrap();
            grow_target(folder);
        }
        let before = tree_of(&reference);
        let (output, text) =
            run(Command::new("rsync").arg("-a").args(choice).args(["tree", "../reference/"]).current_dir(&out));
        assert!(output.status.success(), "{text}");
        let expected = tree_of(&reference);
        assert_ne!(expected, before);
        far.succeed(&[choice, &["tree", "host:into"]].concat());
        assert_eq!(tree_of(&far.home().join("into")), expected, "to the far host, {choice:?}");
        far.succeed(&[choice, &["host:from/tree", inbox.to_str().unwrap()]].concat());
        assert_eq!(tree_of(&inbox), expected, "from the far host, {choice:?}");
    }
}

/// The names that a dry run says would be sent, without directories, and those that it would delete.
fn plan_of(events: &[Value]) -> (Vec<String>, Vec<String>) {
    let names = |wanted: &dyn Fn(&Value) -> bool| {
        let found = events.iter().filter(|event| wanted(event)).map(|event| event["path"].as_str().unwrap().to_owned());
        let mut names: Vec<_> = found.collect();
        names.sort();
        names
    };
    let is_file = |event: &Value| event["bytes"] != 0 || event["path"] == "tree/sub/link";
    (
        names(&|event| event["event"] == "left_out" && event["reason"] == "would_receive" && is_file(event)),
        names(&|event| event["event"] == "deleted" && event["dry_run"] == true),
    )
}

#[test]
fn a_dry_run_writes_nothing_and_lists_what_rsync_does() {
    if !needs::has_programs(&["rsync"]) {
        return;
    }
    for choice in CHOICES {
        let far = FarHost::new();
        let (out, inbox) = (far.place.path("out"), far.place.inbox());
        grow_source(&out);
        grow_source(&far.home());
        for folder in [&far.home().join("into"), &inbox] {
            grow_target(folder);
        }
        let rsync = |options: &[&str]| {
            let (output, text) = run(Command::new("rsync").args(options).args(choice).current_dir(&out));
            assert!(output.status.success(), "{text}");
            text
        };
        let text = rsync(&["-an", "--out-format=%o %n", "tree", "../in/"]);
        let sent = text.lines().filter_map(|line| line.strip_prefix("send ")).filter(|name| !name.ends_with('/'));
        let mut sent: Vec<_> = sent.map(str::to_owned).collect();
        sent.sort();
        // Its own dry run also lists directories that it then keeps, because something in them is excluded.
        let reference = far.place.path("reference");
        grow_target(&reference);
        let before = tree_of(&reference);
        rsync(&["-a", "tree", "../reference/"]);
        let after = tree_of(&reference);
        let gone = before.into_keys().filter(|path| !after.contains_key(path));
        let expected = (sent, gone.map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>());
        let into = inbox.to_str().unwrap();
        for (arguments, there) in
            [(&["tree", "host:into"][..], far.home().join("into")), (&["host:tree", into], inbox.clone())]
        {
            let before = tree_of(&there);
            let mut running = Litz::of(&mut far.command(&[choice, &["--json", "-n"], arguments].concat()));
            let summary = running.succeed();
            assert_eq!(plan_of(&running.seen), expected, "{choice:?}, {arguments:?}");
            assert_eq!((&summary["dry_run"], &summary["bytes_moved"]), (&true.into(), &0.into()), "{summary}");
            assert_eq!(summary["deleted"], expected.1.len(), "{summary}");
            assert_eq!(tree_of(&there), before);
        }
    }
}

#[test]
fn a_dry_run_says_in_words_what_would_be_done_and_makes_no_directory() {
    let far = FarHost::new();
    far.place.file("tree/a", 1000, 1);
    let text = far.succeed(&["--dry-run", "--delete", "tree", "host:new"]);
    assert!(text.contains("would send tree/a (1.0 kB)"), "{text}");
    assert!(text.contains("dry run, nothing was written: would send 1 file, 1.0 kB"), "{text}");
    assert!(!far.home().join("new").exists());
    far.fail(&["-n", "tree", "host:missing/deep"], 2, "cannot make the directory missing/deep");
    far.succeed(&["tree", "host:new"]);
    fs::write(far.home().join("new/tree/b"), "b").unwrap();
    let text = far.succeed(&["--dry-run", "--delete", "tree", "host:new"]);
    assert!(text.contains("would delete tree/b") && text.contains("would delete 1; 1 unchanged"), "{text}");
    let text = far.succeed(&["--delete", "tree", "host:new"]);
    assert!(text.contains("; 1 deleted"), "{text}");
    let inbox = far.place.inbox();
    let text = far.succeed(&["-n", "host:new/tree", inbox.to_str().unwrap()]);
    assert!(text.contains("would receive tree/a (1.0 kB)") && names(&inbox).is_empty(), "{text}");
}

#[test]
fn nothing_is_deleted_if_something_failed_or_was_skipped() {
    let far = FarHost::new();
    let inbox = far.place.inbox();
    let into = inbox.to_str().unwrap();
    let out = far.place.path("out");
    for folder in [&out, &far.home()] {
        grow(folder, &[("tree/a", "a", 1)], &[("tree/outside", "/etc/passwd")]);
    }
    for folder in [&far.home().join("into"), &inbox] {
        grow(folder, &[("tree/extra", "x", 1)], &[]);
    }
    for (arguments, there) in [
        (&["--delete", "tree", "host:into"][..], far.home().join("into")),
        (&["--delete", "host:tree", into], inbox.clone()),
    ] {
        far.fail(arguments, 1, "nothing is deleted, because the sender has skipped something");
        assert_eq!(names(&there.join("tree")), ["a", "extra"]);
        // What is left out on purpose prevents nothing, and is kept itself.
        far.succeed(&[&["--exclude=outside"], arguments].concat());
        assert_eq!(names(&there.join("tree")), ["a"]);
        grow(&there, &[("tree/extra", "x", 1)], &[]);
        fs::remove_file(there.join("tree/a")).unwrap();
        fs::create_dir(there.join("tree/a")).unwrap();
        far.fail(&[&["--exclude=outside"], arguments].concat(), 1, "nothing is deleted, because something failed");
        assert_eq!(names(&there.join("tree")), ["a", "extra"]);
    }
}

#[test]
fn an_older_far_end_refuses_the_newer_options_in_a_sentence_and_serves_without_them() {
    let far = FarHost::new();
    far.place.file("file", 100, 1);
    let litz = format!("{} \"$@\" --state-dir={}", env!("CARGO_BIN_EXE_litz"), far.text("state-far"));
    far.program("litz", &format!("{litz} | sed -u 's/,\"options\":\\[[^]]*\\]//'"));
    let inbox = far.place.inbox();
    for option in ["--update", "--dry-run", "--delete"] {
        let words = format!("does not know {option}: install the same version");
        far.fail(&[option, "file", "host:"], 2, &words);
        far.fail(&[option, "host:file", inbox.to_str().unwrap()], 2, &words);
    }
    assert!(names(&far.home()).is_empty() && names(&inbox).is_empty());
    far.succeed(&["file", "host:"]);
    assert_eq!(names(&far.home()), ["file"]);
}

/// Length of a journal of one segment: docs/spec/transfer.md.
const JOURNAL_WITH_ONE: u64 = 69 + 44;

#[test]
fn an_interrupted_transfer_goes_on_with_the_same_command() {
    let far = FarHost::new();
    let file = far.place.file("file", 20_000_000, 1);
    let inbox = far.place.inbox();
    let pull = ["host:file", inbox.to_str().unwrap()];
    for (arguments, there) in [(&["file", "host:"][..], far.home()), (&pull[..], inbox.clone())] {
        for signal in ["INT", "KILL"] {
            // One segment of 4 MiB after the other, until the receiver has recorded the first.
            let mut running = Litz::of(far.command(&["--json", "--rate=40Mb/s", "--parallel=1"]).args(arguments));
            let recorded = || fs::metadata(there.join("file.litz-journal")).map_or(0, |journal| journal.len());
            while recorded() < JOURNAL_WITH_ONE {
                running.next().expect("it runs");
            }
            running.signal(signal);
            let (status, _) = running.finish("error");
            assert!(if signal == "INT" { status == 130 } else { status == -1 }, "{signal}: {status}");
        }
        let mut again = Litz::of(far.command(&["--json"]).args(arguments));
        let summary = again.succeed();
        assert!(summary["bytes_resumed"].as_u64() > Some(4_000_000), "{summary}");
        assert_same(&file, &there.join("file"));
    }
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let far = FarHost::new();
    far.place.file("file", 100, 1);
    far.fail(&["missing", "host:"], 2, "there is no such file");
    far.fail(&["file", "host:missing/deep"], 2, "cannot make the directory missing/deep");
    far.fail(&["host:missing", "."], 2, "host: cannot send missing: there is no such file");
    far.fail(&["host:file", "no-such-folder"], 2, "there is no such directory");
    far.fail(&["-oProxyCommand=touch x:file", "host:"], 2, "unexpected argument");
    far.fail(&["--", "-oProxyCommand=touch x:file", "."], 2, "is not the name of a host");
    far.fail(&["host:file", "other:dir"], 2, "both ends are far hosts");
    far.fail(&["-e", "no-such-ssh", "file", "host:"], 2, "install an ssh client");
    far.fail(&["--litz-path=no-such-litz", "file", "host:"], 2, "there is no `litz` on host");
    far.program("ssh", "echo 'Permission denied (publickey).' >&2; exit 255");
    far.fail(&["file", "host:"], 2, "host: Permission denied (publickey).");
    far.fail(&["file", "host:"], 2, "`ssh host true` must work first");
    far.program("ssh", "echo \"error: unrecognized subcommand 'ssh-end'\" >&2; exit 2");
    far.fail(&["file", "host:"], 2, "is too old for HOST:PATH");
    far.program("ssh", "echo '{\"litz_ssh\":2,\"version\":\"9\",\"key\":\"\"}'; cat >/dev/null");
    far.fail(&["file", "host:"], 2, "install the same version on both hosts");
    far.program("ssh", "yes");
    far.fail(&["file", "host:"], 2, "before the transfer was done");
}

/// Another program that holds the same input may have made it non-blocking.
#[test]
fn a_far_end_waits_for_a_request_from_a_non_blocking_input() {
    let place = Place::new();
    let (input, mut request) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&input, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut far = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["ssh-end", "--state-dir", place.path("state").to_str().unwrap()])
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(far.stdout.take().unwrap());
    let mut lines = [String::new(), String::new()];
    output.read_line(&mut lines[0]).unwrap();
    assert!(lines[0].contains("litz_ssh"), "{lines:?}");
    // It goes to sleep when it reads: then the pipe is still empty.
    let state = Path::new("/proc").join(far.id().to_string()).join("stat");
    while far.try_wait().unwrap().is_none() && !fs::read_to_string(&state).unwrap_or_default().contains(") S ") {
        std::thread::yield_now();
    }
    let _has_ended = request.write_all(b"{}\n");
    output.read_line(&mut lines[1]).unwrap();
    assert!(lines[1].contains("the request has another format"), "{lines:?}");
    assert_eq!(far.wait().unwrap().code(), Some(2));
}

/// What receives is in its sandbox when ssh ends.
#[test]
fn an_ssh_that_ends_or_hangs_while_files_are_fetched_is_waited_for_and_killed() {
    let far = FarHost::new();
    fs::write(far.home().join("file"), "x").unwrap();
    let inbox = far.place.inbox();
    let arguments = ["host:file", inbox.to_str().unwrap()];
    let hello = "cd \"$FAR_HOME\" && sh -c \"$2\" </dev/null | head -n 1\nread -r request";
    far.program("ssh", &format!("{hello}\nexit 255"));
    far.fail(&arguments, 2, "ssh could not reach host");
    let number = far.text("number");
    far.program("ssh", &format!("{hello}\necho $$ >{number}\nexec >&- 2>&- sleep 1000"));
    far.fail(&arguments, 2, "ssh to host closed its output and did not end: it was killed");
    let number = fs::read_to_string(number).unwrap();
    assert!(!Path::new("/proc").join(number.trim()).exists(), "it outlives the command");
}

/// The link under ssh dies without a sign once the transfer was agreed upon: nothing is read any more.
#[test]
fn a_transfer_does_not_wait_for_an_ssh_that_reads_nothing() {
    let far = FarHost::new();
    let count = 1500;
    for folder in [far.place.path("out").join("tree"), far.home().join("from")] {
        fs::create_dir(&folder).unwrap();
        // Two events for each would fill the pipe several times.
        for index in 0..count {
            fs::write(folder.join(format!("a file with a rather long name, number {index}")), "x").unwrap();
        }
    }
    let inbox = far.place.inbox();
    for (lines, arguments, there) in [
        (2, ["tree", "host:into"], far.home().join("into/tree")),
        (1, ["host:from", inbox.to_str().unwrap()], inbox.join("from")),
    ] {
        let pipe = far.text(&format!("pipe-{lines}"));
        far.program(
            "ssh",
            &format!(
                "cd \"$FAR_HOME\" && mkfifo {pipe} && exec 4<&0\nsh -c \"$2\" <&4 >{pipe} &\nexec 3<{pipe}\n\
                 for line in $(seq {lines}); do read -r text <&3 && echo \"$text\"; done\nwait $!"
            ),
        );
        let summary = Litz::of(&mut far.command(&[&["--json"], &arguments[..]].concat())).succeed();
        assert_eq!(summary["files_done"], count, "{summary}");
        assert_eq!(names(&there).len(), count);
    }
}

/// A far host that was asked for `wanted` sends `other`.
#[test]
fn a_far_host_stores_only_what_was_asked_for() {
    let far = FarHost::new();
    for name in ["wanted", "other"] {
        fs::write(far.home().join(name), name).unwrap();
    }
    let litz = format!("{} \"$@\" --state-dir={}", env!("CARGO_BIN_EXE_litz"), far.text("state-far"));
    // Every path of the request is replaced: `sed` passes on line by line.
    far.program("litz", &format!("sed -u 's/\"Unix\":\\[[0-9,]*\\]/\"Unix\":[111,116,104,101,114]/' | {litz}"));
    let inbox = far.place.inbox();
    let words = "the sender wants to store other, which was not asked for";
    far.fail(&["host:wanted", inbox.to_str().unwrap()], 2, words);
    assert!(names(&inbox).is_empty(), "{:?}", names(&inbox));
    // Nor does it make this host delete anything elsewhere.
    fs::remove_file(far.home().join("other")).unwrap();
    fs::create_dir(far.home().join("other")).unwrap();
    grow(&inbox, &[("wanted/a", "a", 1), ("other/b", "b", 1), ("c", "c", 1)], &[]);
    let before = tree_of(&inbox);
    far.fail(&["--delete", "host:wanted", inbox.to_str().unwrap()], 2, words);
    assert_eq!(tree_of(&inbox), before);
}

/// sshd and both ends in a network namespace with a loopback device.
#[test]
fn ssh_itself_carries_the_request() {
    if !needs::has_root() || !needs::has_programs(&["ssh", "sshd", "ssh-keygen", "ip"]) {
        return;
    }
    let place = Place::new();
    let (server, client) = ssh::configure(place.root.path());
    let file = place.file("file", 1_000_000, 1);
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let inside = |host_path: &str| Path::new(&path("far")).join(host_path).to_str().unwrap().to_owned();
    fs::create_dir(place.path("far")).unwrap();
    let litz = env!("CARGO_BIN_EXE_litz");
    let far_litz = format!("env XDG_STATE_HOME={} {litz}", path("state-far"));
    let send = |from: &str, to: &str| {
        format!(
            "{litz} send -e 'ssh -F {client}' --litz-path '{far_litz}' --state-dir {} '{from}' '{to}'",
            path("state-out")
        )
    };
    let sshd = needs::path_of("sshd").unwrap();
    let script = format!(
        "ip link set lo up && {} -f {server} && {} && {}; status=$?; kill $(ss -Hlntp 'sport = :22' | sed -n \
         's/.*pid=\\([0-9]*\\).*/\\1/p' | sort -u); exit $status",
        sshd.display(),
        send(file.to_str().unwrap(), &format!("127.0.0.1:{}", inside("there"))),
        send(&format!("127.0.0.1:{}", inside("there/file")), &path("in")),
    );
    let (output, text) = run(Command::new("unshare").args(["-n", "sh", "-c", &script]));
    assert!(output.status.success(), "{text}");
    assert_same(&file, &place.path("far").join("there/file"));
    assert_same(&file, &place.inbox().join("file"));
}
