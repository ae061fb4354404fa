//! Texts for people that may have been chosen by another program.

/// Returns the text with U+FFFD for each control character, cut between characters to at most
/// `len_max` bytes. Printed, it neither controls a terminal nor breaks a line.
///
/// ```
/// assert_eq!(units::text::printable("red\x1b[2J", 5), "red");
/// assert_eq!(units::text::printable("red\x1b[2J", 7), "red\u{fffd}[");
/// ```
#[must_use]
pub fn printable(text: &str, len_max: usize) -> String {
    let mut printable = String::new();
    for character in text.chars() {
        let character = if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
        if printable.len() + character.len_utf8() > len_max {
            break;
        }
        printable.push(character);
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_and_no_character_is_cut_in_two() {
        for (text, len_max, expected) in [
            ("a\u{1b}[2Jb\n\u{9b}c\u{7f}", 100, "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}"),
            ("äöü €", 100, "äöü €"),
            ("äöü", 5, "äö"),
            ("a\nb", 3, "a"),
            ("a", 0, ""),
            ("", 9, ""),
        ] {
            assert_eq!(printable(text, len_max), expected);
        }
    }
}
