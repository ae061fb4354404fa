//! The Internet checksum (RFC 1071).

/// The ones' complement sum of `bytes`, added to `initial`. An odd last byte counts as the upper
/// half of a word.
pub(super) fn sum(bytes: &[u8], initial: u16) -> u16 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |&byte| u64::from(byte) << 8);
    // The sum of 65,535 bytes in 16-bit words is far below 2^64.
    let total: u64 = words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    fold(total + last + u64::from(initial))
}

/// Updates `sum` for the replacement of `old` by `new` (RFC 1624, equation 3, before the last
/// complement).
pub(super) fn replace(sum: u16, old: u16, new: u16) -> u16 {
    fold(u64::from(sum) + u64::from(!old) + u64::from(new))
}

/// Writes the checksum of an IPv4 header of at least 20 bytes.
pub(super) fn fill_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !sum(header, 0);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_matches() {
        // Section 3.
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
        assert_eq!(sum(&[0x01], 0), 0x0100);
    }

    #[test]
    fn replacing_a_word_equals_summing_again() {
        let (old, new) = ([0x12_u8, 0x34, 0xff, 0xfe], [0xab_u8, 0xcd, 0xff, 0xfe]);
        assert_eq!(replace(sum(&old, 7), 0x1234, 0xabcd), sum(&new, 7));
    }

    #[test]
    fn a_header_with_its_checksum_sums_to_all_ones() {
        let mut header = *b"\x45\x00\x00\x54\x1c\x46\x40\x00\x40\x06\xff\xff\xac\x10\x0a\x63\xac\x10\x0a\x0c";
        fill_ipv4(&mut header);
        assert_eq!(sum(&header, 0), 0xffff);
    }
}
