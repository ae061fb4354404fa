//! What packagers take from the command: manual pages, completions and the version.

use std::process::Command;

use crate::support::run::{json, names, run};

fn litz() -> Command {
    Command::new(env!("CARGO_BIN_EXE_litz"))
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let (output, text) = run(litz().args(["man", "--out"]).arg(folder.path()));
    assert!(output.status.success(), "{text}");
    let pages = names(folder.path());
    for page in ["litz.1", "litz-send.1", "litz-recv.1", "litz-emulate-relay.1", "litz-man.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    let page = std::fs::read_to_string(folder.path().join("litz-send.1")).unwrap();
    assert!(page.contains(".SH NAME\nlitz\\-send \\- Send files") && page.contains("Exit status:"), "{page}");
    let synopsis = ".SH SYNOPSIS\n.nf\nlitz send [OPTIONS] <PATH>... <TICKET>\nlitz send [OPTIONS] <PATH>... \
                    <[USER@]HOST>:[DIR]\nlitz send [OPTIONS] <[USER@]HOST>:<PATH>... <DIR>\nlitz send [OPTIONS] \
                    <PATH>... \\-\\-to <TICKET>\n";
    assert!(page.contains(synopsis), "{page}");
    let (output, text) = run(litz().arg("man"));
    assert!(output.status.success() && text.contains(".TH litz 1"), "{text}");
    let title = text.lines().find(|line| line.starts_with(".TH")).unwrap();
    assert!(title.contains(env!("CARGO_PKG_VERSION")) && !title.contains("commit"), "{title}");
    for (command, name) in [(&["send"][..], "litz\\-send"), (&["tunnel", "up"], "litz\\-tunnel\\-up")] {
        let (output, text) = run(litz().arg("man").args(command));
        assert!(output.status.success() && text.contains(&format!(".SH NAME\n{name} ")), "{text}");
    }
    for (command, expected) in [(&["sned"][..], "litz has no command \"sned\""), (&["send", "x"], "litz send has no")] {
        let (output, text) = run(litz().arg("man").args(command));
        assert!(output.status.code() == Some(2) && text.contains(expected), "{text}");
    }
    let (output, text) = run(litz().args(["man", "--out", "/nowhere/at/all"]));
    assert!(output.status.code() == Some(2) && text.contains("cannot write /nowhere/at/all"), "{text}");
}

/// The units in the packages are those of the guides, but for the place of the command.
#[test]
fn the_packaged_units_are_those_of_the_guides() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let in_guide = |guide: &str| -> String {
        let text = read(&format!("docs/guide/{guide}.md"));
        let unit = text.split("```ini\n").find(|block| block.starts_with("[Unit]\n")).expect(guide);
        let unit = unit.split("```").next().expect("its text");
        unit.replace("/usr/local/bin/", "/usr/bin/")
    };
    let packaged = |name: &str| read(&format!("packaging/systemd/{name}.service"));
    for (guide, name) in [("tunnel", "litz-tunnel"), ("listed-keys", "litz-recv"), ("run", "litz-daemon")] {
        assert_eq!(packaged(name), in_guide(guide), "{name}");
    }
    let server = in_guide("tunnel").replace("Litz tunnel\n", "Litz tunnel, the server\n");
    let server = server.replace("tunnel up", "tunnel serve").replace("/up.toml", "/serve.toml");
    assert_eq!(packaged("litz-tunnel-server"), server);
}

#[test]
fn completions_name_the_commands_and_their_options() {
    for shell in ["bash", "zsh", "fish"] {
        let (output, text) = run(litz().args(["completions", shell]));
        assert!(output.status.success() && text.contains("recv") && text.contains("ticket-file"), "{shell}: {text}");
    }
    let (output, text) = run(litz().args(["completions", "dos"]));
    assert!(output.status.code() == Some(2) && text.contains("bash"), "{text}");
}

#[test]
fn the_version_names_the_protocols() {
    let (output, text) = run(litz().arg("version"));
    assert!(output.status.success() && text.starts_with(&format!("litz {}", env!("CARGO_PKG_VERSION"))), "{text}");
    let value = json(&litz().args(["version", "--json"]).output().unwrap().stdout);
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&value["quic"][0], &value["protocols"][0]), (&1.into(), &"litz/1".into()));
    assert_eq!((&value["forward"], &value["tunnel"]), (&"litz-forward/1".into(), &"litz-tunnel/1".into()));
    assert!(value["commit"].is_null() || value["commit"].as_str().is_some_and(|commit| commit.len() >= 40), "{value}");
}
