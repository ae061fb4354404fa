//! `litz completions` and `litz man`: files for packagers, made from the definition of the command
//! line.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{exit, out};

/// The end of the help text of `completions`.
pub(crate) const COMPLETIONS_HELP: &str = "\
Example:
  litz completions bash > /usr/share/bash-completion/completions/litz

Exit status:
  0    the script was printed
  2    an error: an unknown shell";

/// The end of the help text of `man`.
pub(crate) const MAN_HELP: &str = "\
Examples:
  litz man | man -l -
  litz man scenario run | man -l -
  litz man --out /usr/share/man/man1

Exit status:
  0    the pages were written
  2    an error: an unknown command, a folder that cannot be written";

/// Manual pages do not depend on the terminal: `man` wraps them.
pub(crate) const UNWRAPPED: usize = usize::MAX;

#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// Shell that the script is for
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManOptions {
    /// Command whose page to print, such as send or tunnel up [default: that of litz]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,

    /// Write a page for each command into this folder, as litz.1, litz-send.1 and so on; must exist
    /// [default: print litz.1]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the script for `command`.
pub(crate) fn run_completions(options: &CompletionsOptions, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "litz", &mut script);
    out::print(&String::from_utf8_lossy(&script));
    ExitCode::from(exit::DONE)
}

/// Prints or writes the pages of `command`, whose texts are [`UNWRAPPED`].
pub(crate) fn run_man(options: &ManOptions, command: Command) -> ExitCode {
    let done = match &options.out {
        Some(folder) => write_pages(folder, command),
        None => page_of(command, &options.command).map(|page| out::print(&String::from_utf8_lossy(&page))),
    };
    match done {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(message) => exit::fail(false, exit::FAILED, &message),
    }
}

fn write_pages(folder: &Path, command: Command) -> Result<(), String> {
    write_page(folder, &built(command))
}

/// The command with the full names of those below it, which get the global options.
fn built(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

/// The page of the command with these names below `command`, of which there may be none.
fn page_of(command: Command, names: &[String]) -> Result<Vec<u8>, String> {
    let command = built(command);
    let below = names.iter().try_fold(&command, |command, name| {
        command.find_subcommand(name).ok_or_else(|| {
            let known: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
            let known: Vec<_> = known.into_iter().map(Command::get_name).collect();
            let of = command.get_display_name().unwrap_or("litz").replace('-', " ");
            match known[..] {
                [] => format!("{of} has no commands below it, so there is no page of {name:?}"),
                _ => format!("{of} has no command {name:?}, but {}", known.join(", ")),
            }
        })
    })?;
    page(below.clone()).map_err(|error| error.to_string())
}

/// Writes the page of a command and of all commands below it.
fn write_page(folder: &Path, command: &Command) -> Result<(), String> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    let written = page(command.clone()).and_then(|page| std::fs::write(&path, page));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    command.get_subcommands().try_for_each(|below| write_page(folder, below))
}

/// The page of a command. Its synopsis is the usage in the help, with the values: that of the library
/// has only the names of the options.
fn page(mut command: Command) -> io::Result<Vec<u8>> {
    let usage = command.render_usage().to_string();
    let (has_subcommands, has_after_help) = (command.has_subcommands(), command.get_after_help().is_some());
    let has_version = command.get_version().is_some();
    // The version in the help has the commit, which is too long for the title.
    let man = Man::new(command).source(concat!("litz ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend_from_slice(synopsis(&usage).as_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    if has_after_help {
        man.render_extra_section(&mut page)?;
    }
    if has_version {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// The section with the usage, one line for each form of the command.
fn synopsis(usage: &str) -> String {
    let forms = usage.trim_start_matches("Usage:").lines().map(str::trim).filter(|line| !line.is_empty());
    let forms = forms.map(|line| format!("{}\n", line.replace('\\', "\\\\").replace('-', "\\-")));
    format!(".SH SYNOPSIS\n.nf\n{}.fi\n", forms.collect::<String>())
}
