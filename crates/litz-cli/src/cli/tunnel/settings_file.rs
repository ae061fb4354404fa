//! A file with the options of `litz tunnel serve` or `litz tunnel up`, instead of arguments.
//!
//! Each key of the file is the name of an option, without the dashes before it; the value is the option's,
//! a list of values for an option that may be repeated, or true for one that has none. So the file is turned
//! into arguments, which the same code reads. Tables are no options: see [`clients`](super::clients).

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use litz::paths::{ChooseError, PathSpec, Request, choose};
use toml::de::{DeTable, DeValue};
use transfer::Ticket;

/// The longest file: thousands of clients.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The mode bits that let others than the owner read and write.
const OTHERS_READ: u32 = 0o044;
const OTHERS_WRITE: u32 = 0o022;

/// The key of the ticket, which is no option with a name.
const TICKET: &str = "ticket";

/// The name of the tables with clients.
const CLIENT: &str = "client";

/// Whether an argument names a file of settings.
pub(super) fn is_settings_file(argument: &std::ffi::OsStr) -> bool {
    Path::new(argument).extension().is_some_and(|extension| extension == "toml")
}

/// The content of the file. Only its owner may write it, since it says whose packets go where.
///
/// # Errors
/// A message for the user.
pub(in crate::cli) fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(format!("cannot read {shown}: it is no regular file, or longer than 4 MiB"));
    }
    if metadata.permissions().mode() & OTHERS_WRITE != 0 {
        return Err(format!("other users may write {shown}: run `chmod go-w {shown}`, and check what is in it"));
    }
    std::fs::read_to_string(path).map_err(cannot)
}

/// An error in the file, at a byte of its text.
pub(in crate::cli) fn error_at(path: &Path, text: &str, at: usize, why: &str) -> String {
    error_on_line(path, line_at(text, at), why)
}

/// The line of a byte of the text, from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// An error in the file, on a line of its text.
pub(super) fn error_on_line(path: &Path, line: usize, why: &str) -> String {
    format!("{}, line {line}: {why}", path.display())
}

/// An error of the format.
pub(in crate::cli) fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> String {
    error_at(path, text, error.span().map_or(0, |span| span.start), error.message())
}

/// What is said of a table that is written as if there were no others.
pub(in crate::cli) fn one_of_several(table: &str) -> String {
    format!("there may be several tables `{table}`: write [[{table}]] instead of [{table}]")
}

/// Where the table `table` is in a file that has one instead of a list of them.
pub(in crate::cli) fn single_table(text: &str, table: &str) -> Option<usize> {
    let file = DeTable::parse(text).ok()?;
    let (_, value) = file.get_ref().iter().find(|(key, _)| key.get_ref().as_ref() == table)?;
    matches!(value.get_ref(), DeValue::Table(_)).then(|| value.span().start)
}

/// The options in a file, as arguments of a command.
#[derive(Debug)]
pub(super) struct SettingsFile {
    /// Each argument, and where its key is in the text.
    arguments: Vec<(OsString, usize)>,
    /// The number of the ticket among the arguments.
    ticket: Option<usize>,
}

impl SettingsFile {
    /// Reads the options of `command`, whose name for the user is `name`.
    ///
    /// # Errors
    /// A message for the user, with the line.
    pub(super) fn parse(path: &Path, text: &str, command: &Command, name: &str) -> Result<Self, String> {
        let table = DeTable::parse(text).map_err(|error| syntax_error(path, text, &error))?;
        let mut keys: Vec<_> = table.get_ref().iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let (mut arguments, mut ticket) = (Vec::new(), None);
        for (key, value) in keys {
            let (at, key) = (key.span().start, key.get_ref().as_ref());
            let fails = |why: String| error_at(path, text, at, &why);
            match value.get_ref() {
                DeValue::Array(_) if key == CLIENT && name.ends_with("serve") => {}
                DeValue::Table(_) if key == CLIENT && name.ends_with("serve") => {
                    return Err(fails(one_of_several(CLIENT)));
                }
                DeValue::String(text) if key == TICKET && name.ends_with("up") => {
                    ticket = Some(arguments.len());
                    arguments.push((text.as_ref().into(), at));
                }
                value => {
                    let option = command.get_arguments().find(|option| option.get_long() == Some(key));
                    let Some(option) = option else {
                        return Err(fails(format!("`{key}` is no option of `{name}`, see `{name} --help`")));
                    };
                    let takes_value = option.get_action().takes_values();
                    for argument in values(value).map_err(|why| fails(format!("`{key}` {why}")))? {
                        match (argument, takes_value) {
                            (Value::Text(text), true) => arguments.push((format!("--{key}={text}").into(), at)),
                            (Value::Is(true), false) => arguments.push((format!("--{key}").into(), at)),
                            (Value::Is(false), false) => {}
                            (Value::Text(_), false) => return Err(fails(format!("`{key}` is either true or false"))),
                            (Value::Is(_), true) => return Err(fails(format!("`{key}` has a value, in quotes"))),
                        }
                    }
                }
            }
        }
        Ok(Self { arguments, ticket })
    }

