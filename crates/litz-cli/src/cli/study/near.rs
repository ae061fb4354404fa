//! Suggestions for an unknown name.

/// Maximum number of suggestions.
const SUGGESTIONS_MAX: usize = 5;

/// Maximum number of wrong letters in a similar name.
const DISTANCE_MAX: usize = 3;

/// Only this many letters of a name are compared.
const LENGTH_MAX: usize = 64;

/// The names most similar to `wanted`: first those that begin with it or contain it, then those
/// with a few wrong letters.
pub(super) fn names<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let rank = |name: &str| match name.find(&wanted) {
        Some(0) => Some(0),
        Some(_) => Some(1),
        None => Some(distance(&wanted, name)).filter(|distance| *distance <= DISTANCE_MAX).map(|distance| distance + 1),
    };
    let mut ranked: Vec<_> = known.filter_map(|name| Some((rank(name)?, name))).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(SUGGESTIONS_MAX);
    ranked.into_iter().map(|(_, name)| name).collect()
}

/// The Levenshtein distance: letters to insert, delete or replace until both are equal.
fn distance(a: &str, b: &str) -> usize {
    let letters = |text: &str| text.chars().take(LENGTH_MAX).collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    let mut row: Vec<_> = (0..=b.len()).collect();
    for (index, letter) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["004-table-2", "004-table-3", "002-duplex", "000-speedup"];

    #[test]
    fn the_distance_counts_single_letters() {
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("abc", "abc")), (3, 3, 0));
    }

    #[test]
    fn prefixes_substrings_and_typos_are_suggested() {
        let near = |wanted| names(wanted, KNOWN.into_iter());
        assert_eq!(near("004"), ["004-table-2", "004-table-3"]);
        assert_eq!(near("duplex"), ["002-duplex"]);
        assert_eq!(near("002-duplx"), ["002-duplex"]);
        assert_eq!(near("004-tabel-3"), ["004-table-3", "004-table-2"]);
        assert!(near("something else").is_empty());
    }
}
