//! The layout of the help texts: their width, and the commands in groups.
//!
//! clap wraps options. It does not wrap lists like that of the exit statuses with a hanging indent,
//! and has no groups of commands, so both are written here.

use clap::{Command, CommandFactory};

use super::args::Arguments;
use super::groups::GROUPS;

/// Longer lines are hard to read.
const WIDTH_MAX: usize = 100;

/// If a list has less space than this beside its names, its texts continue below the names.
const TEXT_WIDTH_MIN: usize = 24;

/// The definition of the command line, with help texts for this terminal.
pub(crate) fn command() -> Command {
    let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let columns = columns.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
    command_for(columns.filter(|columns| *columns > 0).unwrap_or(WIDTH_MAX).min(WIDTH_MAX))
}

/// The definition of the command line, with help texts of this width.
pub(crate) fn command_for(width: usize) -> Command {
    let command = Arguments::command().term_width(width);
    let groups = groups(&command, width);
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}");
    wrap_after_help(command.help_template(template), width)
}

/// Wraps the text after the options, of this command and of those below it.
fn wrap_after_help(command: Command, width: usize) -> Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(wrap(&text, width)),
        None => command,
    };
    command.mut_subcommands(|below| wrap_after_help(below, width))
}

/// The commands in their groups, each with the first paragraph of its help.
fn groups(command: &Command, width: usize) -> String {
    let name_len = GROUPS.iter().flat_map(|group| group.commands).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for group in GROUPS {
        text += &format!("{}:\n", group.title);
        for name in group.commands {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            // clap adds the command `help` later.
            let about = about.unwrap_or_else(|| "Print this help, or the help of a command".to_owned());
            let line = format!("  {name:name_len$}  {about}");
            text += &format!("{}\n", wrap(&line, width));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Wraps each line of `text`: one that begins at the left is a paragraph. An indented one is an item
/// of a list, whose further lines begin below the text after its name and two spaces.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| wrap_line(line, width)).collect();
    lines.join("\n")
}

fn wrap_line(line: &str, width: usize) -> String {
    let (start, indent) = text_start(line);
    let indent = if indent + TEXT_WIDTH_MIN > width { line.len() - line.trim_start().len() + 4 } else { indent };
    let mut out = line[..start].to_owned();
    let mut column = out.chars().count();
    let mut is_first = true;
    for word in line[start..].split_whitespace() {
        let length = word.chars().count();
        if !is_first && column + 1 + length > width {
            out = format!("{}\n{:indent$}", out.trim_end(), "");
            (column, is_first) = (indent, true);
        }
        if !is_first {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
        is_first = false;
    }
    out
}

/// Where the text of a line begins, in bytes and in columns: after the spaces that follow its name,
/// or after its indentation.
fn text_start(line: &str) -> (usize, usize) {
    let indent = line.len() - line.trim_start().len();
    if indent == 0 {
        return (0, 0);
    }
    let Some(gap) = line[indent..].find("  ").map(|gap| indent + gap) else { return (indent, indent) };
    let start = line.len() - line[gap..].trim_start().len();
    (start, line[..start].chars().count())
}

#[cfg(test)]
mod tests;
