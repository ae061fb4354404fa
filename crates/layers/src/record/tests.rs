use proptest::prelude::*;

use super::*;
use crate::cipher::RecordKey;
use crate::secret::{Direction, SharedSecret};
use crate::stack::CipherLayer;

fn key(layer: CipherLayer) -> RecordKey {
    let direction = Direction { salt: [1; 32], sender_initial: 2, receiver_initial: 3 };
    SharedSecret::new([7; 32]).record_key(layer, &direction)
}

fn seal(key: &RecordKey, number: u64, kind: RecordKind, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    key.seal(number, kind, [content].into_iter(), &mut out);
    out
}

/// Returns the first record of `bytes`, opened as the record `number`.
fn open(key: &RecordKey, number: u64, bytes: &[u8]) -> Result<Option<Vec<u8>>, RecordError> {
    let mut reader = RecordReader::default();
    reader.push(Bytes::copy_from_slice(bytes));
    let Some(record) = reader.next_record()? else { return Ok(None) };
    let mut out = Vec::new();
    key.open(number, &record, &mut out)?;
    Ok(Some(out))
}

#[test]
fn records_of_every_cipher_and_length_are_opened_again() {
    for layer in CipherLayer::ALL {
        let key = key(layer);
        for len in (0..40).chain([4088, 4096, PLAINTEXT_MAX]) {
            let content: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let sealed = seal(&key, 5, RecordKind::Data, &content);
            assert_eq!(sealed.len(), RecordKey::sealed_len(layer, len), "{layer:?} {len}");
            assert_eq!(open(&key, 5, &sealed), Ok(Some(content)), "{layer:?} {len}");
        }
    }
}

#[test]
fn a_changed_bit_in_any_part_is_found_by_an_aead() {
    for layer in [CipherLayer::Aes128Gcm, CipherLayer::ChaCha20Poly1305] {
        let key = key(layer);
        let sealed = seal(&key, 0, RecordKind::Data, b"some bytes of the application");
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // A longer length waits for more; everything else is an error.
            assert!(!matches!(open(&key, 0, &changed), Ok(Some(_))), "{layer:?} bit {bit}");
        }
    }
}

#[test]
fn a_record_of_an_aead_has_one_place_in_its_stream() {
    for layer in [CipherLayer::Aes128Gcm, CipherLayer::ChaCha20Poly1305] {
        let key = key(layer);
        let sealed = seal(&key, 7, RecordKind::Data, b"content");
        for number in [0, 6, 8, u64::MAX] {
            assert_eq!(open(&key, number, &sealed), Err(RecordError::Forged));
        }
    }
}

#[test]
fn keys_differ_by_secret_salt_and_sequence_numbers() {
    let direction = Direction { salt: [1; 32], sender_initial: 2, receiver_initial: 3 };
    let others = [
        (8, direction),
        (7, Direction { salt: [2; 32], ..direction }),
        (7, Direction { sender_initial: 3, receiver_initial: 2, ..direction }),
        (7, Direction { receiver_initial: 4, ..direction }),
    ];
    for layer in CipherLayer::ALL {
        let sealed = seal(&key(layer), 0, RecordKind::Data, &[1; 64]);
        for (secret, direction) in others {
            let other = SharedSecret::new([secret; 32]).record_key(layer, &direction);
            // CBC has no tag; the padding is right by chance once in 256 keys, and none of these is.
            assert_eq!(open(&other, 0, &sealed), Err(RecordError::Forged), "{layer:?} {direction:?}");
        }
    }
}

#[test]
fn the_ivs_of_cbc_differ_and_are_stated() {
    for layer in [CipherLayer::Des, CipherLayer::TripleDes] {
        let key = key(layer);
        let [one, two] = [0, 1].map(|number| seal(&key, number, RecordKind::Data, &[0; 16]));
        assert_ne!(one[HEADER_LEN..], two[HEADER_LEN..]);
        // The receiver takes the IV from the record, so the number does not matter to it.
        assert_eq!(open(&key, 9, &one), Ok(Some(vec![0; 16])));
    }
}

