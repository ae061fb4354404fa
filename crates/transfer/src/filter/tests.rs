use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use units::Rng;

use super::*;
use crate::keep::Keep;
use crate::link::CancelToken;
use crate::manifest::Source;

fn path(text: &str) -> RelativePath {
    RelativePath::from_components(text.split('/').map(str::as_bytes)).expect("a name")
}

#[test]
fn patterns_match_names_paths_and_directories() {
    // Pattern, directory or file, names that it excludes, and names that it does not.
    for (pattern, is_directory, matching, others) in [
        ("*.o", false, &["a.o", "x/y/a.o"][..], &["a.c", "a.o.c"][..]),
        ("build/", true, &["build", "x/build"], &["builds"]),
        ("build/", false, &[], &["build"]),
        ("/x/a", false, &["x/a"], &["y/x/a", "a"]),
        ("x/a", false, &["x/a", "y/x/a"], &["a", "xx/a"]),
        ("a/**/b", false, &["a/c/b", "z/a/c/d/b"], &["b", "ab", "a/b"]),
        ("**/b", false, &["b", "a/b"], &["ab"]),
        ("a/**", false, &["a/b", "a/b/c"], &["a"]),
        ("a?", false, &["ab"], &["a", "abc"]),
        ("[ab]x", false, &["ax", "y/bx"], &["cx"]),
        ("[!ab]x", false, &["cx"], &["ax", "x"]),
        ("[]-]", false, &["]", "-"], &["a"]),
        ("a[^b]c", false, &["adc"], &["abc", "a/c"]),
        ("[[:digit:]]*.log", false, &["7.log", "x/7a.log"], &["a.log", "d].log"]),
        ("[![:alpha:]_]", false, &["1", "-"], &["a", "Z", "_"]),
        ("[^]a]", false, &["b"], &["]", "a"]),
        ("[a-c-e]", false, &["b", "-", "e"], &["d"]),
        ("[\\]x-z\\-]", false, &["]", "y", "-"], &["\\"]),
        ("[[:x]", false, &["[", ":", "x"], &["]"]),
        ("[[:]]", false, &["[]", ":]"], &["[", "x"]),
        ("[[:upper:]-z]", false, &["A", "-", "z"], &["y"]),
        ("a\\b", false, &["a\\b"], &["ab"]),
        ("a\\", false, &["a\\"], &["a"]),
        ("a\\b/***", false, &["ab/c"], &["a\\b/c"]),
        ("(a|b)", false, &["(a|b)"], &["a"]),
        ("\\*", false, &["*"], &["a"]),
        ("*", false, &["a", "a/b"], &[]),
    ] {
        let mut filter = Filter::default();
        filter.exclude(pattern).expect(pattern);
        for name in matching {
            assert!(!filter.admits(&path(name), is_directory), "{pattern} excludes {name}");
        }
        for name in others {
            assert!(filter.admits(&path(name), is_directory), "{pattern} does not exclude {name}");
        }
    }
}

#[test]
fn the_first_pattern_that_matches_decides() {
    let mut filter = Filter::default();
    filter.include("keep.o").unwrap();
    filter.exclude("*.o").unwrap();
    filter.include("other.o").unwrap();
    assert!(filter.admits(&path("x/keep.o"), false));
    assert!(!filter.admits(&path("other.o"), false), "an earlier pattern excludes it");
    assert!(filter.admits(&path("other.c"), false));
}

#[test]
fn patterns_that_cannot_be_used_are_named() {
    for (pattern, words) in [
        ("", "empty"),
        ("/", "empty"),
        ("[a", "cannot be used"),
        ("[z-a]", "cannot be used"),
        ("[a\\", "cannot be used"),
        ("*\\", "cannot be used"),
        ("[[:digit:]", "cannot be used"),
        ("[[:number:]]", "cannot be used"),
        ("[[::]]", "cannot be used"),
        (&"a".repeat(PATTERN_LEN_MAX + 1), "longer than"),
    ] {
        let error = Filter::default().exclude(pattern).expect_err(pattern).to_string();
        assert!(error.contains(words), "{error}");
    }
    let mut filter = Filter::default();
    for _ in 0..PATTERNS_MAX {
        filter.exclude("a").unwrap();
    }
    assert_eq!(filter.exclude("a"), Err(FilterError::TooMany));
}

/// Matches one byte against a set like rsync's wildmatch; `text` is the set's text after its `[`.
/// Also returns the rest of the text; `None` for a set that is refused.
fn matches_as_wildmatch(text: &[u8], found: u8) -> Option<(bool, &[u8])> {
    let at = |index: usize| text.get(index).copied();
    let mut index = 0;
    let is_negated = matches!(at(0), Some(b'!' | b'^'));
    if is_negated {
        index += 1;
    }
    let (mut before, mut is_in) = (None, false);
    let mut byte = at(index)?;
    loop {
        if byte == b'\\' {
            index += 1;
            byte = at(index)?;
            is_in |= byte == found;
            before = Some(byte);
        } else if byte == b'-' && before.is_some() && at(index + 1).is_some_and(|next| next != b']') {
            index += 1;
            if at(index) == Some(b'\\') {
                index += 1;
            }
            let (first, last) = (before?, at(index)?);
            if last < first {
                return None;
            }
            is_in |= (first..=last).contains(&found);
            before = None;
        } else if byte == b'['
            && at(index + 1) == Some(b':')
            && let Some(len) = text[index + 2..].iter().position(|byte| *byte == b']')
            && len > 0
            && at(index + 1 + len) == Some(b':')
        {
            let character = char::from(found);
            is_in |= match &text[index + 2..index + 1 + len] {
                b"alpha" => character.is_ascii_alphabetic(),
                b"digit" => character.is_ascii_digit(),
                b"space" => character.is_ascii_whitespace() || found == 0x0b,
                _ => return None,
            };
            index += 2 + len;
            before = None;
        } else {
            is_in |= byte == found;
            before = Some(byte);
        }
        index += 1;
        byte = at(index)?;
        if byte == b']' {
            return Some((is_in != is_negated && found != b'/', &text[index + 1..]));
        }
    }
}

