//! The layout of the help texts: their width, and the commands in groups.
//!
//! clap wraps options. It does not wrap lists like that of the exit statuses with a hanging indent,
//! and has no groups of commands, so both are written here.

use clap::{Command, CommandFactory};

use super::args::Arguments;
use super::groups::GROUPS;
use super::wrap::wrap;

/// Longer lines are hard to read.
const WIDTH_MAX: usize = 100;

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

#[cfg(test)]
mod file_options;
#[cfg(test)]
mod tests;
