use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Adds 16-bit words with end-around carry (RFC 1071, section 1).
fn naive(bytes: &[u8], initial: u16) -> u16 {
    let words = bytes.chunks(2).map(|word| u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]));
    words.fold(initial, |sum, word| {
        let sum = u32::from(sum) + u32::from(word);
        (if sum > 0xffff { sum - 0xffff } else { sum }) as u16
    })
}

#[test]
fn the_example_of_rfc_1071_matches() {
    // Section 3.
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
    assert_eq!(sum(&[0x01], 0), 0x0100);
    assert_eq!(sum(&[], 0x1234), 0x1234);
}

#[test]
fn a_header_with_its_checksum_sums_to_all_ones() {
    let mut header = *b"\x45\x00\x00\x54\x1c\x46\x40\x00\x40\x06\xff\xff\xac\x10\x0a\x63\xac\x10\x0a\x0c";
    fill_ipv4(&mut header);
    assert_eq!(sum(&header, 0), 0xffff);
}

#[test]
fn extreme_bytes_carry_correctly_at_every_length() {
    for len in 0..200 {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let bytes = vec![byte; len];
            for initial in [0, 1, 0xfffe, 0xffff] {
                assert_eq!(sum(&bytes, initial), naive(&bytes, initial), "{len} bytes of {byte:#x} to {initial:#x}");
            }
        }
    }
    let long = vec![0xff; 1 << 20];
    assert_eq!(sum(&long, 0), naive(&long, 0));
}

#[test]
fn the_pseudo_header_equals_the_sum_of_its_figure() {
    // RFC 9293, section 3.1, figure 2.
    let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 255));
    let figure = [192, 0, 2, 1, 198, 51, 100, 255, 0, 6, 0x12, 0x34];
    assert_eq!(pseudo_header(a.into(), b.into(), Protocol::TCP, 0x1234), naive(&figure, 0));
    // RFC 8200, section 8.1.
    let (a, b) = (Ipv6Addr::LOCALHOST, Ipv6Addr::from([0xfe; 16]));
    let mut figure = a.octets().to_vec();
    figure.extend_from_slice(&b.octets());
    figure.extend_from_slice(&[0x00, 0x01, 0xff, 0xfe, 0, 0, 0, 17]);
    assert_eq!(pseudo_header(a.into(), b.into(), Protocol::UDP, 0x1_fffe), naive(&figure, 0));
}

proptest! {
    #[test]
    fn the_fast_sum_equals_the_naive_sum(bytes in vec(any::<u8>(), 0..700), skip in 0..40_usize, initial: u16) {
        let bytes = &bytes[skip.min(bytes.len())..];
        prop_assert_eq!(sum(bytes, initial), naive(bytes, initial));
    }

    #[test]
    fn a_sum_may_be_divided_at_any_even_byte(bytes in vec(any::<u8>(), 0..300), at in 0..150_usize) {
        let (head, tail) = bytes.split_at((2 * at).min(bytes.len() & !1));
        prop_assert_eq!(sum(tail, sum(head, 0)), sum(&bytes, 0));
        prop_assert_eq!(add(sum(tail, 0), sum(head, 0)), sum(&bytes, 0));
    }

    #[test]
    fn replacing_a_word_equals_summing_again(mut bytes in vec(any::<u8>(), 2..100), at: prop::sample::Index, new: u16) {
        // Zero and all ones are the same number. `replace` gives zero for neither, if the rest of
        // the packet is not all zeros, and no header is.
        bytes.extend_from_slice(&[0x45, 0]);
        if bytes.len() % 2 == 1 {
            bytes.push(0);
        }
        let at = 2 * at.index(bytes.len() / 2 - 1);
        let before = sum(&bytes, 0);
        let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(replace(before, old, new), sum(&bytes, 0));
    }
}
