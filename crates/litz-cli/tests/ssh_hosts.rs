//! `litz send PATH... HOST:DIR` and `litz send HOST:PATH... DIR`: with a program in the place of ssh, and with
//! ssh and sshd themselves in a network namespace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    far.fail(&["host:wanted", inbox.to_str().unwrap()], 2, "the sender wants to store other, which was not asked for");
    assert!(names(&inbox).is_empty(), "{:?}", names(&inbox));
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
