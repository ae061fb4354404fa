use super::super::wrap::text_start;
use super::*;

const WIDTHS: [usize; 3] = [60, 80, 100];

/// The short and the long help of a command and of all commands below it.
fn all_helps(command: &Command, path: &str, helps: &mut Vec<(String, String)>) {
    let path = format!("{path} {}", command.get_name()).trim().to_owned();
    let mut command = command.clone();
    helps.push((format!("{path} -h"), command.render_help().to_string()));
    helps.push((format!("{path} --help"), command.render_long_help().to_string()));
    for below in command.get_subcommands() {
        all_helps(below, &path, helps);
    }
}

/// The helps at this width, by command.
fn helps_at(width: usize) -> Vec<(String, String)> {
    let mut command = command_for(width);
    command.build();
    let mut helps = Vec::new();
    all_helps(&command, "", &mut helps);
    helps
}

/// All commands below this one that do something, by their words.
fn all_commands(command: &Command, path: &str, all: &mut Vec<(String, Command)>) {
    let path = format!("{path} {}", command.get_name()).trim().to_owned();
    let below = command.get_subcommands().filter(|below| below.get_name() != "help");
    below.for_each(|below| all_commands(below, &path, all));
    all.push((path, command.clone()));
}

/// The exit statuses in a help text.
fn statuses(help: &str) -> Vec<u8> {
    let list = help.split_once("Exit status").map_or("", |(_, list)| list);
    let lines = list.lines().skip(1).take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

#[test]
fn each_command_lists_the_statuses_that_it_returns() {
    let mut all = Vec::new();
    let mut command = command_for(100);
    command.build();
    all_commands(&command, "", &mut all);
    assert!(all.len() > 40, "{} commands", all.len());
    for (path, mut command) in all {
        let help = command.render_long_help().to_string();
        let found = statuses(&help);
        assert!(!found.is_empty(), "{path} lists none");
        let expected: Option<&[u8]> = match path.as_str() {
            "litz" => Some(&[0, 1, 2, 130]),
            // They run until they are interrupted.
            "litz forward serve" | "litz tunnel serve" | "litz tunnel up" => Some(&[2, 130]),
            "litz forward" => Some(&[0, 1, 2, 130]),
            "litz daemon" => Some(&[0, 2, 130]),
            "litz daemon status" | "litz daemon stop" | "litz tunnel status" | "litz tunnel down" => Some(&[0, 2]),
            "litz run" => Some(&[125, 126, 127, 130]),
            _ => None,
        };
        assert!(expected.is_none_or(|expected| found == expected), "{path}: {found:?}");
        assert!(path == "litz forward" || !help.contains("--stdio"), "{path} has no standard input to forward");
    }
}

fn indent(line: &str) -> usize {
    line.chars().take_while(|letter| *letter == ' ').count()
}

/// Whether `next` continues the paragraph or the list item of `line`.
fn continues(line: &str, next: &str) -> bool {
    let is_item = |line: &str| line.trim_start().starts_with(['-', '<', '[']) || line.starts_with("       litz ");
    if next.trim().is_empty() || line.trim().is_empty() || is_item(next) || line.ends_with(':') {
        return false;
    }
    let of_text = text_start(line).1;
    let is_paragraph = indent(line) == indent(next) && (indent(next) == 0 || indent(next) >= 6);
    is_paragraph && text_start(next).1 == indent(next) || of_text > indent(line) && of_text == indent(next)
}

#[test]
fn no_line_of_the_help_is_longer_than_the_terminal() {
    for width in WIDTHS {
        for (command, help) in helps_at(width) {
            for line in help.lines() {
                assert!(line.chars().count() <= width, "{command} at {width}: {line}");
            }
        }
    }
}

#[test]
fn no_line_of_the_help_ends_early() {
    for width in WIDTHS {
        for (command, help) in helps_at(width) {
            let lines: Vec<&str> = help.lines().collect();
            for pair in lines.windows(2).filter(|pair| continues(pair[0], pair[1])) {
                let word = pair[1].split_whitespace().next().unwrap_or_default();
                let joined = pair[0].chars().count() + 1 + word.chars().count();
                assert!(joined > width, "{command} at {width}: {:?} fits behind\n{}", word, pair[0]);
            }
        }
    }
}
