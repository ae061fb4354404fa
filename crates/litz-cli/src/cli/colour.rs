//! Colours on standard error: only on a terminal, and not if the user refuses them (`NO_COLOR`).

use std::ffi::OsStr;
use std::io::IsTerminal;

/// What a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Good,
    Warning,
    Bad,
}

/// Whether text on standard error may have colours.
pub(crate) fn is_wanted() -> bool {
    std::io::stderr().is_terminal() && is_permitted()
}

/// Whether text on a terminal may have colours.
pub(crate) fn is_permitted() -> bool {
    permits(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref())
}

/// Whether these values of `NO_COLOR` and `TERM` permit colours. See <https://no-color.org>.
fn permits(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

/// The text in a colour, if `is_wanted`.
pub(crate) fn paint(colour: Colour, text: &str, is_wanted: bool) -> String {
    let code = match colour {
        Colour::Good => 32,
        Colour::Warning => 33,
        Colour::Bad => 31,
    };
    if is_wanted { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_have_no_colours() {
        let permits =
            |no_color: Option<&str>, term: Option<&str>| permits(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(permits(None, Some("xterm")) && permits(Some(""), Some("xterm")));
        assert!(!permits(Some("1"), Some("xterm")) && !permits(None, Some("dumb")) && !permits(None, None));
        assert_eq!(paint(Colour::Bad, "lost", true), "\u{1b}[31mlost\u{1b}[0m");
        assert_eq!(paint(Colour::Bad, "lost", false), "lost");
    }
}
