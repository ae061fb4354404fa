//! Interrupted transfers that are resumed.

use super::*;
use crate::journal::{JournalKey, parse};
use crate::manifest::Modified;
use crate::segment::Layout;

/// Returns the number of bytes of `name` that the target directory holds verified, by an
/// independent look at the disk.
fn held(fixture: &Fixture, name: &str) -> u64 {
    let source = fs::metadata(fixture.source(name)).unwrap();
    let content = fs::read(fixture.source(name)).unwrap();
    if let Ok(arrived) = fs::read(fixture.target(name)) {
        assert!(arrived == content, "{name} is in its place and wrong");
        return content.len() as u64;
    }
    let Ok(journal) = fs::read(fixture.target(&format!("{name}.litz-journal"))) else { return 0 };
    let Ok(part) = fs::read(fixture.target(&format!("{name}.litz-part"))) else { return 0 };
    let layout = Layout::new(source.len(), 10).unwrap();
    let sender = PublicKey::from_bytes([fixture.sender; 32]);
    let key = JournalKey { base_log2: 10, size: source.len(), modified: Modified::of(&source), sender };
    let Some((recorded, _)) = parse(&journal, &key, layout) else { return 0 };
    let lengths = recorded.keys().map(|segment| {
        let (offset, len) = layout.range(*segment);
        let range = offset as usize..(offset + len) as usize;
        assert!(part[range.clone()] == content[range], "segment {segment} of {name} is recorded and wrong");
        len
    });
    lengths.sum()
}

#[test]
fn a_transfer_interrupted_anywhere_resumes_without_sending_verified_segments_again() {
    let mut attempts_total = 0;
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let fixture = Fixture::new();
        let files: Vec<String> = (0..4).map(|index| format!("tree/f{index}")).collect();
        for (index, name) in files.iter().enumerate() {
            fixture.write(name, seed * 10 + index as u64, rng.below(60_000) as usize);
        }
        let tree = [fixture.source("tree")];
        let total = Source::scan(&tree, &CancelToken::new()).unwrap().totals().bytes;
        let mut moved_total = 0;
        for attempt in 0..200 {
            let before: u64 = files.iter().map(|name| held(&fixture, name)).sum();
            // Early cuts fall into the dialogue before the data, late ones into the dialogue after
            // it.
            let cut = rng.between(1, total / 2 + 2000);
            let outcome = fixture.transfer_with(&tree, |link| {
                link.faults().bytes_left.store(cut, Ordering::SeqCst);
            });
            let after: u64 = files.iter().map(|name| held(&fixture, name)).sum();
            assert!(after >= before, "seed {seed}: {before} bytes held before attempt {attempt}, {after} after");
            moved_total += after - before;
            attempts_total += 1;
            match (&outcome.sent, &outcome.received) {
                (Ok(sent), _) => {
                    assert_eq!((sent.bytes_resumed, sent.bytes_moved), (before, total - before), "seed {seed}");
                    break;
                }
                (Err(error), Err(_)) => assert!(error.is_resumable(), "seed {seed}: {error}"),
                // Only the last messages were lost.
                (Err(_), Ok(received)) => assert!(received.is_complete(), "seed {seed}"),
            }
            assert!(attempt < 199, "seed {seed}: no end");
        }
        assert_eq!(moved_total, total, "seed {seed}: every byte was new exactly once");
        assert_eq!(names(&fixture.target("tree")), ["f0", "f1", "f2", "f3"], "seed {seed}: nothing is left over");
    }
    assert!(attempts_total > 100, "the cuts did happen: {attempts_total} attempts");
}

/// Interrupts a transfer of one file of 100 segments in the middle; returns the bytes that the
/// receiver held.
fn interrupted(fixture: &Fixture) -> u64 {
    let path = fixture.write("file", 5, 100 * 1024);
    let outcome = fixture.transfer_with(&[path], |link| link.faults().bytes_left.store(60_000, Ordering::SeqCst));
    assert!(outcome.sent.is_err() && outcome.received.is_err());
    let held = held(fixture, "file");
    assert!(held > 20_000, "{held} bytes held");
    held
}

#[test]
fn both_sides_report_the_verification_of_existing_data() {
    let fixture = Fixture::new();
    let held = interrupted(&fixture);
    let outcome = fixture.transfer(&[fixture.source("file")]);
    assert_eq!(outcome.complete().0.bytes_resumed, held);
    for events in [&outcome.sender_events, &outcome.receiver_events] {
        let verified = events.iter().rfind(|event| event["event"] == "verifying").unwrap();
        assert_eq!((&verified["bytes_done"], &verified["bytes_total"]), (&held.into(), &held.into()));
        let started = events.iter().find(|event| event["event"] == "file_started").unwrap();
        assert_eq!(started["bytes_resumed"], held);
    }
}

