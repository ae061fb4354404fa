//! The commit that the program reports, in checkouts of all kinds, and that every result contains
//! it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

#[path = "../build/commit.rs"]
mod commit;

use commit::{UNKNOWN, find};

/// Runs git in `folder`, with a user name and address.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(folder).args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]);
    // If a hook runs this test, these variables would select the hook's repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"] {
        command.env_remove(name);
    }
    let output = command.args(arguments).output().expect("git is there");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

/// Writes the sources of a workspace like this one.
fn sources(root: &Path) {
    write(root, "Cargo.toml", "[workspace]");
    write(root, "README.md", "Hello");
    write(root, "crates/a/src/lib.rs", "//! A.");
    write(root, "crates/a/tests/a.rs", "//! Tests.");
    write(root, "crates/a/Cargo.toml", "[package]");
}

/// Creates a repository with one commit of these sources. Returns the commit.
fn repository(root: &Path) -> String {
    sources(root);
    git(root, &["init", "-q", "-b", "trunk"]);
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "-m", "One"]);
    git(root, &["rev-parse", "HEAD"])
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn name(root: &Path) -> String {
    find(root).name
}

#[test]
fn a_checkout_is_named_for_its_commit_and_marked_if_its_sources_differ() {
    let folder = folder();
    let root = folder.path();
    let first = repository(root);
    assert_eq!((name(root), first.len()), (first.clone(), 40));
    // Documents and tests are not part of the program.
    write(root, "README.md", "Changed");
    write(root, "crates/a/tests/a.rs", "// Changed");
    assert_eq!(name(root), first);
    write(root, "crates/a/src/lib.rs", "// Changed");
    assert_eq!(name(root), format!("{first}-dirty"));
    git(root, &["commit", "-q", "-a", "-m", "Two"]);
    let second = git(root, &["rev-parse", "HEAD"]);
    assert_eq!(name(root), second);
    assert_ne!(first, second);
    // A source that is not committed.
    write(root, "crates/b/src/lib.rs", "//! B.");
    assert_eq!(name(root), format!("{second}-dirty"));
}

#[test]
fn watched_files_exist_and_change_with_the_name() {
    let folder = folder();
    let root = folder.path();
    repository(root);
    let watched = find(root).watched;
    assert!(
        watched.iter().all(|path| path.exists()),
        "a file that is missing would make every build build: {watched:?}"
    );
    let ends = |end: &str| watched.iter().any(|path| path.ends_with(end));
    for end in ["crates/a/src", "Cargo.toml", ".git/HEAD", ".git/refs/heads/trunk"] {
        assert!(ends(end), "{end}: {watched:?}");
    }
    assert!(!ends(".git") && !ends("crates/a/tests") && !ends(".git/index"), "{watched:?}");
    let text = |watched: &[PathBuf]| -> Vec<_> {
        watched.iter().filter(|path| path.is_file()).map(|path| std::fs::read(path).expect("readable")).collect()
    };
    // Also if the branch has no file yet, which the commit creates.
    git(root, &["pack-refs", "--all"]);
    let watched = find(root).watched;
    let before = text(&watched);
    git(root, &["commit", "-q", "--allow-empty", "-m", "Two"]);
    assert_ne!(text(&watched), before);
}

#[test]
fn a_work_tree_beside_its_repository_and_a_commit_without_a_branch_are_named() {
    let folder = folder();
    let root = folder.path().join("main");
    let first = repository(&root);
    let work_tree = folder.path().join("work_tree");
    git(&root, &["worktree", "add", "-q", "-b", "other", work_tree.to_str().expect("text")]);
    write(&work_tree, "crates/a/src/lib.rs", "// Changed");
    git(&work_tree, &["commit", "-q", "-a", "-m", "Two"]);
    let found = find(&work_tree);
    assert_eq!(found.name, git(&work_tree, &["rev-parse", "HEAD"]));
    assert_eq!(name(&root), first);
    // Its own HEAD, and the branch in the shared repository.
    for end in [".git/worktrees/work_tree/HEAD", "main/.git/refs/heads/other"] {
        assert!(found.watched.iter().any(|path| path.ends_with(end)), "{end}: {:?}", found.watched);
    }
    git(&work_tree, &["checkout", "-q", "--detach", &first]);
    assert_eq!(name(&work_tree), first);
}

