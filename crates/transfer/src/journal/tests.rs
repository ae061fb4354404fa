use proptest::prelude::*;

use super::*;

fn key() -> JournalKey {
    JournalKey {
        base_log2: 10,
        size: 10_000,
        modified: Modified { seconds: 1, nanoseconds: 2 },
        sender: PublicKey::from_bytes([3; 32]),
    }
}

fn layout() -> Layout {
    Layout::new(10_000, 10).unwrap()
}

fn written(segments: &[(u32, u8)]) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let mut journal = Journal::create(file.try_clone().unwrap(), &key()).unwrap();
    for (segment, value) in segments {
        journal.append(*segment, &[*value; 32]).unwrap();
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn resumed(bytes: &[u8]) -> Option<(Journal, Recorded)> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Journal::resume(file, &key(), layout()).unwrap()
}

#[test]
fn records_are_read_back_and_the_latest_of_a_segment_counts() {
    let bytes = written(&[(0, 1), (9, 2), (0, 3)]);
    let (_, recorded) = resumed(&bytes).unwrap();
    assert_eq!(recorded, Recorded::from([(0, [3; 32]), (9, [2; 32])]));
}

#[test]
fn a_journal_cut_at_any_byte_keeps_its_complete_records_and_is_continued() {
    let bytes = written(&[(0, 1), (1, 2), (2, 3)]);
    for len in 0..bytes.len() {
        let whole = len.checked_sub(HEADER_LEN).map(|records| records / RECORD_LEN);
        let outcome = resumed(&bytes[..len]);
        assert_eq!(outcome.as_ref().map(|(_, recorded)| recorded.len()), whole, "cut to {len}");
        if let Some((mut journal, recorded)) = outcome {
            journal.append(5, &[7; 32]).unwrap();
            let (_, again) = Journal::resume(journal.file, &key(), layout()).unwrap().unwrap();
            assert_eq!(again.len(), recorded.len() + 1, "a torn record does not hide the next");
        }
    }
}

#[test]
fn a_flipped_bit_costs_only_the_record_and_those_after_it() {
    let bytes = written(&[(0, 1), (1, 2), (2, 3)]);
    for index in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[index] ^= 0x10;
        let whole = index.checked_sub(HEADER_LEN).map(|records| records / RECORD_LEN);
        assert_eq!(resumed(&wrong).map(|(_, recorded)| recorded.len()), whole, "byte {index}");
    }
}

#[test]
fn a_journal_of_another_file_or_sender_is_not_used() {
    let bytes = written(&[(0, 1)]);
    let others = [
        JournalKey { size: 10_001, ..key() },
        JournalKey { base_log2: 11, ..key() },
        JournalKey { modified: Modified { seconds: 1, nanoseconds: 3 }, ..key() },
        JournalKey { sender: PublicKey::from_bytes([4; 32]), ..key() },
    ];
    for other in others {
        assert!(parse(&bytes, &other, layout()).is_none(), "{other:?}");
    }
}

#[test]
fn a_segment_beyond_the_file_and_a_journal_that_is_too_long_are_rejected() {
    let (_, recorded) = resumed(&written(&[(0, 1), (10, 1), (1, 1)])).unwrap();
    assert_eq!(recorded.len(), 1);
    let endless: Vec<_> = (0..10 * REPEATS_MAX as u32 + 1).map(|segment| (segment % 10, 1)).collect();
    assert!(resumed(&written(&endless)).is_none());
    assert!(resumed(&written(&endless[1..])).is_some());
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(
        tail in prop::collection::vec(any::<u8>(), 0..300),
        with_header in any::<bool>(),
    ) {
        let bytes = if with_header { [written(&[(1, 1)]), tail].concat() } else { tail };
        if let Some((recorded, valid_len)) = parse(&bytes, &key(), layout()) {
            prop_assert!(valid_len <= bytes.len() && recorded.keys().all(|segment| *segment < 10));
        }
    }
}