#[test]
fn data_lost_from_the_part_file_in_a_power_loss_is_sent_again() {
    let fixture = Fixture::new();
    let held_before = interrupted(&fixture);
    // The journal reached the disk, a page of the data did not.
    let part = fixture.target("file.litz-part");
    let mut bytes = fs::read(&part).unwrap();
    let source = fs::read(fixture.source("file")).unwrap();
    let kept = (0..100).find(|segment| bytes[segment * 1024..][..1024] == source[segment * 1024..][..1024]).unwrap();
    bytes[kept * 1024..][..1024].fill(0);
    fs::write(&part, &bytes).unwrap();
    let outcome = fixture.transfer(&[fixture.source("file")]);
    assert_eq!(outcome.complete().0.bytes_resumed, held_before - 1024);
    assert_eq!(fs::read(fixture.target("file")).unwrap(), source);
}

#[test]
fn a_source_that_changed_with_its_time_kept_is_detected_and_the_next_attempt_starts_over() {
    let fixture = Fixture::new();
    interrupted(&fixture);
    // Different content with the same size and time.
    let modified = fs::metadata(fixture.source("file")).unwrap().modified().unwrap();
    let path = fixture.write("file", 6, 100 * 1024);
    fs::File::open(&path).unwrap().set_modified(modified).unwrap();
    let outcome = fixture.transfer(std::slice::from_ref(&path));
    assert_eq!(outcome.summaries().0.exit_code(), 1);
    assert_eq!(outcome.failures(), BTreeMap::from([("file".into(), "source_changed".into())]));
    assert!(names(&fixture.top.path().join("in")).is_empty(), "nothing of it is kept");
    let again = fixture.transfer(std::slice::from_ref(&path));
    assert_eq!(again.complete().0.bytes_resumed, 0);
    assert_eq!(fs::read(path).unwrap(), fs::read(fixture.target("file")).unwrap());
}

#[test]
fn a_source_with_another_time_starts_over_at_once() {
    let fixture = Fixture::new();
    interrupted(&fixture);
    let path = fixture.write("file", 6, 100 * 1024);
    let later = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(5);
    fs::File::open(&path).unwrap().set_modified(later).unwrap();
    let outcome = fixture.transfer(std::slice::from_ref(&path));
    assert_eq!(outcome.complete().0.bytes_resumed, 0);
    assert_eq!(fs::read(path).unwrap(), fs::read(fixture.target("file")).unwrap());
}

#[test]
fn another_senders_file_of_the_same_name_size_and_time_is_not_mixed_in() {
    let mut fixture = Fixture::new();
    interrupted(&fixture);
    let modified = fs::metadata(fixture.source("file")).unwrap().modified().unwrap();
    let path = fixture.write("file", 6, 100 * 1024);
    fs::File::open(&path).unwrap().set_modified(modified).unwrap();
    fixture.sender = 2;
    let outcome = fixture.transfer(std::slice::from_ref(&path));
    assert_eq!(outcome.complete().0.bytes_resumed, 0);
    assert_eq!(fs::read(path).unwrap(), fs::read(fixture.target("file")).unwrap());
}

#[test]
fn cancelling_on_either_side_ends_both_at_once_and_the_transfer_can_resume() {
    for by_sender in [true, false] {
        let fixture = Fixture::new();
        let path = fixture.write("file", 5, 4_000_000);
        let (sender, receiver) = pair();
        let context = fixture.context();
        let source = Source::scan(std::slice::from_ref(&path), &CancelToken::new()).unwrap();
        let cancel = if by_sender { &fixture.send.cancel } else { &fixture.receive.cancel };
        let at_half = |event: TransferEvent<'_>| {
            if matches!(event, TransferEvent::Progress { bytes_done, .. } if bytes_done >= 1_500_000) {
                cancel.cancel();
            }
        };
        let (sent, received) = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let (link, control) = receiver;
                let (directory, mut anybody) = (fixture.top.path().join("in"), AcceptAll { completed: false });
                receive::run(&link, control, &context, &directory, &fixture.receive, &mut anybody, &at_half)
            });
            let (link, control) = sender;
            let sent = send::run(&link, control, &context, &Credential::Key, &source, &fixture.send, &at_half);
            (sent.unwrap_err(), receiving.join().unwrap().unwrap_err())
        });
        let (ours, theirs) = if by_sender { (sent, received) } else { (received, sent) };
        assert!(matches!(ours, TransferError::Cancelled) && ours.exit_code() == 130, "{ours:?}");
        assert!(matches!(theirs, TransferError::CancelledByPeer), "{theirs:?}");
        let held = held(&fixture, "file");
        assert!(held > 100_000, "{held} bytes are kept");
        let fresh = Fixture { send: SendOptions { cancel: CancelToken::new(), ..fixture.send.clone() }, ..fixture };
        let fresh = Fixture { receive: ReceiveOptions { threads: 3, ..ReceiveOptions::default() }, ..fresh };
        assert_eq!(fresh.transfer(&[path]).complete().0.bytes_resumed, held);
    }
}