    /// Refuses a file with a ticket, which is a secret, that others may read.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn refuse_open_secret(&self, path: &Path) -> Result<(), String> {
        let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        if self.ticket.is_some() && mode & OTHERS_READ != 0 {
            let shown = path.display();
            return Err(format!("other users may read {shown}, which has a ticket in it: run `chmod go-r {shown}`"));
        }
        Ok(())
    }

    /// Checks what is checked elsewhere when the command runs, but without the line: the ticket, and whether
    /// this host has the places of paths.
    ///
    /// # Errors
    /// A message for the user, with the line.
    pub(super) fn check(&self, path: &Path, text: &str) -> Result<(), String> {
        if let Some((ticket, at)) = self.ticket.and_then(|ticket| self.arguments.get(ticket)) {
            // The text is not repeated in the message: it may be a secret with a typing error.
            let parsed = ticket.to_string_lossy().parse::<Ticket>();
            let fails = |error| format!("`{TICKET}` must be the ticket that `litz tunnel serve` printed: {error}");
            parsed.map_err(|error| error_at(path, text, *at, &fails(error)))?;
        }
        let places = |argument: &OsString| argument.to_str()?.strip_prefix("--path=")?.parse::<PathSpec>().ok();
        let paths: Vec<_> = self.arguments.iter().filter_map(|(argument, at)| Some((places(argument)?, *at))).collect();
        if paths.is_empty() {
            return Ok(());
        }
        // If they cannot be read now, the command says so when it connects.
        let Ok(interfaces) = net::interfaces() else { return Ok(()) };
        for (spec, at) in paths {
            let request = Request::new(&interfaces, &[]).with_paths(std::slice::from_ref(&spec));
            let chosen = choose(&request, &mut |_, _, _| Ok(()));
            if let Err(error @ (ChooseError::UnknownInterface { .. } | ChooseError::NotOurAddress { .. })) = chosen {
                return Err(error_at(path, text, at, &format!("`path`: {error}")));
            }
        }
        Ok(())
    }

    /// The arguments, without the one of this number.
    pub(super) fn arguments(&self, left_out: Option<usize>) -> impl Iterator<Item = OsString> + '_ {
        let kept = self.arguments.iter().enumerate().filter(move |(number, _)| Some(*number) != left_out);
        kept.map(|(_, (argument, _))| argument.clone())
    }

    /// The message for an error of the arguments: with the line, if it is about one of the file.
    /// `is_right_without` tells whether the arguments have no error without the one of a number.
    pub(super) fn explain(
        &self,
        path: &Path,
        text: &str,
        error: &Error,
        is_right_without: impl Fn(usize) -> bool,
    ) -> String {
        if error.kind() == ErrorKind::MissingRequiredArgument {
            return self.explain_missing(path, text, error, is_right_without);
        }
        let message = error.to_string();
        let message = message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let about = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option)) => option.split([' ', '=']).next().map(str::to_owned),
            _ => None,
        };
        let is_about = |argument: &OsString| option_of(argument).is_some_and(|name| Some(name) == about.as_deref());
        match self.arguments.iter().find(|(argument, _)| is_about(argument)) {
            Some((_, at)) => error_at(path, text, *at, &message),
            None => message,
        }
    }

    /// The message if another key is missing, which one of the file needs.
    fn explain_missing(
        &self,
        path: &Path,
        text: &str,
        error: &Error,
        is_right_without: impl Fn(usize) -> bool,
    ) -> String {
        let missing: Vec<String> = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(options)) => options.iter().map(|option| key_of(option)).collect(),
            Some(ContextValue::String(option)) => vec![key_of(option)],
            _ => Vec::new(),
        };
        let missing = missing.join(" and ");
        let needs = (0..self.arguments.len()).find(|number| is_right_without(*number));
        let needs = needs.and_then(|number| self.arguments.get(number));
        match needs.and_then(|(argument, at)| Some((option_of(argument)?, at))) {
            Some((option, at)) => error_at(path, text, *at, &format!("{} needs {missing}, too", key_of(option))),
            None => format!("{}: {missing} is missing", path.display()),
        }
    }
}

/// The option that an argument has.
fn option_of(argument: &OsString) -> Option<&str> {
    argument.to_str()?.split('=').next()
}

/// An option as the key of a file.
fn key_of(option: &str) -> String {
    format!("`{}`", option.split([' ', '=']).next().unwrap_or_default().trim_start_matches("--"))
}

enum Value {
    Text(String),
    Is(bool),
}