#[test]
fn without_its_own_repository_the_commit_is_unknown() {
    let folder = folder();
    sources(&folder.path().join("unpacked"));
    assert_eq!(name(&folder.path().join("unpacked")), UNKNOWN);
    // Unpacked into an unrelated repository.
    repository(folder.path());
    let found = find(&folder.path().join("unpacked"));
    assert_eq!((found.name.as_str(), found.watched.len()), (UNKNOWN, 0));
    let empty = self::folder();
    git(empty.path(), &["init", "-q"]);
    assert_eq!(name(empty.path()), UNKNOWN, "there is no commit yet");
    assert_eq!(name(Path::new("/no/such/folder")), UNKNOWN);
}

fn litz(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    let output = command.args(arguments).current_dir(folder).output().expect("the command starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

const PROFILE: &str = "{\"format\":\"litz-profile\",\"version\":1,\"memory\":{\
    \"sending\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":5000,\"seal.cipher\":2500}}]},\
    \"receiving\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"recv_call\":5000}}]}}}";

const SCENARIO: &str = "version = 1\n[scenario]\nname = 'small'\nabout = 'A test.'\nduration = '5s'\nseeds = 1\n\
    [[link]]\nname = 'a'\nrate = '20Mb/s'\ndelay = '1ms'\n[[workload]]\nkind = 'file'\nsize = '50kB'\n";

/// All results contain the same program, and nothing that differs between two runs.
#[test]
fn every_result_names_the_program_that_made_it() {
    let folder = folder();
    write(folder.path(), "machine.json", PROFILE);
    write(folder.path(), "small.toml", SCENARIO);
    let version = String::from_utf8(litz(folder.path(), &["--version"])).expect("text");
    for arguments in [
        &["study", "run", "002-checksum", "--quick", "--json"][..],
        &["study", "claims", "000-07", "--quick", "--json"],
        &["scenario", "run", "small.toml", "--json"],
        &["scenario", "run", "small.toml", "--world=sim", "--profile=machine.json", "--json"],
        &["predict", "small.toml", "--profile=machine.json", "--processors=2", "--json"],
        &["predict", "--bulk", "--time=50ms", "--profile=machine.json", "--processors=2", "--json"],
    ] {
        let line = litz(folder.path(), arguments);
        let json: Value = serde_json::from_slice(&line).expect("one JSON value");
        let [number, commit] = ["litz_version", "litz_commit"].map(|name| json[name].as_str().expect("a text"));
        assert_eq!(version, format!("litz {number} (commit {commit})\n"), "{arguments:?}");
        let hash = commit.trim_end_matches("-dirty");
        assert!(hash == UNKNOWN || (hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())), "{commit}");
        assert!(litz(folder.path(), arguments) == line, "{arguments:?}: the same again");
    }
}

#[test]
fn a_result_contains_the_conditions_that_it_depends_on() {
    let folder = folder();
    write(folder.path(), "machine.json", PROFILE);
    write(folder.path(), "small.toml", SCENARIO);
    let json = |arguments: &[&str]| -> Value { serde_json::from_slice(&litz(folder.path(), arguments)).expect("JSON") };
    let run = ["scenario", "run", "small.toml", "--json"];
    let world = ["--world=sim", "--profile=machine.json", "--placement=split", "--processors=3", "--congestion=bbr"];
    let result = json(&[&run[..], &world].concat());
    let machine = &result["simulated_machine"];
    assert_eq!(
        (&machine["processors"], &machine["placements"][1]),
        (&serde_json::json!([3, 3]), &"split".into()),
        "{machine}"
    );
    assert_eq!(machine["costs"]["sending"]["stage"], serde_json::json!([[1472.0, 2500.0]]), "{machine}");
    let scenario = &result["scenarios"][0];
    assert_eq!(scenario["transport"]["congestion"], "bbr", "the command line goes before the file");
    assert_eq!(scenario["file_blake3"], blake3::hash(SCENARIO.as_bytes()).to_hex().as_str());
    let in_memory = json(&run);
    assert!(in_memory.get("simulated_machine").is_none() && in_memory.get("machine").is_none(), "{in_memory}");
    let predicted = json(&["predict", "small.toml", "--profile=machine.json", "--processors=2", "--json"]);
    assert_eq!((&predicted["seed"], &predicted["is_shared"]), (&1.into(), &false.into()));
    assert_eq!(predicted["costs"]["receiving"]["call"][0][1], 5000.0, "{predicted}");
    assert_eq!(predicted["file_blake3"], scenario["file_blake3"]);
}