#[test]
fn lying_lengths_and_types_are_errors_and_do_not_wait() {
    let header = |bytes: [u8; 4]| {
        let mut reader = RecordReader::default();
        reader.push(Bytes::copy_from_slice(&bytes));
        reader.next_record()
    };
    assert_eq!(header([1, 0, 0, 7]), Err(RecordError::Length(7)));
    assert_eq!(header([1, 0, 0xff, 0xff]), Err(RecordError::Length(0xffff)));
    let longest = LENGTH_MAX as u16;
    assert_eq!(header([1, 0, (longest >> 8) as u8, longest as u8]), Ok(None));
    assert_eq!(header([0, 0, 0, 100]), Err(RecordError::Type(0)));
    assert_eq!(header([3, 0, 0, 100]), Err(RecordError::Type(3)));
    assert_eq!(header([1, 9, 0, 100]), Err(RecordError::Type(9)));
    // These are lengths that no record of the cipher has.
    for (layer, len) in [(CipherLayer::Des, 0), (CipherLayer::TripleDes, 9), (CipherLayer::Aes128Gcm, 15)] {
        let bytes = [&[1, 0, 0, (IV_LEN + len) as u8][..], &vec![0; IV_LEN + len]].concat();
        assert_eq!(open(&key(layer), 0, &bytes), Err(RecordError::Length(IV_LEN + len)), "{layer:?}");
    }
}

#[test]
fn a_record_that_is_cut_off_is_not_there() {
    let key = key(CipherLayer::Aes128Gcm);
    let sealed = seal(&key, 0, RecordKind::Data, b"content");
    for len in 0..sealed.len() {
        assert_eq!(open(&key, 0, &sealed[..len]), Ok(None), "{len}");
    }
}

#[test]
fn the_end_has_no_content_and_nothing_follows_it() {
    for layer in CipherLayer::ALL {
        let key = key(layer);
        assert_eq!(open(&key, 0, &seal(&key, 0, RecordKind::End, &[])), Ok(Some(Vec::new())), "{layer:?}");
        assert_eq!(open(&key, 0, &seal(&key, 0, RecordKind::End, b"x")), Err(RecordError::Forged), "{layer:?}");
        let mut reader = RecordReader::default();
        let end = seal(&key, 0, RecordKind::End, &[]);
        reader.push(end.into());
        assert!(reader.next_record().is_ok_and(|record| record.is_some()));
        assert_eq!(reader.next_record(), Ok(None));
        reader.push(Bytes::from_static(&[0]));
        assert_eq!(reader.next_record(), Err(RecordError::AfterEnd));
    }
}

#[test]
fn an_array_before_the_records_is_taken_once_it_is_whole() {
    let mut reader = RecordReader::default();
    reader.push(Bytes::from_static(&[1, 2, 3]));
    assert_eq!(reader.take_array::<4>(), None);
    reader.push(Bytes::from_static(&[4, 5]));
    assert_eq!(reader.take_array(), Some([1, 2, 3, 4]));
    assert_eq!(reader.len(), 1);
}

proptest! {
    /// A stream gives the same records however it is cut into pieces.
    #[test]
    fn records_are_found_however_the_stream_is_cut(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..12),
        cuts in prop::collection::vec(1_usize..200, 1..40),
        layer in prop::sample::select(&CipherLayer::ALL[..]),
    ) {
        let key = key(layer);
        let mut stream = Vec::new();
        for (number, content) in contents.iter().enumerate() {
            // In two pieces.
            let (one, two) = content.split_at(content.len() / 2);
            key.seal(number as u64, RecordKind::Data, [one, two].into_iter(), &mut stream);
        }
        let mut stream = Bytes::from(stream);
        let (mut reader, mut found, mut cuts) = (RecordReader::default(), Vec::new(), cuts.iter().cycle());
        while !stream.is_empty() {
            let cut = (*cuts.next().expect("a cycle")).min(stream.len());
            reader.push(stream.split_to(cut));
            while let Some(record) = reader.next_record().expect("valid records") {
                let mut out = Vec::new();
                prop_assert_eq!(key.open(found.len() as u64, &record, &mut out), Ok(()));
                found.push(out);
            }
        }
        prop_assert!(reader.is_empty());
        prop_assert_eq!(found, contents);
    }

    /// Arbitrary bytes from the network are errors or records.
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), is_first in any::<bool>()) {
        let mut bytes = bytes;
        if is_first && bytes.len() > 2 {
            (bytes[0], bytes[1], bytes[2]) = (1, 0, 0);
        }
        for layer in CipherLayer::ALL {
            let _record_or_error = open(&key(layer), 0, &bytes);
        }
    }
}
