//! Packet numbers: truncated by the sender and completed by the receiver (RFC 9000 §17.1).

use crate::quic::varint::VARINT_MAX;

/// Returns the number of bytes, 1 to 4, with which `number` must be sent so that a receiver that
/// has every packet up to `largest_acked` can decode it (`None`: no packet was acknowledged yet).
/// Twice the distance must fit (RFC 9000 §A.2).
///
/// # Panics
///
/// If `number` is not above `largest_acked`, or is more than 2^31 above it.
#[inline]
pub fn number_len(number: u64, largest_acked: Option<u64>) -> usize {
    // Without an acknowledgement the distance is counted from -1.
    let distance = largest_acked.map_or(number.wrapping_add(1), |acked| number.wrapping_sub(acked));
    match distance {
        1..=0x80 => 1,
        0x81..=0x8000 => 2,
        0x8001..=0x80_0000 => 3,
        0x80_0001..=0x8000_0000 => 4,
        _ => panic!("packet number {number} cannot follow {largest_acked:?}"),
    }
}

/// Returns the packet number that is closest to the next expected one and whose low `8 *
/// number_len` bits are `truncated` (RFC 9000 §A.3). `largest` is the largest number received in
/// the space, `None` if none was.
///
/// The result is at most 2^62-1 for any input. A wrongly decoded number fails authentication.
///
/// # Panics
///
/// If `number_len` is not 1 to 4.
#[inline]
pub fn decode_number(largest: Option<u64>, truncated: u32, number_len: usize) -> u64 {
    assert!(matches!(number_len, 1..=4), "a packet number has one to four bytes");
    let expected = largest.map_or(0, |number| number.saturating_add(1)).min(VARINT_MAX);
    let window = 1_u64 << (8 * number_len);
    let half = window / 2;
    let candidate = (expected & !(window - 1)) | (u64::from(truncated) & (window - 1));
    // All sums are below 2^62 + 2^32.
    if candidate + half <= expected && candidate + window <= VARINT_MAX {
        candidate + window
    } else if candidate > expected + half && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfc_match() {
        // RFC 9000 §A.2.
        assert_eq!(number_len(0xac5c02, Some(0xabe8b3)), 2);
        assert_eq!(number_len(0xace8fe, Some(0xabe8b3)), 3);
        // RFC 9000 §A.3.
        assert_eq!(decode_number(Some(0xa82f_30ea), 0x9b32, 2), 0xa82f_9b32);
    }

    #[test]
    fn number_lengths_follow_the_formula_of_the_appendix() {
        for distance in [1, 2, 127, 128, 129, 0x7fff, 0x8000, 0x8001, 0x7f_ffff, 0x80_0000, 0x80_0001, 0x8000_0000_u64]
        {
            // ceil((log2(distance) + 1) / 8), in integers.
            let bits = (2 * distance).next_power_of_two().ilog2();
            assert_eq!(number_len(1000 + distance, Some(1000)), bits.div_ceil(8) as usize, "distance {distance}");
            assert_eq!(number_len(distance - 1, None), bits.div_ceil(8) as usize, "distance {distance} from nothing");
        }
    }

    #[test]
    #[should_panic(expected = "cannot follow")]
    fn encoding_an_acknowledged_number_panics() {
        number_len(7, Some(7));
    }

    #[test]
    fn decoding_works_at_the_ends_of_the_number_space() {
        assert_eq!(decode_number(None, 0, 1), 0);
        assert_eq!(decode_number(None, 0xff, 1), 0xff);
        // The step back from the first window would be negative.
        assert_eq!(decode_number(Some(3), 0xff, 1), 0xff);
        assert_eq!(decode_number(Some(VARINT_MAX), 0xff, 1), VARINT_MAX);
        // The step forward from the last window would exceed 2^62-1.
        assert_eq!(decode_number(Some(VARINT_MAX - 1), 0, 1), VARINT_MAX - 0xff);
        assert_eq!(decode_number(Some(u64::MAX), u32::MAX, 4), VARINT_MAX);
    }

    proptest! {
        /// For every number between the acknowledged one and the sent one that the receiver may
        /// hold as its largest, decoding returns the sent number.
        #[test]
        fn a_receiver_decodes_what_a_sender_truncated(
            acked in proptest::option::of(0..VARINT_MAX >> 1),
            distance_bits in 0_u32..31,
            low in any::<u64>(),
            seen in any::<u64>(),
        ) {
            let distance = (1 << distance_bits) + low % (1 << distance_bits);
            let number = acked.map_or(distance - 1, |acked| acked + distance);
            let len = number_len(number, acked);
            let truncated = (number & ((1 << (8 * len)) - 1)) as u32;
            // The receiver has at least what it acknowledged, at most the number before, and often
            // a few later ones.
            let received = acked.map(|acked| acked + seen % distance);
            prop_assert_eq!(decode_number(received, truncated, len), number);
            let one_on = Some(number + 1);
            prop_assert_eq!(decode_number(one_on, truncated, len), number);
        }

        #[test]
        fn decoded_numbers_stay_within_the_number_space(largest in any::<Option<u64>>(), truncated: u32, len in 1_usize..=4) {
            prop_assert!(decode_number(largest, truncated, len) <= VARINT_MAX);
        }
    }
}
