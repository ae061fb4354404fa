//! A file with the options of `litz tunnel serve` or `litz tunnel up`, instead of arguments.
//!
//! Each key of the file is the name of an option, without the dashes before it; the value is the option's,
//! a list of values for an option that may be repeated, or true for one that has none. So the file is turned
//! into arguments, which the same code reads. Tables are no options: see [`clients`](super::clients).

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error};
use toml::de::{DeTable, DeValue};

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
    let line = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
    format!("{}, line {line}: {why}", path.display())
}

/// An error of the format.
pub(in crate::cli) fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> String {
    error_at(path, text, error.span().map_or(0, |span| span.start), error.message())
}

/// The options in a file, as arguments of a command.
#[derive(Debug)]
pub(super) struct SettingsFile {
    /// Each argument, and where its key is in the text.
    arguments: Vec<(OsString, usize)>,
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
        let mut arguments = Vec::new();
        for (key, value) in keys {
            let (at, key) = (key.span().start, key.get_ref().as_ref());
            let fails = |why: String| error_at(path, text, at, &why);
            match value.get_ref() {
                DeValue::Array(_) if key == CLIENT && name.ends_with("serve") => {}
                DeValue::String(ticket) if key == TICKET && name.ends_with("up") => {
                    arguments.push((ticket.as_ref().into(), at));
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
        Ok(Self { arguments })
    }

    /// Whether the file has a ticket in it.
    fn has_ticket(&self) -> bool {
        self.arguments.iter().any(|(argument, _)| !argument.as_encoded_bytes().starts_with(b"--"))
    }

    /// Refuses a file with a ticket, which is a secret, that others may read.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn refuse_open_secret(&self, path: &Path) -> Result<(), String> {
        let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
        if self.has_ticket() && mode & OTHERS_READ != 0 {
            let shown = path.display();
            return Err(format!("other users may read {shown}, which has a ticket in it: run `chmod go-r {shown}`"));
        }
        Ok(())
    }

    /// The arguments.
    pub(super) fn arguments(&self) -> impl Iterator<Item = OsString> + '_ {
        self.arguments.iter().map(|(argument, _)| argument.clone())
    }

    /// The message for an error of the arguments: with the line, if it is about one of the file.
    pub(super) fn explain(&self, path: &Path, text: &str, error: &Error) -> String {
        let message = error.to_string();
        let message = message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let about = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option)) => option.split([' ', '=']).next().map(str::to_owned),
            _ => None,
        };
        let is_about = |argument: &OsString| {
            let name = argument.to_str().and_then(|argument| argument.split('=').next());
            name.is_some() && name == about.as_deref()
        };
        match self.arguments.iter().find(|(argument, _)| is_about(argument)) {
            Some((_, at)) => error_at(path, text, *at, &message),
            None => message,
        }
    }
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
        let file = SettingsFile::parse(Path::new("a.toml"), text, command, name)?;
        let arguments = [OsString::from("command")].into_iter().chain(file.arguments());
        match command.clone().try_get_matches_from(arguments) {
            Ok(_) => Ok(file.arguments().map(|argument| argument.into_string().unwrap()).collect()),
            Err(error) => Err(file.explain(Path::new("a.toml"), text, &error)),
        }
    }

    #[test]
    fn each_key_is_an_option() {
        let text = "address = ['10.8.0.1/24', 'fd08::1/64']\nmtu = 9000\nnew-ticket = true\nquiet = false\n[[client]]\nkey = 'x'";
        let arguments = serve(text).unwrap();
        assert_eq!(arguments, ["--address=10.8.0.1/24", "--address=fd08::1/64", "--mtu=9000", "--new-ticket"]);
        let arguments =
            up("ticket = 'litz1abc'\nall = true\nkill-switch = true\npath = ['eth0', 'wlan0,backup']").unwrap();
        assert_eq!(arguments, ["litz1abc", "--all", "--kill-switch", "--path=eth0", "--path=wlan0,backup"]);
    }

    #[test]
    fn errors_name_the_line() {
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
        ] {
            let error = serve(text).unwrap_err();
            assert!(error.starts_with(&format!("a.toml, line {line}: ")) && error.contains(words), "{error}");
        }
        assert!(up("client = []").unwrap_err().contains("no option"));
    }
}
