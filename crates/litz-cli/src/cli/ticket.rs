//! The ticket: an option, the last argument, a file or an environment variable.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use transfer::Ticket;

use super::standard_streams::StandardInput;
use super::{heading, host};

/// The variable with the ticket, if no argument gives one.
const VARIABLE: &str = "LITZ_TICKET";

/// The command that prints tickets of transfers.
pub(crate) const RECEIVER: &str = "litz recv";

/// The maximum length of a file with a ticket, which itself has at most 3 kB.
const FILE_LEN_MAX: u64 = 64 * 1024;

/// How every ticket begins. The digit is the version of its format.
pub(crate) const PREFIX: &str = "litz1";

#[derive(Args, Debug, Clone, Default)]
pub(crate) struct TicketOptions {
    /// The ticket, if it is not the last argument
    ///
    /// A ticket in an argument is visible to other users of this host in its process list: see
    /// --ticket-file. If neither --to nor --ticket-file is given, the last argument is the ticket,
    /// or, if that is not one, the environment variable LITZ_TICKET.
    #[arg(long, value_name = "TICKET", conflicts_with = "ticket_file", help_heading = heading::SECURITY)]
    pub(crate) to: Option<OsString>,

    /// Read the ticket from this file, or from standard input if FILE is "-"
    ///
    /// The last word of the file is the ticket, so the line that the far host printed will do.
    #[arg(long, value_name = "FILE", help_heading = heading::SECURITY)]
    pub(crate) ticket_file: Option<PathBuf>,
}

impl TicketOptions {
    /// The ticket and the paths of the arguments, of which the last may be the ticket.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn split<'a>(&self, arguments: &'a [PathBuf]) -> Result<(Ticket, &'a [PathBuf]), String> {
        self.split_with(arguments, variable())
    }

    /// As [`split`](Self::split); `variable` is the environment's ticket.
    fn split_with<'a>(
        &self,
        arguments: &'a [PathBuf],
        variable: Option<OsString>,
    ) -> Result<(Ticket, &'a [PathBuf]), String> {
        let (last, paths) = arguments.split_last().ok_or("name the files to send")?;
        if let Some(ticket) = self.given(RECEIVER)? {
            if is_like_ticket(last) {
                return Err("the ticket is given twice: by an option and as the last argument".to_owned());
            }
            return Ok((ticket, arguments));
        }
        match variable {
            Some(text) if !is_like_ticket(last) => Ok((from_variable(&text, RECEIVER)?, arguments)),
            _ if paths.is_empty() && is_like_ticket(last) => Err("name the files to send, then the ticket".to_owned()),
            _ => Ok((read(last.as_os_str(), RECEIVER)?, paths)),
        }
    }

    /// The ticket of a command whose only argument it is. `printed_by` is the command that prints such
    /// tickets.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn only(&self, argument: Option<&OsStr>, printed_by: &str) -> Result<Ticket, String> {
        match (self.given(printed_by)?, argument, variable()) {
            (Some(ticket), _, _) => Ok(ticket),
            (None, Some(argument), _) => read(argument, printed_by),
            (None, None, Some(text)) => from_variable(&text, printed_by),
            (None, None, None) => {
                Err(format!("no ticket was given: name it, or use --ticket-file or the variable {VARIABLE}"))
            }
        }
    }

    /// Whether an option gives the ticket.
    pub(crate) const fn is_given(&self) -> bool {
        self.to.is_some() || self.ticket_file.is_some()
    }

    /// The ticket that an option gives.
    fn given(&self, printed_by: &str) -> Result<Option<Ticket>, String> {
        if let Some(text) = &self.to {
            return parse(text, "--to must be", printed_by).map(Some);
        }
        let Some(file) = &self.ticket_file else { return Ok(None) };
        let text = read_file(file).map_err(|error| format!("cannot read the ticket in {}: {error}", file.display()))?;
        let word = text.split_whitespace().last().unwrap_or_default();
        parse(OsStr::new(word), &format!("the last word of {} must be", file.display()), printed_by).map(Some)
    }
}

/// Reads a ticket from the last argument.
fn read(argument: &OsStr, printed_by: &str) -> Result<Ticket, String> {
    parse(argument, &format!("without --to, --ticket-file or {VARIABLE}, the last argument must be"), printed_by)
}

fn from_variable(text: &OsStr, printed_by: &str) -> Result<Ticket, String> {
    parse(text, &format!("{VARIABLE} must be"), printed_by)
}

fn parse(text: &OsStr, place: &str, printed_by: &str) -> Result<Ticket, String> {
    // The text is not repeated in the message: it may be a secret with a typing error.
    let parsed = text.to_str().ok_or_else(|| "it is not text".to_owned());
    let parsed = parsed.and_then(|text| text.parse::<Ticket>().map_err(|error| error.to_string()));
    parsed.map_err(|error| format!("{place} the ticket that `{printed_by}` printed: {error}"))
}

/// Whether the environment has a ticket.
pub(crate) fn is_in_environment() -> bool {
    variable().is_some()
}

fn variable() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|text| !text.is_empty())
}

/// Whether the argument is meant as a ticket, possibly a mistyped one, and not as a path.
pub(crate) fn is_like_ticket(argument: &Path) -> bool {
    let start = argument.to_str().and_then(|text| text.get(..PREFIX.len()));
    start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX)) && !argument.exists()
}

