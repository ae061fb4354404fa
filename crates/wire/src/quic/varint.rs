//! Variable-length integers (RFC 9000 §16). The two highest bits of the first byte give the length:
//! 1, 2, 4 or 8 bytes.

/// The largest value of a variable-length integer: 2^62-1.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Returns the length in bytes of the shortest encoding of `value`: 1, 2, 4 or 8.
///
/// # Panics
///
/// If `value` is above [`VARINT_MAX`]. Values parsed from the wire never are.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        0x4000_0000..=VARINT_MAX => 8,
        _ => panic!("a variable-length integer is at most 2^62-1"),
    }
}

/// Appends `value` in its shortest encoding of [`varint_len`] bytes.
///
/// # Panics
///
/// If `value` is above [`VARINT_MAX`].
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    // The casts are lossless: the length was chosen so that the value fits.
    match varint_len(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends `value` in exactly two bytes. Used for length fields whose space is reserved before the
/// length is known. Only frame types must use the shortest encoding (RFC 9000 §12.4).
///
/// # Panics
///
/// If `value` does not fit in 14 bits.
#[inline]
pub fn put_varint_2(out: &mut Vec<u8>, value: u16) {
    assert!(value < 0x4000, "a two-byte variable-length integer holds 14 bits");
    out.extend_from_slice(&(value | 0x4000).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::Reader;
    use proptest::prelude::*;

    /// The four examples of RFC 9000 §A.1 that use the shortest encoding.
    const EXAMPLES: [(u64, &[u8]); 4] = [
        (151_288_809_941_952_652, &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]),
        (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
        (15_293, &[0x7b, 0xbd]),
        (37, &[0x25]),
    ];

    #[test]
    fn the_examples_of_the_rfc_match() {
        for (value, bytes) in EXAMPLES {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
            assert_eq!(varint_len(value), bytes.len());
            assert_eq!(Reader::new(bytes).varint(), Ok(value));
        }
        // The same section: 37 may also be encoded in two bytes.
        assert_eq!(Reader::new(&[0x40, 0x25]).varint(), Ok(37));
        let mut out = Vec::new();
        put_varint_2(&mut out, 37);
        assert_eq!(out, [0x40, 0x25]);
    }

    #[test]
    fn encoded_lengths_change_at_the_powers_of_two() {
        for (bits, short, long) in [(6, 1, 2), (14, 2, 4), (30, 4, 8)] {
            assert_eq!(varint_len((1 << bits) - 1), short);
            assert_eq!(varint_len(1 << bits), long);
        }
        assert_eq!(varint_len(VARINT_MAX), 8);
    }

    #[test]
    #[should_panic(expected = "at most 2^62-1")]
    fn encoding_a_value_above_the_maximum_panics() {
        put_varint(&mut Vec::new(), VARINT_MAX + 1);
    }

    #[test]
    #[should_panic(expected = "holds 14 bits")]
    fn a_two_byte_value_above_14_bits_panics() {
        put_varint_2(&mut Vec::new(), 0x4000);
    }

    proptest! {
        #[test]
        fn every_value_round_trips(raw in any::<u64>(), shift in 2_u32..64, tail in proptest::collection::vec(any::<u8>(), 0..9)) {
            let value = raw >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let len = out.len();
            prop_assert_eq!(len, varint_len(value));
            // Bytes after the integer must not matter.
            out.extend_from_slice(&tail);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert_eq!(reader.position(), len);
            for cut in 0..len {
                let mut short = Reader::new(&out[..cut]);
                prop_assert!(short.varint().is_err());
                prop_assert_eq!(short.position(), 0);
            }
        }
    }
}
