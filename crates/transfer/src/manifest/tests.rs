use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

fn shown(source: &Source) -> Vec<String> {
    source.entries().iter().map(|entry| entry.path.to_string()).collect()
}

#[test]
fn a_tree_is_listed_in_order_and_skipped_entries_are_reported() {
    let top = tempfile::tempdir().unwrap();
    let tree = top.path().join("tree");
    fs::create_dir_all(tree.join("b/inner")).unwrap();
    fs::write(tree.join("b/inner/file"), "12345").unwrap();
    fs::write(tree.join("a"), "123").unwrap();
    fs::write(tree.join("x.litz-part"), "leftover").unwrap();
    symlink("/etc", tree.join("link")).unwrap();
    let _socket = UnixListener::bind(tree.join("socket")).unwrap();
    let source = Source::scan(&[tree.clone(), tree.join("a")], &CancelToken::new()).unwrap();
    assert_eq!(shown(&source), ["tree", "tree/a", "tree/b", "tree/b/inner", "tree/b/inner/file", "a"]);
    assert_eq!(source.totals(), Totals { files: 3, bytes: 11 });
    assert_eq!(source.disk_path(4), fs::canonicalize(&tree).unwrap().join("b/inner/file"));
    assert_eq!(source.disk_path(5), fs::canonicalize(&tree).unwrap().join("a"));
    let skipped: Vec<_> =
        source.skipped().iter().map(|(path, error)| (path.file_name().unwrap(), error.kind)).collect();
    assert_eq!(source.skipped_count(), 3);
    assert!(skipped.contains(&("link".as_ref(), FileErrorKind::Link)));
    assert!(skipped.contains(&("socket".as_ref(), FileErrorKind::Special)));
    assert!(skipped.contains(&("x.litz-part".as_ref(), FileErrorKind::Name)));
}

#[test]
fn what_is_excluded_is_not_skipped_whatever_its_name_and_state() {
    let top = tempfile::tempdir().unwrap();
    let tree = top.path().join("tree");
    fs::create_dir_all(tree.join("sub/y.litz-journal")).unwrap();
    fs::write(tree.join("a"), "123").unwrap();
    fs::write(tree.join("x.litz-part"), "leftover").unwrap();
    let skipped = |patterns: &[&str]| {
        let mut filter = Filter::default();
        patterns.iter().for_each(|pattern| filter.exclude(pattern).unwrap());
        let tree = std::slice::from_ref(&tree);
        let source = Source::scan_filtered(tree, Keep::default(), &filter, &CancelToken::new()).unwrap();
        // An entry without a state, such as one in a directory that the sender may not search.
        let cancel = CancelToken::new();
        let path = RelativePath::from_components([b"tree".as_slice(), b"gone"]).unwrap();
        let unknown = Scan::new(Keep::default(), &filter, &cancel).one(&top.path().join("gone"), path);
        (source.skipped_count(), matches!(unknown, Err(Fault::Skip(_))))
    };
    assert_eq!(skipped(&["*.litz-part/", "y*", "gone?"]), (1, true), "the file is no directory");
    assert_eq!(skipped(&["/tree/*.litz-part", "sub/*/", "gone"]), (0, false));
    assert_eq!(skipped(&["*.litz-*", "gone/"]), (0, false));
}

#[test]
fn a_link_named_by_the_user_is_followed_under_its_own_name() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("target-1.2"), "content").unwrap();
    symlink("target-1.2", top.path().join("latest")).unwrap();
    let source = Source::scan(&[top.path().join("latest")], &CancelToken::new()).unwrap();
    assert_eq!(shown(&source), ["latest"]);
    assert_eq!(fs::read(source.disk_path(0)).unwrap(), b"content");
    assert_eq!(source.entries()[0].size(), Some(7));
}

#[test]
fn paths_that_cannot_be_sent_are_refused_at_once() {
    let top = tempfile::tempdir().unwrap();
    for directory in ["one", "two"] {
        fs::create_dir(top.path().join(directory)).unwrap();
        fs::write(top.path().join(directory).join("same"), "").unwrap();
    }
    let scan = |paths: &[PathBuf]| Source::scan(paths, &CancelToken::new()).map(|source| shown(&source));
    assert!(matches!(scan(&[]), Err(TransferError::NothingToSend)));
    let device = scan(&["/dev/null".into()]).unwrap_err().to_string();
    assert!(device.contains("/dev/null") && device.contains("device"), "{device}");
    assert!(matches!(scan(&[top.path().join("missing")]), Err(TransferError::Path(..))));
    assert!(matches!(scan(&["/".into()]), Err(TransferError::Name(..))));
    let same = [top.path().join("one/same"), top.path().join("two/same")];
    assert!(matches!(scan(&same), Err(TransferError::Duplicate(name)) if name == "same"));
    assert_eq!(scan(&[top.path().join("one/.")]).unwrap(), ["one", "one/same"]);
    assert_eq!(scan(&[top.path().join("one/../two")]).unwrap(), ["two", "two/same"]);
    let cancelled = CancelToken::new();
    cancelled.cancel();
    assert!(matches!(Source::scan(&same[..1], &cancelled), Err(TransferError::Cancelled)));
}

#[test]
fn a_list_beyond_its_bounds_is_refused() {
    let entry = |size| Entry {
        path: RelativePath::from_components([b"x".as_slice()]).unwrap(),
        kind: EntryKind::File { size },
        modified: Modified { seconds: 0, nanoseconds: 0 },
        mode: 0,
    };
    let mut limits = Limits::default();
    limits.admit(&entry(u64::MAX)).unwrap();
    assert!(matches!(limits.admit(&entry(1)), Err(TransferError::TooMany)), "the sum does not fit");
    let mut limits = Limits::default();
    for _ in 0..ENTRIES_MAX {
        limits.admit(&entry(0)).unwrap();
    }
    assert!(matches!(limits.admit(&entry(0)), Err(TransferError::TooMany)));
}

#[test]
fn a_check_finds_the_faults_of_the_paths_and_does_not_enter_directories() {
    let top = tempfile::tempdir().unwrap();
    let [tree, link, same] = ["tree", "link", "other/tree"].map(|name| top.path().join(name));
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::create_dir_all(&same).unwrap();
    symlink("/dev/null", &link).unwrap();
    let missing = top.path().join("missing");
    assert!(Source::check(&[tree.clone(), link.clone()]).is_ok(), "what is skipped is no fault beside other paths");
    assert!(matches!(Source::check(&[tree.clone(), missing]), Err(TransferError::Path(..))));
    assert!(matches!(Source::check(&[tree, same]), Err(TransferError::Duplicate(_))));
    assert!(matches!(Source::check(&[link]), Err(TransferError::Path(..))), "a device");
    assert!(matches!(Source::check(&[]), Err(TransferError::NothingToSend)));
}