fn read_file(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        read_to_ticket(BufReader::new(StandardInput).take(FILE_LEN_MAX + 1), &mut bytes)?;
    } else {
        std::fs::File::open(file)?.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(io::Error::other(format!("it is longer than {FILE_LEN_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

/// Reads lines until the last word of one is a ticket, or to the end. A receiver whose output is read goes on
/// to run, so its output ends only after the transfer.
fn read_to_ticket(mut input: impl BufRead, bytes: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let start = bytes.len();
        if input.read_until(b'\n', bytes)? == 0 {
            return Ok(());
        }
        let word = std::str::from_utf8(&bytes[start..]).ok().and_then(|line| line.split_whitespace().last());
        if word.is_some_and(|word| word.parse::<Ticket>().is_ok()) {
            return Ok(());
        }
    }
}

/// What may be wrong with a ticket whose host does not answer, to be added to that message. The host
/// decides by its own clock whether a ticket has expired; one of the two clocks may be wrong.
pub(crate) fn expiry_hint(ticket: &Ticket) -> Option<String> {
    ticket.is_expired(host::now_unix()).then(|| {
        let expiry = host::utc(ticket.expires_unix);
        format!("the ticket has expired on {expiry}, if the clocks of both hosts are right: ask for a new one")
    })
}

#[cfg(test)]
mod tests {
    use litz::identity::Fingerprint;
    use transfer::{Secret, TicketAddress};

    use super::*;

    fn ticket(secret: u8) -> String {
        let address = TicketAddress::Socket("127.0.0.1:4433".parse().unwrap());
        let (receiver, secret) = (Fingerprint::from_bytes([7; 32]), Secret::from_bytes([secret; 16]));
        Ticket::new(vec![address], receiver, secret, 1 << 39).to_text().unwrap()
    }

    /// The secret's first byte and the paths.
    fn split(options: &TicketOptions, arguments: &[&str], variable: Option<&str>) -> Result<(String, usize), String> {
        let arguments: Vec<PathBuf> = arguments.iter().map(PathBuf::from).collect();
        let (ticket, paths) = options.split_with(&arguments, variable.map(OsString::from))?;
        Ok((ticket.to_text().unwrap(), paths.len()))
    }

    #[test]
    fn options_come_first_then_the_last_argument_then_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ticket");
        std::fs::write(&file, format!("litz send PATH... {}\n", ticket(2))).unwrap();
        let (none, [first, third]) = (TicketOptions::default(), [ticket(1), ticket(3)]);
        let to = TicketOptions { to: Some(first.clone().into()), ticket_file: None };
        let from_file = TicketOptions { to: None, ticket_file: Some(file) };
        assert_eq!(split(&to, &["a", "b"], Some(&third)), Ok((first.clone(), 2)));
        assert_eq!(split(&from_file, &["a"], Some(&third)), Ok((ticket(2), 1)));
        assert_eq!(split(&none, &["a", &first], Some(&third)), Ok((first.clone(), 1)));
        assert_eq!(split(&none, &["a", "b"], Some(&third)), Ok((third, 2)));
        assert!(split(&to, &["a", &first], None).unwrap_err().contains("given twice"));
        assert!(split(&none, &["a", "b"], None).unwrap_err().contains("the last argument must be the ticket"));
        assert!(split(&none, &[&first], None).unwrap_err().contains("name the files"));
        assert!(split(&none, &["a", "b"], Some("x")).unwrap_err().contains("LITZ_TICKET must be the ticket"));
    }

    #[test]
    fn a_mistyped_ticket_is_not_taken_for_a_path() {
        let mistyped = format!("{}a", ticket(1));
        let error = split(&TicketOptions::default(), &["a", &mistyped], Some(&ticket(2))).unwrap_err();
        assert!(error.contains("the last argument") && !error.contains(&mistyped), "{error}");
    }

    /// Bytes, and then an error in place of the wait for more.
    struct Waiting<'a>(&'a [u8]);

    impl Read for Waiting<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("it would wait for ever")),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn a_ticket_is_read_from_a_receiver_that_goes_on_to_run() {
        let ticket = ticket(1);
        let text = format!("Receiving into in. Run:\n\nlitz send PATH... {ticket}\n\nThe ticket is a secret.\n");
        let mut bytes = Vec::new();
        read_to_ticket(io::BufReader::new(Waiting(text.as_bytes())), &mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap().split_whitespace().last(), Some(ticket.as_str()));
        let mut bytes = Vec::new();
        let cut = &text.as_bytes()[..text.find(&ticket).unwrap() + 20];
        assert!(read_to_ticket(io::BufReader::new(Waiting(cut)), &mut bytes).is_err(), "it is not complete yet");
    }

    #[test]
    fn a_file_that_holds_no_ticket_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("empty");
        std::fs::write(&file, "").unwrap();
        let binary = folder.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe]).unwrap();
        for (file, words) in [
            (file, "must be the ticket"),
            (folder.path().join("missing"), "cannot read the ticket"),
            (binary, "it is not text"),
        ] {
            let name = file.display().to_string();
            let options = TicketOptions { to: None, ticket_file: Some(file) };
            let error = split(&options, &["a"], None).unwrap_err();
            assert!(error.contains(words) && error.contains(&name), "{error}");
        }
    }
}
