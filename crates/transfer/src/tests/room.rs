//! A limit on the bytes that the receiver stores.

use super::streams::transfer as transfer_stream;
use super::*;

fn fixture(bytes: u64) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.receive.room = Some(Room::new(bytes));
    fixture
}

fn left(fixture: &Fixture) -> u64 {
    fixture.receive.room.as_ref().unwrap().left()
}

#[test]
fn what_is_too_much_is_refused_before_any_data_are_sent() {
    let fixture = fixture(10_000);
    let small = fixture.write("a", 1, 4000);
    let large = fixture.write("b", 2, 6001);
    let outcome = fixture.transfer(&[small.clone(), large]);
    assert!(matches!(outcome.received, Err(TransferError::NoRoom(10_001, 10_000))), "{:?}", outcome.received);
    let sent = outcome.sent.unwrap_err();
    assert!(sent.to_string().contains("left for this sender"), "{sent}");
    assert!(names(&fixture.top.path().join("in")).is_empty());
    fixture.transfer(&[small]).complete();
    assert_eq!(left(&fixture), 6000);
}

#[test]
fn what_is_there_counts_once() {
    let mut fixture = fixture(20_000);
    let file = fixture.write("file", 1, 15_000);
    let interrupted = fixture.transfer_with(std::slice::from_ref(&file), |link| {
        link.faults().bytes_left.store(9000, Ordering::SeqCst);
    });
    assert!(interrupted.received.is_err());
    assert_eq!(left(&fixture), 5000, "the part file has its full length");
    fixture.transfer(std::slice::from_ref(&file)).complete();
    fixture.transfer(std::slice::from_ref(&file)).complete();
    assert_eq!(left(&fixture), 5000);
    // A longer one in its place takes the difference.
    fixture.receive.overwrite = true;
    fs::write(&file, random_bytes(2, 18_000)).unwrap();
    fixture.transfer(&[file]).complete();
    assert_eq!(left(&fixture), 2000);
}

#[test]
fn files_for_which_another_transfer_has_taken_the_room_fail() {
    let fixture = fixture(10_000);
    let paths = [fixture.write("a", 1, 4000), fixture.write("b", 2, 5000)];
    let room = fixture.receive.room.clone().unwrap();
    let source = Source::scan(&paths, &CancelToken::new()).unwrap();
    // Simulates another transfer that takes it between the list and the first file.
    let events = |event: TransferEvent<'_>| {
        if matches!(event, TransferEvent::Started { .. }) {
            assert!(room.take(5500));
        }
    };
    let (sender, receiver) = pair();
    let context = fixture.context();
    let received = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (link, control) = receiver;
            let mut authoriser = AcceptAll { completed: false };
            let directory = fixture.top.path().join("in");
            receive::run(&link, control, &context, &directory, &fixture.receive, &mut authoriser, &events)
        });
        let (link, control) = sender;
        send::run(&link, control, &context, &Credential::Key, &source, &fixture.send, &()).unwrap();
        receiving.join().unwrap().unwrap()
    });
    assert_eq!((received.files_done, received.failed), (1, 1));
    assert_eq!(left(&fixture), 500);
}

#[test]
fn a_stream_ends_where_the_room_does() {
    let fixture = fixture(600_000);
    let outcome = transfer_stream(&fixture, &random_bytes(1, 1_000_000), |_| {});
    assert!(outcome.received.is_err() && outcome.sent.is_err(), "{:?}", outcome.received);
    assert!(names(&fixture.top.path().join("in")).is_empty());
    let outcome = transfer_stream(&self::fixture(600_000), &random_bytes(1, 600_000), |_| {});
    outcome.complete();
}

#[test]
fn each_name_of_a_file_counts() {
    let fixture = fixture(10_000);
    fixture.write("tree/a", 1, 4000);
    fs::hard_link(fixture.source("tree/a"), fixture.source("tree/b")).unwrap();
    let keep = Keep::default().with_hard_links(true);
    let source = Source::scan_keeping(&[fixture.source("tree")], keep, &CancelToken::new()).unwrap();
    fixture.transfer_source(&source, |_| {}).complete();
    assert_eq!(left(&fixture), 2000);
    fixture.transfer_source(&source, |_| {}).complete();
    assert_eq!(left(&fixture), 2000);
}
