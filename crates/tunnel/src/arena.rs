//! Memory of datagrams, used again once all of them have left.

use std::collections::VecDeque;

use bytes::BytesMut;

/// The length of a piece of memory: the datagrams of one super-packet. With more, one processor counts its
/// references while another one drops those of datagrams that have left.
const PIECE_BYTES: usize = 72 << 10;

/// Pieces that are kept, at most: more than the datagrams that wait in a connection fill.
const PIECES_MAX: usize = 24;

/// Pieces of memory in the order of their last use. Datagrams leave in about that order, too.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pieces: VecDeque<BytesMut>,
}

impl Arena {
    /// A buffer with space for `bytes`.
    pub(crate) fn with_space(&mut self, bytes: usize) -> &mut BytesMut {
        let has_space = self.pieces.back().is_some_and(|piece| piece.capacity() >= bytes);
        if !has_space {
            let oldest = self.pieces.front_mut();
            let is_free = oldest.is_some_and(|oldest| oldest.try_reclaim(bytes.max(PIECE_BYTES)));
            let next = match is_free || self.pieces.len() >= PIECES_MAX {
                true => self.pieces.pop_front(),
                false => None,
            };
            let next = next.filter(|_| is_free).unwrap_or_else(|| BytesMut::with_capacity(bytes.max(PIECE_BYTES)));
            self.pieces.push_back(next);
        }
        self.pieces.back_mut().expect("a piece was just added")
    }

    /// A buffer of its own for `bytes`, which may be filled while others are.
    pub(crate) fn take(&mut self, bytes: usize) -> BytesMut {
        let buffer = self.with_space(bytes);
        let rest = buffer.split_off(bytes);
        std::mem::replace(buffer, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use super::*;

    #[test]
    fn memory_is_used_again_and_never_while_a_datagram_holds_it() {
        let (mut arena, mut held, mut places) = (Arena::default(), VecDeque::new(), BTreeSet::new());
        for number in 0..100_000_u32 {
            let buffer = arena.with_space(1400);
            buffer.extend_from_slice(&number.to_be_bytes().repeat(350));
            let datagram = buffer.split().freeze();
            places.insert(datagram.as_ptr() as usize / (64 << 10));
            held.push_back((number, datagram));
            if held.len() > 200 {
                let (number, datagram) = held.pop_front().expect("some are held");
                assert_eq!(datagram[..], number.to_be_bytes().repeat(350));
            }
        }
        assert!(places.len() < 50, "{} places", places.len());
    }

    #[test]
    fn buffers_that_are_filled_by_turns_keep_their_bytes() {
        let mut arena = Arena::default();
        for round in 0..100_u8 {
            let mut buffers: Vec<BytesMut> = (0..120).map(|_| arena.take(1400)).collect();
            for half in 0..2 {
                buffers.iter_mut().for_each(|buffer| buffer.extend_from_slice(&[round + half; 700]));
            }
            for buffer in &buffers {
                assert_eq!(buffer[..], [[round; 700], [round + 1; 700]].concat());
            }
        }
        assert!(arena.pieces.len() < 6, "{} pieces of memory", arena.pieces.len());
    }

    #[test]
    fn a_large_datagram_gets_memory_of_its_own_size() {
        let mut arena = Arena::default();
        for bytes in [10, 500_000, 10, 300_000] {
            assert!(arena.with_space(bytes).capacity() >= bytes);
        }
    }
}
