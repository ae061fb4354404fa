//! Joins received datagrams into batches.
//!
//! A host that coalesces interrupts joins consecutive datagrams from one address, as generic
//! receive offload (GRO) does: all have the length of the first, except the last, which may be
//! shorter. Other hosts receive datagrams one at a time.

use std::collections::VecDeque;

use netem::Packet;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX};

use super::datagram::Datagram;

/// The number of datagrams at the front of a path's socket that form one batch, and their bytes
/// (not counted if the host does not join). `None` if the socket is empty.
pub(super) fn batch(waiting: &VecDeque<Datagram>, joins: bool) -> Option<(usize, usize)> {
    let first = waiting.front()?;
    if !joins {
        return Some((1, 0));
    }
    let stride = first.len_bytes();
    let (mut count, mut bytes) = (1, stride);
    for next in waiting.iter().skip(1).map(Packet::len_bytes) {
        if next > stride || count == PLAN_DATAGRAMS_MAX || bytes + next > PLAN_BYTES_MAX {
            break;
        }
        (count, bytes) = (count + 1, bytes + next);
        if next < stride {
            break;
        }
    }
    Some((count, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(lens: &[usize]) -> VecDeque<Datagram> {
        lens.iter().map(|len| Datagram::with_bytes(0, vec![0; *len])).collect()
    }

    #[test]
    fn datagrams_of_equal_length_are_joined_up_to_a_shorter_one() {
        assert_eq!(batch(&waiting(&[]), true), None);
        assert_eq!(batch(&waiting(&[100]), true), Some((1, 100)));
        assert_eq!(batch(&waiting(&[100, 100, 40, 40]), true), Some((3, 240)));
        assert_eq!(batch(&waiting(&[40, 100]), true), Some((1, 40)));
        assert_eq!(batch(&waiting(&[100, 100]), false), Some((1, 0)));
    }

    #[test]
    fn a_batch_is_bounded_in_datagrams_and_bytes() {
        assert_eq!(batch(&waiting(&[100; 70]), true), Some((64, 6_400)));
        assert_eq!(batch(&waiting(&[1472; 64]), true), Some((44, 44 * 1472)));
    }
}
