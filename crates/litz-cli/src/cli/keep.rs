//! `--keep` of `litz send`.

use transfer::Keep;

/// The words of the option, for its help and its errors.
const WORDS: &str = "modes, links, hard-links, holes, all, none";

/// What a comma-separated list of words keeps.
///
/// # Errors
/// If there is no such word, or `none` is not alone.
pub(crate) fn parse_keep(text: &str) -> Result<Keep, String> {
    let none = Keep::default().with_modes(false);
    if text == "none" {
        return Ok(none);
    }
    let mut keep = none;
    for word in text.split(',') {
        keep = match word {
            "modes" => keep.with_modes(true),
            "links" => keep.with_links(true),
            "hard-links" => keep.with_hard_links(true),
            "holes" => keep.with_holes(true),
            "all" => keep.with_modes(true).with_links(true).with_hard_links(true).with_holes(true),
            "none" => return Err("none stands alone".to_owned()),
            _ => return Err(format!("there is no {word:?}; give one or more of {WORDS}, with commas between them")),
        };
    }
    Ok(keep)
}

/// The list of words that [`parse_keep`] reads as this.
pub(crate) fn words(keep: Keep) -> String {
    let words = [(keep.modes, "modes"), (keep.links, "links"), (keep.hard_links, "hard-links"), (keep.holes, "holes")];
    let words: Vec<_> = words.into_iter().filter_map(|(is_kept, word)| is_kept.then_some(word)).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_and_others_refused() {
        let none = Keep::default().with_modes(false);
        let all = Keep::default().with_links(true).with_hard_links(true).with_holes(true);
        for (text, keep) in [
            ("modes", Keep::default()),
            ("none", none),
            ("all", all),
            ("links,modes", Keep::default().with_links(true)),
            ("holes,hard-links", none.with_holes(true).with_hard_links(true)),
        ] {
            assert_eq!(parse_keep(text), Ok(keep), "{text}");
            assert_eq!(parse_keep(&words(keep)), Ok(keep), "{text}");
        }
        for text in ["", "mode", "links,", "none,links", "links,none", "Links"] {
            assert!(parse_keep(text).is_err(), "{text}");
        }
    }
}
