use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn path(components: &[&[u8]]) -> Result<RelativePath, NameError> {
    RelativePath::from_components(components.iter().copied())
}

#[test]
fn every_name_that_leads_out_or_clashes_is_refused() {
    let cases: &[(&[&[u8]], NameError)] = &[
        (&[], NameError::Empty),
        (&[b""], NameError::Empty),
        (&[b"", b"etc", b"passwd"], NameError::Empty),
        (&[b"a", b"", b"b"], NameError::Empty),
        (&[b".."], NameError::Dots),
        (&[b"a", b"..", b"..", b"b"], NameError::Dots),
        (&[b"."], NameError::Dots),
        (&[b"a", b"."], NameError::Dots),
        (&[b"/etc/passwd"], NameError::Separator),
        (&[b"a/../../b"], NameError::Separator),
        (&[b"a\0b"], NameError::Separator),
        (&[b"file.litz-part"], NameError::Reserved),
        (&[b".litz-journal"], NameError::Reserved),
        (&[b"file.LITZ-Part"], NameError::Reserved),
        (&[b"file.Litz-JOURNAL"], NameError::Reserved),
        (&[b"dir.litz-part", b"file"], NameError::Reserved),
        (&[&[b'x'; 256]], NameError::LongComponent),
        (&[[b'x'; 255].as_slice(); 17], NameError::LongPath),
        (&[b"x".as_slice(); 256], NameError::LongPath),
    ];
    for (components, expected) in cases {
        assert_eq!(path(components), Err(*expected), "{components:?}");
    }
}

#[test]
fn odd_but_harmless_names_are_kept_byte_for_byte() {
    for name in
        [b"...".as_slice(), b"..a", b" ", b"-rf", b"\xff\xfe", b"a\nb", b"C:\\x", b".litz-part.txt", &[b'x'; 255]]
    {
        let made = path(&[b"dir", name]).unwrap();
        assert_eq!(made.components().collect::<Vec<_>>(), [b"dir".as_slice(), name]);
        assert_eq!(made.split_last().1.as_bytes(), name);
    }
}

#[test]
fn control_characters_and_invalid_bytes_of_a_name_are_escaped() {
    let made = path(&[b"a\x1b[31m\nb", b"\xff", "\u{202e}gpj.exe".as_bytes(), b"\\x41"]).unwrap();
    assert_eq!(made.to_string(), "a\\x1b[31m\\x0ab/\\xff/\\xe2\\x80\\xaegpj.exe/\\x5cx41");
}

#[test]
fn a_path_splits_into_directories_and_name() {
    let deep = path(&[b"a", b"b", b"c"]).unwrap();
    let (parents, name) = deep.split_last();
    assert_eq!((parents.collect::<Vec<_>>(), name), (vec![OsStr::new("a"), OsStr::new("b")], OsStr::new("c")));
    let flat = path(&[b"c"]).unwrap();
    let (parents, name) = flat.split_last();
    assert_eq!((parents.count(), name), (0, OsStr::new("c")));
}

proptest! {
    #[test]
    fn accepted_names_stay_below_the_target(components in vec(vec(any::<u8>(), 0..6), 0..6)) {
        if let Ok(made) = RelativePath::from_components(components.iter().map(Vec::as_slice)) {
            prop_assert_eq!(made.components().map(<[u8]>::to_vec).collect::<Vec<_>>(), components.clone());
            for component in &components {
                prop_assert!(![b"".as_slice(), b".", b".."].contains(&component.as_slice()));
                prop_assert!(!component.contains(&0) && !component.contains(&b'/'));
            }
            prop_assert!(!made.to_string().contains(|c: char| c.is_control()));
        }
    }
}
