//! `litz scenario run --world sim --trace --pcapng`: the files, refused arguments, and that no
//! incomplete file is left.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::run::{json, names, run};

const PROFILE: &str = "{\"format\":\"litz-profile\",\"version\":1,\"memory\":{\
    \"sending\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":5000,\"seal.cipher\":5000}}]},\
    \"receiving\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"recv_call\":5000,\"open_absorb.cipher\":5000}}]}}}";

const SCENARIO: &str = "version = 1\n[scenario]\nname = 'small'\nabout = 'A test.'\nduration = '5s'\nseeds = 2\n\
    [[link]]\nname = 'wifi'\nrate = '20Mb/s'\ndelay = '1ms'\n[[link]]\nname = 'lte'\nrate = '10Mb/s'\ndelay = '9ms'\n\
    [[workload]]\nkind = 'file'\nsize = '1MB'\n[[check]]\nkind = 'against-best-path'\nat-least = 0.5\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("machine.json"), PROFILE).expect("written");
    std::fs::write(folder.path().join("small.toml"), SCENARIO).expect("written");
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.args(["scenario", "run"]).args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

fn litz(folder: &Path, arguments: &[&str]) -> (Output, String) {
    run(&mut command(folder, arguments))
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Types of the blocks of a pcapng file, and the interfaces of its packets. Checks the lengths at
/// both ends of blocks and the order of times.
fn blocks(mut file: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let (mut kinds, mut interfaces, mut last) = (Vec::new(), Vec::new(), 0);
    while !file.is_empty() {
        let length = word(file, 4);
        assert!(length.is_multiple_of(4) && word(file, length - 4) == length, "{length}");
        kinds.push(word(file, 0));
        if word(file, 0) == 6 {
            let at = (word(file, 12) << 32) + word(file, 16);
            assert!(at >= last, "{at} ns after {last} ns");
            (last, interfaces) = (at, [interfaces, vec![word(file, 8)]].concat());
        }
        file = &file[length..];
    }
    (kinds, interfaces)
}

#[test]
fn a_run_is_recorded_with_and_without_processors_and_does_not_change() {
    let folder = folder();
    for (number, machine) in [&[][..], &["--profile=machine.json", "--placement=packet(2)"]].into_iter().enumerate() {
        let run = [&["small.toml", "--world=sim", "--json"], machine].concat();
        let (alone, text) = litz(folder.path(), &run);
        assert_eq!(alone.status.code(), Some(0), "{text}");
        let [trace, packets] = ["trace", "pcapng"].map(|what| format!("{number}.{what}"));
        let files = [format!("--trace={trace}"), format!("--pcapng={packets}")];
        let (output, text) = litz(folder.path(), &[&run[..], &[&files[0], &files[1]]].concat());
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(output.stdout == alone.stdout, "recording changes nothing of any run");
        let digests = json(&output.stdout)["scenarios"][0]["runs"].as_array().expect("runs").len();
        assert_eq!(digests, 6, "two seeds, both links and each alone");

        let trace = json(&std::fs::read(folder.path().join(trace)).expect("it is there"));
        let about = trace["otherData"]["about"].as_str().expect("words");
        assert!(about.starts_with("litz ") && about.contains("scenario small, seed 1, paths wifi+lte"), "{about}");
        assert_eq!(about.contains("seal.cipher") || about.contains("\"stage\""), !machine.is_empty(), "{about}");
        let events = trace["traceEvents"].as_array().expect("a list");
        assert_eq!(events.iter().any(|event| event["name"] == "seal"), !machine.is_empty());
        assert!(events.iter().any(|event| event["name"] == "link lte, forward: packets in it"));

        let (kinds, interfaces) = blocks(&std::fs::read(folder.path().join(packets)).expect("it is there"));
        assert_eq!((&kinds[..5], kinds[5]), (&[0x0a0d_0d0a, 1, 1, 1, 1][..], 6), "four ends of two links");
        assert!((0..4).all(|end| interfaces.contains(&end)), "packets at each end of each link");
    }
    assert_eq!(names(folder.path()), ["0.pcapng", "0.trace", "1.pcapng", "1.trace", "machine.json", "small.toml"]);
}

#[test]
fn components_are_printed_after_the_outcome_and_are_in_the_json() {
    let folder = folder();
    let run = ["small.toml", "--world=sim", "--profile=machine.json"];
    let (output, text) = litz(folder.path(), &run);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (checks, components) = text.split_once("\n  seed 1, wifi+lte\n").expect("after the checks");
    assert!(checks.contains("relative to the best path alone"), "{text}");
    for words in ["utilisation  mean queue", "link wifi, forward ", "host b, socket ", "processors of a ", "(driver) "]
    {
        assert!(components.contains(words), "{words}: {text}");
    }
    let (output, _) = litz(folder.path(), &[&run[..], &["--json"]].concat());
    for run in json(&output.stdout)["scenarios"][0]["runs"].as_array().expect("runs") {
        let components = run["components"].as_array().expect("a list");
        assert_eq!(run["events_digest"].as_str().map(str::len), Some(16), "{run}");
        let busy = |name: &str| {
            let of = components.iter().find(|component| component["name"] == name).expect("it is there");
            (of["utilisation"].as_f64().expect("a share"), of["mean_queue"].as_f64().expect("a number"))
        };
        let link = format!("link {}, forward", run["paths"][0].as_str().expect("a name"));
        let (share, queue) = busy(&link);
        assert!((0.3..=1.0).contains(&share) && queue > 0.0, "{share}, {queue}");
        // Ten microseconds per packet, twenty times as fast as the link.
        assert!((0.0..0.2).contains(&busy("processors of a").0), "{run}");
    }
    // Not computed in the memory world.
    let (_, text) = litz(folder.path(), &["small.toml"]);
    assert!(!text.contains("utilisation"), "{text}");
}

#[test]
fn unrecordable_runs_are_refused_before_they_start() {
    let folder = folder();
    std::fs::write(folder.path().join("there"), "mine").expect("written");
    std::fs::write(folder.path().join("other.toml"), SCENARIO.replace("small", "other")).expect("written");
    std::fs::create_dir(folder.path().join("in")).expect("a folder");
    #[cfg(unix)]
    std::os::unix::fs::symlink("in", folder.path().join("to")).expect("a link");
    let before = names(folder.path());
    for (arguments, words) in [
        (&["small.toml", "--trace=t"][..], "--trace records a simulated run: add --world sim"),
        (&["small.toml", "--pcapng=t", "--world=memory"], "--pcapng records a simulated run: add --world sim"),
        (
            &["small.toml", "other.toml", "--world=sim", "--trace=t"],
            "one scenario, not of 2: give a single scenario file",
        ),
        (&["small.toml", "--world=sim", "--trace=there"], "there already exists: remove it, or choose another name"),
        (&["small.toml", "--world=sim", "--pcapng=none/t"], "cannot write none/t: "),
        (&["small.toml", "--world=sim", "--trace=."], ". already exists"),
        (&["small.toml", "--world=sim", "--trace=t", "--pcapng=t"], "--trace and --pcapng name the same file"),
        (
            &["small.toml", "--world=sim", "--pcapng=in/scenarios.json", "--out=in"],
            "--pcapng and --out name the same file",
        ),
        (&["small.toml", "--world=sim", "--trace=scenarios.json", "--out=."], "--trace and --out name the same file"),
        (
            &["small.toml", "--world=sim", "--trace=in/../scenarios.json", "--out=."],
            "--trace and --out name the same file",
        ),
        #[cfg(unix)]
        (&["small.toml", "--world=sim", "--trace=in/t", "--pcapng=to/t"], "--trace and --pcapng name the same file"),
        (&["small.toml", "--out=none"], "--out: there is no folder none"),
        (&["small.toml", "--plot=in"], "cannot write in: "),
        (&["none.toml", "--world=sim", "--trace=t"], "none.toml"),
    ] {
        let (output, text) = litz(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    assert_eq!(names(folder.path()), before, "nothing was made");
    assert_eq!(std::fs::read(folder.path().join("there")).expect("readable"), b"mine");
}

#[test]
fn a_failed_check_keeps_the_files() {
    let folder = folder();
    let hard = SCENARIO.replace("at-least = 0.5", "at-least = 9").replace("small", "hard");
    std::fs::write(folder.path().join("hard.toml"), hard).expect("written");
    let (output, text) = litz(folder.path(), &["hard.toml", "--world=sim", "--trace=t", "--seed=3"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("seed 3, wifi+lte, recorded"), "{text}");
    let trace = json(&std::fs::read(folder.path().join("t")).expect("it is there"));
    assert!(trace["otherData"]["about"].as_str().expect("words").contains("seed 3"));
}

#[test]
fn an_interrupt_leaves_no_incomplete_file() {
    let folder = folder();
    // An hour at a gigabit per second would take minutes.
    let long = SCENARIO.replace("5s", "1h").replace("20Mb/s", "1Gb/s").replace("size = '1MB'\n", "");
    std::fs::write(folder.path().join("long.toml"), long).expect("written");
    let before = names(folder.path());
    let mut child = command(folder.path(), &["long.toml", "--world=sim", "--trace=t", "--pcapng=p", "--seed=1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // The signal handlers are installed before both files are created.
    while names(folder.path()).len() < before.len() + 2 {
        assert!(child.try_wait().expect("it is ours").is_none(), "it runs for long");
        std::thread::yield_now();
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("the child is ours");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(folder.path()), before);
}
