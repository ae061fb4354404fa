//! The convention for options that name files, as a property of all commands:
//!
//! - `--json` is a flag: the result, or the events, as JSON on standard output. It takes no file.
//! - `--out DIR` writes the results into an existing folder, under names that the help gives.
//! - `--plot FILE` writes an SVG file.
//! - Recordings have an option for each format, in the table below.

use clap::builder::{StyledStr, ValueParser};
use clap::{Arg, ArgAction, Command};

use super::*;

/// Options for results and recordings: their value, and a text of their help.
const OUTPUTS: [(&str, &str, &str); 8] = [
    ("out", "DIR", "into this folder, as "),
    ("plot", "FILE", " to this file, as SVG"),
    ("journal", "DIR", " in this folder"),
    ("keys-in-pcapng", "", "into the same file"),
    ("pcapng", "FILE", " to this file, as pcapng"),
    ("qlog", "DIR", " into this folder"),
    ("trace", "FILE", " to this file"),
    ("trace-scheduler", "FILE", " to this file"),
];

/// Options for files that are read, for the state, sockets and names of devices, and their values.
const OTHERS: [(&str, &str); 12] = [
    ("allow", "FILE"),
    ("daemon", "PATH"),
    ("dir", "DIR"),
    ("name", "NAME"),
    ("output", "FILE"),
    ("profile", "FILE"),
    ("replay", "FILE"),
    ("secret-file", "FILE"),
    ("servers", "FILE"),
    ("socket", "PATH"),
    ("state-dir", "DIR"),
    ("ticket-file", "FILE"),
];

/// All options of all commands, each with the words of its command.
fn options() -> Vec<(String, Arg)> {
    fn collect(command: &Command, path: &str, found: &mut Vec<(String, Arg)>) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        let options = command.get_arguments().filter(|option| option.get_long().is_some());
        found.extend(options.map(|option| (path.clone(), option.clone())));
        command.get_subcommands().for_each(|below| collect(below, &path, found));
    }
    let mut command = command_for(100);
    command.build();
    let mut found = Vec::new();
    collect(&command, "", &mut found);
    found
}

fn long(option: &Arg) -> &str {
    option.get_long().unwrap_or_default()
}

/// The name of the option's value; empty for a flag.
fn value(option: &Arg) -> &str {
    let names = option.get_value_names().filter(|_| option.get_action().takes_values());
    names.and_then(|names| names.first()).map_or("", |name| name.as_str())
}

fn help(option: &Arg) -> String {
    option.get_help().map(StyledStr::to_string).unwrap_or_default()
}

/// Returns how an option breaks the convention, if it does.
fn fault(option: &Arg) -> Option<String> {
    let (long, value, help) = (long(option), value(option), help(option));
    if long == "json" {
        let is_flag = matches!(option.get_action(), ArgAction::SetTrue) && option.get_short().is_none();
        return (!is_flag || !help.starts_with("Print ")).then(|| "--json is a flag that prints".to_owned());
    }
    if let Some((_, expected, text)) = OUTPUTS.iter().find(|(name, ..)| *name == long) {
        let wanted = usize::from(!expected.is_empty());
        let count = option.get_num_args();
        let is_one = count.is_none_or(|count| (count.min_values(), count.max_values()) == (wanted, wanted));
        let is_as_expected = value == *expected && is_one && help.contains(text);
        return (!is_as_expected).then(|| format!("expected the value {expected:?}, and help with {text:?}"));
    }
    if let Some((_, expected)) = OTHERS.iter().find(|(name, _)| *name == long) {
        return (value != *expected).then(|| format!("expected the value {expected:?}"));
    }
    let is_path = option.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    let is_output = ["Write ", "Also write ", "Record "].iter().any(|verb| help.starts_with(verb));
    let is_file = ["FILE", "DIR", "FOLDER"].contains(&value);
    // `--overwrite` and its like write no result.
    (is_file || is_path || is_output && option.get_action().takes_values()).then(|| "it is in no table".to_owned())
}

#[test]
fn options_that_name_files_follow_one_convention() {
    let options = options();
    let faults = options.iter().filter_map(|(command, option)| {
        fault(option).map(|fault| format!("{command} --{} {}: {fault}", long(option), value(option)))
    });
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let names = OUTPUTS.iter().map(|(name, ..)| name).chain(OTHERS.iter().map(|(name, _)| name));
    for name in names.chain([&"json"]) {
        assert!(options.iter().any(|(_, option)| long(option) == *name), "no command has --{name}");
    }
}

/// `--out` says how its files are called and that the folder must exist; what writes a result into files
/// prints it, too.
#[test]
fn results_in_files_are_also_available_on_standard_output() {
    let options = options();
    for (command, option) in options.iter().filter(|(_, option)| ["out", "plot"].contains(&long(option))) {
        assert!(long(option) == "plot" || help(option).contains("; must exist"), "{command}");
        let is_json = |(other, option): &(String, Arg)| other == command && long(option) == "json";
        assert!(command == "litz man" || options.iter().any(is_json), "{command} has no --json");
    }
}

#[test]
fn the_convention_finds_what_breaks_it() {
    let path = || Arg::new("x").value_parser(ValueParser::path_buf());
    for wrong in [
        Arg::new("x").long("json").help("Print the result").num_args(0..=1),
        path().long("out").value_name("FILE").help("Write the result to this file"),
        path().long("out").value_name("DIR").help("Write the result into this folder, as x").num_args(0..=1),
        path().long("plot").value_name("FILE").help("Write a plot to this file, as PNG"),
        path().long("report"),
        Arg::new("x").long("report").value_name("FILE"),
        Arg::new("x").long("report").value_name("WHERE").help("Write a report"),
    ] {
        assert!(fault(&wrong).is_some(), "{wrong:?}");
    }
}