fn values(value: &DeValue<'_>) -> Result<Vec<Value>, &'static str> {
    Ok(vec![match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Text(number.to_string()),
        DeValue::Boolean(is) => Value::Is(*is),
        DeValue::Array(list) => {
            let each: Result<Vec<_>, _> = list.iter().map(|value| values(value.get_ref())).collect();
            return Ok(each?.into_iter().flatten().collect());
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => {
            return Err("has a value of another kind: write it in quotes");
        }
    }])
}

#[cfg(test)]
mod tests {
    use clap::Args;
    use litz::identity::Fingerprint;
    use transfer::{Secret, TicketAddress};

    use super::*;
    use crate::cli::tunnel::serve::ServeOptions;
    use crate::cli::tunnel::up::UpOptions;

    fn serve(text: &str) -> Result<Vec<String>, String> {
        parse(text, &ServeOptions::augment_args(Command::new("serve")), "litz tunnel serve")
    }

    fn up(text: &str) -> Result<Vec<String>, String> {
        parse(text, &UpOptions::augment_args(Command::new("up")), "litz tunnel up")
    }

    fn parse(text: &str, command: &Command, name: &str) -> Result<Vec<String>, String> {
        let path = Path::new("a.toml");
        let file = SettingsFile::parse(path, text, command, name)?;
        file.check(path, text)?;
        let parse = |left_out| {
            let arguments = [OsString::from("command")].into_iter().chain(file.arguments(left_out));
            command.clone().try_get_matches_from(arguments)
        };
        match parse(None) {
            Ok(_) => Ok(file.arguments(None).map(|argument| argument.into_string().unwrap()).collect()),
            Err(error) => Err(file.explain(path, text, &error, |left_out| parse(Some(left_out)).is_ok())),
        }
    }

    fn ticket() -> String {
        let address = TicketAddress::Socket("127.0.0.1:4433".parse().unwrap());
        let (receiver, secret) = (Fingerprint::from_bytes([7; 32]), Secret::from_bytes([9; 16]));
        Ticket::new(vec![address], receiver, secret, 1 << 39).to_text().unwrap()
    }

    #[test]
    fn each_key_is_an_option() {
        let text = "address = ['10.8.0.1/24', 'fd08::1/64']\nmtu = 9000\nnew-ticket = true\nquiet = false\n[[client]]\nkey = 'x'";
        let arguments = serve(text).unwrap();
        assert_eq!(arguments, ["--address=10.8.0.1/24", "--address=fd08::1/64", "--mtu=9000", "--new-ticket"]);
        let ticket = ticket();
        let text = format!("ticket = '{ticket}'\nall = true\nkill-switch = true\npath = ['lo', 'lo,backup']");
        assert_eq!(up(&text).unwrap(), [&ticket, "--all", "--kill-switch", "--path=lo", "--path=lo,backup"]);
    }

    #[test]
    fn errors_name_the_line() {
        let check = |error: &str, line: usize, words: &str| {
            assert!(error.starts_with(&format!("a.toml, line {line}: ")) && error.contains(words), "{error}");
        };
        for (text, line, words) in [
            ("mtu = 1400\nmtoo = 1400", 2, "`mtoo` is no option of `litz tunnel serve`"),
            ("\nmtu = 12", 2, "--mtu"),
            ("mtu = 14.5", 1, "quotes"),
            ("mtu = true", 1, "has a value"),
            ("new-ticket = 'yes'", 1, "either true or false"),
            ("mtu = ", 1, ""),
            ("mtu = 1400\n\nmtu = 1500", 3, "duplicate key"),
            ("address = ['10.8.0.1/24',\n '10.8.0/24']", 1, "--address"),
            ("ticket = 'litz1'", 1, "no option"),
            ("mtu = 1400\n[client]\nkey = 'x'", 2, "write [[client]] instead of [client]"),
            ("mtu = 1400\ntun = 'a-name-that-is-long'", 2, "at most 15 bytes"),
        ] {
            check(&serve(text).unwrap_err(), line, words);
        }
        let mistyped = format!("{}x", ticket());
        let mistyped = format!("all = true\nticket = '{mistyped}'");
        for (text, line, words) in [
            ("mtu = 1400\nkill-switch = true", 2, "`kill-switch` needs `all`, too"),
            (&mistyped, 2, "`ticket` must be the ticket that `litz tunnel serve` printed: "),
            ("ticket = '--all'", 1, "`ticket` must be"),
            ("\npath = ['lo', 'nosuch0']", 2, "no interface is called nosuch0"),
            ("\npath = '203.0.113.99'", 2, "does not have the address"),
            ("path = 'eth0,fast'", 1, "backup"),
            ("tun = 'a/b'", 1, "no name of a network device"),
            ("userspace = true\ndns = true", 1, "cannot be used with"),
        ] {
            let error = up(text).unwrap_err();
            check(&error, line, words);
            assert!(!error.contains(&ticket()[..20]), "a secret: {error}");
        }
        assert!(up("client = []").unwrap_err().contains("no option"));
    }
}
