//! Trees that arrive whole.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn a_tree_arrives_with_content_times_and_modes() {
    let fixture = Fixture::new();
    for (index, len) in [0, 1, 1023, 1024, 1025, 5000, 100_000, 700_001].into_iter().enumerate() {
        fixture.write(&format!("tree/sub{}/file{len}", index % 3), index as u64, len);
    }
    fs::create_dir_all(fixture.source("tree/empty/deep/er")).unwrap();
    fs::write(fixture.source("tree").join(OsStr::from_bytes(b"\xffodd\nname")), "odd").unwrap();
    fs::set_permissions(fixture.source("tree/sub1"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(fixture.source("tree/sub0/file0"), fs::Permissions::from_mode(0o755)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    for path in ["tree/sub2/file1023", "tree/empty"] {
        fs::File::open(fixture.source(path)).unwrap().set_modified(old).unwrap();
    }
    let outcome = fixture.transfer(&[fixture.source("tree")]);
    let (sent, _) = outcome.complete();
    assert_eq!((sent.files, sent.skipped, sent.bytes_resumed), (9, 0, 0));
    assert_eq!(sent.bytes_moved, sent.bytes);
    let (there, here) = (snapshot(&fixture.top.path().join("out")), snapshot(&fixture.top.path().join("in")));
    assert_eq!(there.keys().collect::<Vec<_>>(), here.keys().collect::<Vec<_>>());
    for (path, (content, modified, mode)) in there {
        let arrived = &here[&path];
        assert_eq!((&content, modified), (&arrived.0, arrived.1), "{}", path.display());
        assert_eq!(mode & !0o022, arrived.2, "{}", path.display());
    }
    fs::set_permissions(fixture.source("tree/sub1"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(fixture.target("tree/sub1"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_reported_hash_is_blake3_of_the_file() {
    let fixture = Fixture::new();
    let path = fixture.write("file", 1, 123_456);
    let outcome = fixture.transfer(std::slice::from_ref(&path));
    outcome.complete();
    let expected = blake3::hash(&fs::read(path).unwrap()).to_hex().to_string();
    for events in [&outcome.sender_events, &outcome.receiver_events] {
        let done: Vec<_> = events.iter().filter(|event| event["event"] == "file_done").collect();
        assert_eq!(done.len(), 1);
        assert_eq!((text(&done[0]["hash"]), text(&done[0]["path"])), (expected.clone(), "file".into()));
        assert_eq!(events[0], serde_json::json!({"event": "started", "files": 1, "bytes": 123_456}));
        let last = events.last().unwrap();
        assert_eq!((text(&last["event"]), &last["summary"]["bytes_moved"]), ("finished".into(), &123_456.into()));
        let progress = events.iter().rfind(|event| event["event"] == "progress").unwrap();
        assert_eq!(progress["bytes_done"], progress["bytes_total"]);
    }
}

#[test]
fn many_small_files_exceed_every_window() {
    let fixture = Fixture::new();
    for index in 0..1500 {
        fixture.write(&format!("many/d{}/{index}", index % 7), index, (index % 40) as usize);
    }
    let outcome = fixture.transfer(&[fixture.source("many")]);
    assert_eq!(outcome.complete().0.files, 1500);
    for index in 0..1500 {
        let name = format!("many/d{}/{index}", index % 7);
        assert_eq!(fs::read(fixture.source(&name)).unwrap(), fs::read(fixture.target(&name)).unwrap());
    }
}

#[test]
fn several_paths_arrive_under_their_last_component() {
    let fixture = Fixture::new();
    let paths = [fixture.write("a/b/one", 1, 10), fixture.write("two", 2, 20)];
    fixture.transfer(&paths).complete();
    assert_eq!(names(&fixture.top.path().join("in")), ["one", "two"]);
}

#[test]
fn one_thread_and_one_segment_are_enough() {
    let mut fixture = Fixture::new();
    fixture.send = SendOptions { threads: 1, ..SendOptions::default() };
    fixture.receive.threads = 1;
    let path = fixture.write("file", 1, 3_000_000);
    fixture.transfer(std::slice::from_ref(&path)).complete();
    assert_eq!(fs::read(path).unwrap(), fs::read(fixture.target("file")).unwrap());
}

#[test]
fn sending_again_moves_nothing_and_keeps_existing_files() {
    let fixture = Fixture::new();
    fixture.write("tree/a", 1, 50_000);
    fixture.write("tree/b/c", 2, 0);
    let tree = [fixture.source("tree")];
    fixture.transfer(&tree).complete();
    let before = snapshot(&fixture.top.path().join("in"));
    let again = fixture.transfer(&tree);
    let (sent, received) = again.complete();
    assert_eq!((sent.bytes_moved, sent.bytes_resumed), (0, 50_000));
    assert_eq!(received.bytes_resumed, 50_000);
    assert_eq!(snapshot(&fixture.top.path().join("in")), before);
}

#[test]
fn files_wait_for_others_to_be_closed() {
    let mut fixture = Fixture::new();
    for index in 0..100 {
        fixture.write(&format!("tree/d{}/f{index}", index % 10), index, 3000);
    }
    for files in [0, 3] {
        fixture.receive.open_files = OpenFiles::new(files);
        fixture.receive.overwrite = true;
        fixture.transfer(&[fixture.source("tree")]).complete();
        // The next transfer has to compare them: different content with the same size and time.
        let path = fixture.target("tree/d1/f1");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, random_bytes(99, 3000)).unwrap();
        fs::File::open(&path).unwrap().set_modified(modified).unwrap();
    }
}
