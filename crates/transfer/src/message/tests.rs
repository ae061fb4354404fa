use proptest::prelude::*;

use super::*;

fn hello(proof: Option<Proof>, run: Option<RunId>) -> Message {
    Message::Hello { version: 1, base_log2: 22, proof, run }
}

fn samples() -> Vec<Message> {
    let path = |components: &[&[u8]]| RelativePath::from_components(components.iter().copied()).unwrap();
    let entry =
        |path, kind| Entry { path, kind, modified: Modified { seconds: -1, nanoseconds: 999_999_999 }, mode: 0o644 };
    let error = FileError::new(FileErrorKind::NoSpace, "5 bytes free");
    let hash = FileHash::from_bytes([7; 32]);
    vec![
        hello(Some(Proof::from_bytes([3; 32])), Some(RunId::from_bytes([4; 16]))),
        hello(None, Some(RunId::from_bytes([0; 16]))),
        hello(Some(Proof::from_bytes([3; 32])), None),
        hello(None, None),
        Message::Entries(vec![
            entry(path(&[b"dir"]), EntryKind::Directory),
            entry(path(&[b"dir", b"\xff\n"]), EntryKind::File { size: u64::MAX }),
        ]),
        Message::Entries(vec![entry(path(&[b"stdin"]), EntryKind::Stream)]),
        Message::Entries(vec![
            entry(path(&[b"dir", b"link"]), EntryKind::SymbolicLink { target: LinkTarget::new(b"./file").unwrap() }),
            entry(path(&[b"dir", b"name"]), EntryKind::HardLink { file: 7 }),
            entry(path(&[b"holes"]), EntryKind::SparseFile { size: u64::MAX, data: u64::MAX - 1 }),
        ]),
        Message::EntriesEnd { count: 0, skipped: Some(SkippedCounts { links: 1, special: u32::MAX, unreadable: 0 }) },
        Message::StreamEnd { index: 0, size: u64::MAX, hash },
        Message::Credit { index: 0, pieces: 256 },
        Message::EntriesEnd { count: 2, skipped: None },
        Message::FileDone { index: 1, hash },
        Message::FileAbort { index: 1, error: error.clone() },
        Message::Finish,
        Message::Accepted { version: 1, proof: None },
        Message::Refused { code: 2 },
        Message::Plan { index: 1, held: vec![0, 0xff] },
        Message::Verifying { index: 1, bytes_done: 5, bytes_total: u64::MAX },
        Message::Done { index: 1, hash: Some(hash) },
        Message::Failed { index: 1, error },
        Message::LeftOut { index: 1, reason: LeftOutReason::WouldReceive },
        Message::Deleted { is_dry_run: true, path: path(&[b"dir", b"\xff\n"]) },
        Message::NotDeleted { path: path(&[b"dir"]), error: FileError::new(FileErrorKind::Permission, "busy") },
        Message::NothingDeleted { reason: NothingDeletedReason::Skipped },
        Message::Bye,
        Message::Stop { code: StopCode::Cancelled, reason: "asked to".into() },
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

#[test]
fn every_message_round_trips_and_every_truncation_is_an_error() {
    for message in samples() {
        let bytes = encoded(&message);
        assert_eq!(u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len() - 4);
        assert_eq!(encoded(&Message::decode(&bytes[4..]).unwrap()), bytes, "{message:?}");
        assert!(Message::decode(&[&bytes[4..], &[1]].concat()).is_err() || matches!(message, Message::Plan { .. }));
        for len in 4..bytes.len() {
            let cut = Message::decode(&bytes[4..len]);
            let is_older_hello = matches!(message, Message::Hello { run: Some(_), .. }) && len + 16 == bytes.len();
            let is_older_end =
                matches!(message, Message::EntriesEnd { skipped: Some(_), .. }) && len + 12 == bytes.len();
            let may_be_shorter =
                matches!(message, Message::Plan { .. } | Message::Entries(_)) || is_older_hello || is_older_end;
            assert!(cut.is_err() || may_be_shorter, "{message:?} cut to {len}");
        }
    }
}

#[test]
fn hello_without_a_run_id_is_what_older_receivers_read() {
    let older = [&[0, 0, 0, 37, 0x01, 0, 1, 22, 1][..], &[3; 32]].concat();
    assert_eq!(encoded(&hello(Some(Proof::from_bytes([3; 32])), None)), older);
    let longer = [&[0, 0, 0, 53, 0x01, 0, 1, 22, 1][..], &[3; 32], &[4; 16]].concat();
    assert_eq!(encoded(&hello(Some(Proof::from_bytes([3; 32])), Some(RunId::from_bytes([4; 16])))), longer);
}

#[test]
fn an_error_kind_that_is_never_sent_is_malformed() {
    for (kind, is_known) in [(0, false), (1, true), (12, true), (FileErrorKind::Special.code(), false), (14, false)] {
        let frame = [0x46, 0, 0, 0, 1, kind, 0];
        assert_eq!(Message::decode(&frame).is_ok(), is_known, "kind {kind}");
    }
}

#[test]
fn reports_of_deletions_with_hostile_names_or_unknown_reasons_are_malformed() {
    for name in [b"..".as_slice(), b"".as_slice(), b"a/b", b"a\0", b"x.litz-part"] {
        let frame = [&[0x4a, 0, 1, name.len() as u8], name].concat();
        assert_eq!(Message::decode(&frame).unwrap_err(), Malformed("a forbidden name"), "{name:?}");
    }
    for frame in [&[0x4a, 0, 0][..], &[0x4a, 2, 1, 1, b'a'], &[0x49, 0, 0, 0, 1, 0], &[0x49, 0, 0, 0, 1, 4], &[0x4c, 3]]
    {
        assert!(Message::decode(frame).is_err(), "{frame:?}");
    }
}

#[test]
fn hostile_entries_are_malformed() {
    let hostile: &[&[&[u8]]] = &[&[], &[b".."], &[b"a", b".."], &[b""], &[b"/etc"], &[b"a\0"], &[b"a.litz-part"]];
    for components in hostile {
        let mut frame = vec![0x02, KIND_DIRECTORY];
        frame.extend_from_slice(&[0; 2 + 8 + 4]);
        frame.push(components.len() as u8);
        for component in *components {
            frame.push(component.len() as u8);
            frame.extend_from_slice(component);
        }
        assert_eq!(Message::decode(&frame).unwrap_err(), Malformed("a forbidden name"), "{components:?}");
    }
}

#[test]
fn text_from_a_peer_cannot_reach_the_terminal_raw() {
    let mut frame = encoded(&Message::Stop { code: StopCode::Failed, reason: "abc".into() })[4..].to_vec();
    frame[3] = 0x1b;
    assert!(Message::decode(&frame).is_err());
    let long = Message::Stop { code: StopCode::Failed, reason: "é\u{7}".repeat(500) };
    assert!(Message::decode(&encoded(&long)[4..]).is_ok(), "ours is cut and cleaned");
}

#[test]
fn the_length_of_an_entry_is_not_underestimated() {
    for message in samples() {
        if let Message::Entries(entries) = &message {
            assert!(entries.iter().map(entry_len).sum::<usize>() + 5 >= encoded(&message).len());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_to_an_error_or_to_what_encodes_to_them(frame in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = Message::decode(&frame) {
            prop_assert_eq!(&encoded(&message)[4..], &frame[..]);
        }
    }

    #[test]
    fn any_change_of_a_message_decodes_without_panic(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let mut frame = encoded(which.get(&samples()))[4..].to_vec();
        let at = at.index(frame.len());
        frame[at] = to;
        if let Ok(message) = Message::decode(&frame) {
            prop_assert_eq!(&encoded(&message)[4..], &frame[..]);
        }
    }
}
