//! `litz scenario`: what it prints and how it ends.

use std::path::Path;
use std::process::{Command, Output};

/// A link of 20 Mb/s, half a megabyte over it, and a check that says how much of the rate must be used.
fn file(at_least: &str) -> String {
    format!(
        "version = 1\n[scenario]\nname = 'small'\nabout = 'A test.'\nduration = '5s'\nseeds = 2\n\
         [[link]]\nname = 'a'\nrate = '20Mb/s'\ndelay = '1ms'\n[[workload]]\nkind = 'file'\nsize = '500kB'\n\
         [[check]]\nkind = 'share-of-capacity'\nat-least = {at_least}\n"
    )
}

fn litz(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_litz"))
        .arg("scenario")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, text)
}

#[test]
fn a_scenario_that_holds_ends_with_zero_and_writes_the_same_json_each_time() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), file("0.5")).expect("written");
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--json", "one.json"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("small in memory, seeds 1 to 2") && text.contains("share-of-capacity file"), "{text}");
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--jobs", "1", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let one = std::fs::read(folder.path().join("one.json")).expect("it was written");
    assert!(one == output.stdout, "one job and several give the same");
    let json: serde_json::Value = serde_json::from_slice(&one).expect("it is JSON");
    assert_eq!((json["format"].as_str(), json["version"].as_u64()), (Some("litz-scenario-result"), Some(1)));
    assert_eq!(json["scenarios"][0]["runs"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["scenarios"][0]["runs"][0]["workload"][0]["delivered_bytes"], 500_000);
}

#[test]
fn a_check_that_does_not_hold_ends_with_one() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), file("1.5")).expect("written");
    let (output, text) = litz(folder.path(), &["run", "small.toml", "--seed", "3"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("FAILED") && text.contains("checks failed: small"), "{text}");
}

#[test]
fn what_is_wrong_ends_with_two_and_names_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("bad.toml"), file("0.5").replace("rate", "speed")).expect("written");
    for arguments in [&["check", "bad.toml"][..], &["run", "bad.toml"], &["list", "."]] {
        let (output, text) = litz(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("bad.toml:9: link.speed: unknown key; allowed here: "), "{text}");
    }
    std::fs::write(folder.path().join("good.toml"), file("0.5")).expect("written");
    for (arguments, words) in [
        (&["run", "good.toml", "--paths", "b"][..], "there is no path \"b\"; the scenario has a"),
        (&["run", "good.toml", "--world", "netns"], "--world netns is not built yet"),
    ] {
        let (output, text) = litz(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn the_shipped_scenarios_are_listed_and_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (output, text) = litz(&root, &["list"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        output.stdout.iter().filter(|&&byte| byte == b'\n').count() >= 12 && text.contains("leaving-wifi"),
        "{text}"
    );
    let (output, text) = litz(&root, &["check", "scenarios"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
}
