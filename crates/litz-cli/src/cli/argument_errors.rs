//! Errors of the arguments, in plain words: as text, or as an event if the arguments ask for JSON.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Error;
use clap::error::ErrorKind;

use super::forward::LITZ_FAILED;
use super::{colour, exit, out};

/// What the standard library says of a value that it cannot read, and what the user reads instead.
const PLAIN_WORDS: [(&str, &str); 8] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number"),
    ("invalid socket address syntax", "expected ADDRESS:PORT, such as 192.0.2.7:4433 or [2001:db8::1]:4433"),
    ("invalid IP address syntax", "expected an IP address, such as 192.0.2.7"),
];

/// Prints the error, or the help that the arguments ask for; returns the exit status.
pub(super) fn print(error: &Error, arguments: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        let text = error.render();
        let is_coloured = out::is_terminal() && colour::is_permitted();
        out::print(&if is_coloured { text.ansi().to_string() } else { text.to_string() });
        return ExitCode::from(exit::DONE);
    }
    let text = error.render();
    if is_json(arguments) {
        if is_data_on_output(arguments) {
            out::redirect();
        }
        return exit::fail(true, status(arguments), &message(&in_plain_words(&text.to_string())));
    }
    let text = if colour::is_wanted() { text.ansi().to_string() } else { text.to_string() };
    out::note(in_plain_words(&text).trim_end());
    if let Some(tip) = tip(error, arguments) {
        out::note(tip);
    }
    ExitCode::from(status(arguments))
}

/// The status of an error in these arguments. Those of `litz run` leave 2 to the program, as env(1) does.
fn status(arguments: &[OsString]) -> u8 {
    if command(arguments).is_some_and(|name| name == "run") { LITZ_FAILED } else { exit::FAILED }
}

/// How to correct arguments of `litz run` without the two dashes before the program.
fn tip(error: &Error, arguments: &[OsString]) -> Option<&'static str> {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let is_taken = command(arguments)? == "run" && error.kind() == ErrorKind::UnknownArgument && !has("--");
    is_taken.then_some("tip: write `--` before the program, as in `litz run TICKET -- curl URL`")
}

/// The name of the command.
fn command(arguments: &[OsString]) -> Option<&OsString> {
    arguments.iter().skip(1).find(|argument| !is_option(argument))
}

/// Whether the arguments, which could not be parsed, ask for JSON on standard output.
fn is_json(arguments: &[OsString]) -> bool {
    let mut options = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    options.any(|argument| argument == "--json")
}

/// Whether received data would go to standard output, as with `litz recv -o -`.
fn is_data_on_output(arguments: &[OsString]) -> bool {
    let is_output = |argument: &str| ["-o", "-o-", "--output", "--output=-"].contains(&argument);
    arguments.iter().filter_map(|argument| argument.to_str()).any(is_output)
}

fn is_option(argument: &OsStr) -> bool {
    argument.as_encoded_bytes().first() == Some(&b'-')
}

fn in_plain_words(text: &str) -> String {
    PLAIN_WORDS.iter().fold(text.to_owned(), |text, (theirs, plain)| text.replace(theirs, plain))
}

/// The error in one line, without the usage and without the word `error`.
fn message(text: &str) -> String {
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| text.find(end)).min();
    let text = text.get(..end.unwrap_or(text.len())).unwrap_or(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn errors_of_run_have_a_status_that_programs_leave_free() {
        for (line, expected) in [("litz run --bogus -- true", 125), ("litz -v run", 125), ("litz send run", 2)] {
            assert_eq!(status(&arguments(line)), expected, "{line}");
        }
    }

    #[test]
    fn arguments_in_a_wrong_order_get_a_tip() {
        for (line, expected) in [
            ("litz run litz1abc curl x", true),
            ("litz run litz1abc curl -s x", true),
            ("litz run --bogus litz1abc -- curl", false),
            ("litz send --bogus", false),
        ] {
            let error = help::command().try_get_matches_from(line.split(' ')).expect_err(line);
            assert_eq!(tip(&error, &arguments(line)).is_some(), expected, "{line}");
        }
    }

    fn message_of(line: &str) -> String {
        let error = help::command().try_get_matches_from(line.split(' ')).expect_err(line);
        message(&in_plain_words(&error.render().to_string()))
    }

    #[test]
    fn messages_are_one_line_in_plain_words() {
        for (line, expected) in [
            ("litz demo --seed x", "invalid value 'x' for '--seed <SEED>': expected a whole number"),
            ("litz recv --json --expires", "a value is required for '--expires <TIME>' but none was supplied"),
        ] {
            assert_eq!(message_of(line), expected);
        }
        let address = message_of("litz send a b --bind 127.0.0.1:22x");
        assert!(address.ends_with("expected ADDRESS:PORT, such as 192.0.2.7:4433 or [2001:db8::1]:4433"), "{address}");
    }

    #[test]
    fn arguments_that_ask_for_json_are_found_though_others_are_wrong() {
        for (line, expected) in [
            ("litz recv --json --nonsense", true),
            ("litz -v send --json", true),
            ("litz recv --nonsense", false),
            ("litz send -- --json", false),
            ("litz scenario run --json", true),
        ] {
            assert_eq!(is_json(&arguments(line)), expected, "{line}");
        }
    }
}
