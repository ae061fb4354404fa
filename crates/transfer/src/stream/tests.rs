use units::Rng;

use super::*;

fn pieces(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    bytes.chunks(PIECE_LEN).enumerate().map(|(number, piece)| (number as u32, piece.to_vec())).collect()
}

fn random(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(len as u64).fill(&mut bytes);
    bytes
}

#[test]
fn pieces_in_any_order_give_the_bytes_and_the_hash_of_the_whole() {
    for len in [0, 1, PIECE_LEN - 1, PIECE_LEN, PIECE_LEN + 1, 2 * PIECE_LEN, 7 * PIECE_LEN, 9 * PIECE_LEN + 5] {
        let bytes = random(len);
        let expected = FileHash::from_bytes(*blake3::hash(&bytes).as_bytes());
        let mut assembly = Assembly::new();
        let mut taken = Vec::new();
        for (number, piece) in pieces(&bytes).into_iter().rev() {
            let hash = hash_piece(number, &piece);
            assembly.insert(number, piece, hash).unwrap();
        }
        assert_eq!(assembly.outcome(), Ok(None), "the end is not known");
        assembly.on_end(len as u64, expected).unwrap();
        while let Some(piece) = assembly.take().unwrap() {
            taken.extend(piece);
        }
        assert!(taken == bytes, "{len}");
        assert_eq!(assembly.outcome(), Ok(Some(Ok(expected))), "{len}");
    }
}

#[test]
fn another_hash_is_noticed() {
    let mut assembly = Assembly::new();
    assembly.insert(0, vec![1], hash_piece(0, &[1])).unwrap();
    assembly.take().unwrap();
    assembly.on_end(1, FileHash::from_bytes([0; 32])).unwrap();
    assert!(matches!(assembly.outcome(), Ok(Some(Err(_)))));
    assert!(assembly.on_end(1, FileHash::from_bytes([0; 32])).is_err(), "a second end");
}

#[test]
fn only_granted_pieces_that_are_missing_are_taken() {
    let piece = || (vec![0; PIECE_LEN], hash_piece(0, &[0]));
    let mut assembly = Assembly::new();
    let insert = |assembly: &mut Assembly, number| {
        let (bytes, hash) = piece();
        assembly.insert(number, bytes, hash)
    };
    assert!(insert(&mut assembly, WINDOW).is_err(), "beyond the credit");
    insert(&mut assembly, 0).unwrap();
    assert!(insert(&mut assembly, 0).is_err(), "twice");
    assert!(assembly.take().unwrap().is_some());
    assert!(insert(&mut assembly, 0).is_err(), "twice");
    assert_eq!(assembly.credit(), None);
    for number in 1..CREDIT_STEP {
        insert(&mut assembly, number).unwrap();
        assembly.take().unwrap();
    }
    assert_eq!(assembly.credit(), Some(WINDOW + CREDIT_STEP));
    insert(&mut assembly, WINDOW).unwrap();
    assert!(assembly.insert(1 + WINDOW, Vec::new(), hash_piece(0, &[0])).is_err(), "empty");
}

#[test]
fn nothing_follows_a_short_piece_and_the_size_is_a_bound() {
    let mut assembly = Assembly::new();
    assembly.insert(0, vec![1], hash_piece(0, &[1])).unwrap();
    assembly.insert(1, vec![1], hash_piece(1, &[1])).unwrap();
    assembly.take().unwrap();
    assert!(assembly.take().is_err());
    let mut assembly = Assembly::new();
    assembly.insert(0, vec![1, 2], hash_piece(0, &[1, 2])).unwrap();
    assembly.take().unwrap();
    assembly.on_end(1, FileHash::from_bytes([0; 32])).unwrap();
    assert!(assembly.outcome().is_err());
}