#[test]
fn sets_match_the_bytes_that_rsync_matches() {
    let parts: &[&[u8]] = &[
        b"]",
        b"]",
        b"]",
        b"-",
        b"-",
        b"[",
        b"[:",
        b":]",
        b":",
        b"!",
        b"^",
        b"\\",
        b"a",
        b"m",
        b"z",
        b"0",
        b"/",
        b"\xff",
        b"[:alpha:]",
        b"[:digit:]",
        b"[:space:]",
        b"[:nothing:]",
    ];
    let (mut used, mut refused) = (0, 0);
    for seed in 0..4000 {
        let mut rng = Rng::from_seed(seed);
        let mut pick = |count: usize| (rng.next_u64() % count as u64) as usize;
        let mut text = Vec::new();
        for _ in 0..=pick(7) {
            text.extend_from_slice(parts[pick(parts.len())]);
        }
        let shown = text.escape_ascii();
        let Some((set, rest)) = Set::parse(&text) else {
            assert_eq!(matches_as_wildmatch(&text, b'a'), None, "seed {seed}: [{shown}");
            refused += 1;
            continue;
        };
        let mut expression = "(?s-u)^".to_owned();
        set.put(&mut expression);
        let compiled = Regex::new(&format!("{expression}$")).unwrap();
        for byte in 0..=u8::MAX {
            let expected = matches_as_wildmatch(&text, byte);
            assert_eq!(Some((compiled.is_match(&[byte]), rest)), expected, "seed {seed}: [{shown} and {byte:#x}");
        }
        used += 1;
    }
    assert!(used > 500 && refused > 500, "{used} used, {refused} refused");
}

/// A tree in which names of one letter recur at each depth.
fn plant(folder: &Path) {
    for first in ["a", "b", "c.o"] {
        for second in ["a", "b", "x.o"] {
            fs::create_dir_all(folder.join(first).join(second)).unwrap();
            for third in ["a", "b.o", "ab"] {
                fs::write(folder.join(first).join(second).join(third), "").unwrap();
            }
        }
        fs::write(folder.join(first).join("file.o"), "").unwrap();
    }
}

/// Returns the names that rsync would send, or `None` where there is no rsync.
fn list_of_rsync(folder: &Path, rules: &[(bool, String)]) -> Option<BTreeSet<String>> {
    let mut command = Command::new("rsync");
    for (admits, pattern) in rules {
        command.arg(format!("--{}={pattern}", if *admits { "include" } else { "exclude" }));
    }
    let output = command.args(["-r", "--list-only", "tree"]).current_dir(folder).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("plain names");
    Some(text.lines().filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect())
}

#[test]
fn random_patterns_choose_the_files_that_rsync_chooses() {
    let folder = tempfile::tempdir().unwrap();
    plant(&folder.path().join("tree"));
    let parts = [
        "a",
        "b",
        "*",
        "*.o",
        "a*",
        "?",
        "[ab]",
        "[!b]",
        "x.o",
        "a**",
        "tree",
        "**",
        "file.o",
        "[[:alpha:]]",
        "[![:upper:]b]*",
    ];
    let strict = std::env::var_os("LITZ_TEST_STRICT").is_some();
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let mut pick = |count: usize| (rng.next_u64() % count as u64) as usize;
        let mut rules = Vec::new();
        for _ in 0..=pick(4) {
            let mut pattern = String::new();
            if pick(4) == 0 {
                pattern.push('/');
            }
            for index in 0..=pick(3) {
                if index > 0 {
                    pattern.push('/');
                }
                pattern += parts[pick(parts.len())];
            }
            pattern += ["", "", "/", "/***"][pick(4)];
            rules.push((pick(3) == 0, pattern));
        }
        let Some(expected) = list_of_rsync(folder.path(), &rules) else {
            assert!(!strict, "rsync is missing");
            return;
        };
        let mut filter = Filter::default();
        for (admits, pattern) in &rules {
            filter.add(pattern, *admits).unwrap();
        }
        let root = folder.path().join("tree");
        let found = Source::scan_filtered(&[root], Keep::default(), &filter, &CancelToken::new());
        let found: BTreeSet<String> = match &found {
            Ok(source) => source.entries().iter().map(|entry| entry.path.to_string()).collect(),
            Err(_) => BTreeSet::new(),
        };
        assert_eq!(found, expected, "seed {seed}: {rules:?}");
    }
}
