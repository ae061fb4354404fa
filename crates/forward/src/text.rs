//! Texts for people that other programs may have chosen.

/// The text without control characters, cut to `len_max` bytes.
pub(crate) fn clean(text: &str, len_max: usize) -> String {
    let mut clean = String::new();
    for letter in text.chars() {
        let letter = if letter.is_control() { '\u{fffd}' } else { letter };
        if clean.len() + letter.len_utf8() > len_max {
            break;
        }
        clean.push(letter);
    }
    clean
}
