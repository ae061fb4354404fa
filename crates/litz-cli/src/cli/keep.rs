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
        }
        for text in ["", "mode", "links,", "none,links", "links,none", "Links"] {
            assert!(parse_keep(text).is_err(), "{text}");
        }
    }
}
