use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Write(usize),
    Take {
        limit_extra: u64,
        len: u64,
    },
    /// Acknowledge or lose the sent range picked by this index.
    Acknowledge(usize),
    Lose(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (1..40usize).prop_map(Operation::Write),
        (0..60u64, 1..25u64).prop_map(|(limit_extra, len)| Operation::Take { limit_extra, len }),
        (0..64usize).prop_map(Operation::Acknowledge),
        (0..64usize).prop_map(Operation::Lose),
    ]
}

/// The byte at `offset` of the test stream, so that a wrong offset is noticed.
fn byte_at(offset: u64) -> u8 {
    (offset ^ (offset >> 7)) as u8
}

fn bytes_of(buffer: &SendBuffer, range: Range<u64>) -> Vec<u8> {
    let mut plan = Plan::new();
    buffer.add_to_plan(range, &mut plan);
    let piece_bytes = |piece: &crate::plan::Piece| {
        plan.chunks[piece.chunk as usize][piece.start as usize..][..piece.len as usize].to_vec()
    };
    plan.pieces.iter().flat_map(piece_bytes).collect()
}

/// The reference model: one flag per byte.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Byte {
    Unsent,
    InFlight,
    Lost,
    Acked,
}

proptest! {
    #[test]
    fn every_byte_is_sent_until_acknowledged(operations in prop::collection::vec(operation(), 1..120)) {
        let mut buffer = SendBuffer::default();
        let mut oracle: Vec<Byte> = Vec::new();
        let mut sent: Vec<Range<u64>> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Write(len) => {
                    let start = oracle.len() as u64;
                    buffer.write((start..start + len as u64).map(byte_at).collect::<Vec<_>>().into());
                    oracle.resize(oracle.len() + len, Byte::Unsent);
                }
                Operation::Take { limit_extra, len } => {
                    let limit = buffer.unsent() + limit_extra;
                    let peeked = buffer.peek(limit);
                    let taken = buffer.take(limit, len);
                    prop_assert_eq!(peeked.as_ref().map(|range| range.start), taken.as_ref().map(|range| range.start));
                    let Some(range) = taken else { continue };
                    prop_assert!(range.end - range.start <= len);
                    let wanted = if oracle.contains(&Byte::Lost) { Byte::Lost } else { Byte::Unsent };
                    for offset in range.clone() {
                        prop_assert_eq!(oracle[offset as usize], wanted);
                        prop_assert!(wanted == Byte::Lost || offset < limit);
                        oracle[offset as usize] = Byte::InFlight;
                    }
                    prop_assert_eq!(bytes_of(&buffer, range.clone()), range.clone().map(byte_at).collect::<Vec<_>>());
                    sent.push(range);
                }
                Operation::Acknowledge(pick) if !sent.is_empty() => {
                    let range = sent.swap_remove(pick % sent.len());
                    buffer.acknowledge(range.clone());
                    range.for_each(|offset| oracle[offset as usize] = Byte::Acked);
                }
                Operation::Lose(pick) if !sent.is_empty() => {
                    let range = sent.swap_remove(pick % sent.len());
                    buffer.lose(range.clone());
                    for offset in range {
                        let byte = &mut oracle[offset as usize];
                        *byte = if *byte == Byte::Acked { Byte::Acked } else { Byte::Lost };
                    }
                }
                _ => {}
            }
            prop_assert_eq!(buffer.has_lost(), oracle.contains(&Byte::Lost));
            prop_assert_eq!(buffer.is_fully_acked(), oracle.iter().all(|byte| *byte == Byte::Acked));
            let held = oracle.iter().position(|byte| *byte != Byte::Acked).map_or(0, |floor| oracle.len() - floor);
            prop_assert_eq!(buffer.held_bytes(), held as u64);
        }
    }
}
