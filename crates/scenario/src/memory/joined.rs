//! Which datagrams a socket hands over as one batch.
//!
//! Where a host lets datagrams wait for each other, its system joins those that come one behind the other from one address, as receive
//! offload does: all as long as the first, but the last, which may be shorter. Otherwise they come one by one.

use std::collections::VecDeque;

use netem::Packet;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX};

use super::frame::Frame;

/// How many datagrams from the front of a path's socket are one batch, and how many bytes, which are not counted of one that would be
/// alone anyway; none if there are none.
pub(super) fn batch(waiting: &VecDeque<Frame>, joins: bool) -> Option<(usize, usize)> {
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

    fn waiting(lens: &[usize]) -> VecDeque<Frame> {
        lens.iter().map(|len| Frame::loose(0, vec![0; *len])).collect()
    }

    #[test]
    fn datagrams_of_one_length_are_a_batch_that_a_shorter_one_ends() {
        assert_eq!(batch(&waiting(&[]), true), None);
        assert_eq!(batch(&waiting(&[100]), true), Some((1, 100)));
        assert_eq!(batch(&waiting(&[100, 100, 40, 40]), true), Some((3, 240)));
        assert_eq!(batch(&waiting(&[40, 100]), true), Some((1, 40)));
        assert_eq!(batch(&waiting(&[100, 100]), false), Some((1, 0)));
    }

    #[test]
    fn a_batch_has_no_more_datagrams_and_bytes_than_a_system_joins() {
        assert_eq!(batch(&waiting(&[100; 70]), true), Some((64, 6_400)));
        assert_eq!(batch(&waiting(&[1472; 64]), true), Some((44, 44 * 1472)));
    }
}
