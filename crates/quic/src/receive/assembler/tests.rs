use proptest::prelude::*;

use super::*;

fn stream_byte(offset: u64) -> u8 {
    (offset ^ (offset >> 8)) as u8
}

proptest! {
    #[test]
    fn bytes_come_out_in_order_whatever_order_they_came_in(
        chunks in prop::collection::vec((0..400u64, 1..120u64), 1..60),
        reads in prop::collection::vec(1..200usize, 1..60),
    ) {
        let mut assembler = Assembler::default();
        let mut arrived = [false; 600];
        let mut read: Vec<u8> = Vec::new();
        let mut reads = reads.into_iter().cycle();
        for (offset, len) in chunks {
            let chunk: Vec<u8> = (offset..offset + len).map(stream_byte).collect();
            assembler.insert(offset, Bytes::from(chunk).into(), offset % 2 == 0);
            arrived[offset as usize..(offset + len) as usize].fill(true);
            let contiguous = arrived.iter().position(|has| !has).unwrap_or(arrived.len());
            prop_assert_eq!(assembler.ready_end(), contiguous as u64);
            if offset % 3 == 0
                && let Some(bytes) = assembler.read(reads.next().unwrap_or(1))
            {
                read.extend(bytes.pieces().flatten());
            }
        }
        while let Some(bytes) = assembler.read(reads.next().unwrap_or(1)) {
            read.extend(bytes.pieces().flatten());
        }
        prop_assert_eq!(read.len() as u64, assembler.ready_end());
        prop_assert!(read.iter().enumerate().all(|(offset, byte)| *byte == stream_byte(offset as u64)));
        prop_assert!(!assembler.is_ready());
    }
}

/// The number of the first of `chunks` that is one too many.
fn first_refused(chunks: impl Iterator<Item = (u64, Bytes)>) -> Option<usize> {
    let (mut assembler, mut total) = (Assembler::default(), Pending::default());
    for (index, (offset, chunk)) in chunks.enumerate() {
        let before = assembler.pending();
        assembler.insert(offset, chunk.into(), true);
        if total.update(before, assembler.pending()).is_err() {
            return Some(index);
        }
    }
    None
}

#[test]
fn tiny_pieces_are_refused_before_they_cost_much() {
    let pieces = (1..100_000u64).map(|index| (index * 2, Bytes::from_static(b"x")));
    assert_eq!(first_refused(pieces), Some(PENDING_COUNT_FREE));
}

#[test]
fn single_handshake_bytes_are_taken_up_to_the_minimum_and_no_further() {
    let pieces = Pending { count: CRYPTO_BYTES_MIN, bytes: CRYPTO_BYTES_MIN };
    assert_eq!(pieces.check_crypto(), Ok(()));
    let more = Pending { count: CRYPTO_BYTES_MIN + 1, bytes: CRYPTO_BYTES_MIN + 1 };
    assert_eq!(more.check_crypto(), Err(TooFragmented));
    let whole = Pending { count: PENDING_COUNT_FREE, bytes: 1 << 16 };
    assert_eq!(whole.check_crypto(), Ok(()));
}

#[test]
fn full_packets_out_of_order_are_not_refused() {
    let packet = Bytes::from(vec![0; 1400]);
    assert_eq!(first_refused((1..10_000u64).map(|index| (index * 1400, packet.clone()))), None);
}

#[test]
fn references_are_counted_until_they_are_read() {
    let mut assembler = Assembler::default();
    assembler.insert(0, Bytes::from(vec![1; 1000]).into(), true);
    assembler.insert(1000, Bytes::from(vec![2; 1000]).into(), false);
    assembler.insert(2000, Bytes::from(vec![3; 100]).into(), true);
    assert_eq!(assembler.references(), 1);
    assert_eq!(assembler.read(10).map(|bytes| bytes.len()), Some(10));
    assert_eq!(assembler.references(), 1, "the rest of the chunk is still there");
    assert_eq!(assembler.read(5000).map(|bytes| bytes.len()), Some(990));
    assert_eq!(assembler.references(), 0);
    assert_eq!(assembler.read(5000).map(|bytes| bytes.len()), Some(1100), "copies are contiguous");
}
