use super::*;

const IPV4: [u8; 20] = [0x45, 0, 5, 120, 0xff, 0xff, 0x40, 0, 64, 6, 1, 2, 10, 0, 0, 1, 10, 0, 0, 2];

/// A header with a timestamps option, ACK, and a sequence number that is about to wrap.
const TCP: [u8; 32] = [
    0x14, 0x51, 0x14, 0x52, 0xff, 0xff, 0xff, 0xf0, 1, 2, 3, 4, 0x80, 0x10, 2, 0, 7, 7, 0, 0, 1, 1, 8, 10, 0, 0, 0, 1,
    0, 0, 0, 2,
];

fn with(header: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut header = header.to_vec();
    changes.iter().for_each(|&(at, value)| header[at] = value);
    header
}

#[test]
fn an_ipv4_header_differs_by_length_identification_and_checksum_alone() {
    let next = with(&IPV4, &[(2, 0), (3, 90), (4, 0), (5, 1), (10, 9), (11, 9)]);
    assert!(continues_ip(&IPV4, &next, 2), "the identification wraps");
    assert!(!continues_ip(&IPV4, &next, 1));
    assert!(continues_ip(&IPV4, &IPV4, 0));
    for at in [0, 1, 4, 5, 6, 7, 8, 9, 12, 15, 16, 19] {
        assert!(!continues_ip(&IPV4, &with(&next, &[(at, next[at] ^ 0x10)]), 2), "byte {at}");
    }
}

#[test]
fn an_ipv6_header_differs_by_its_length_alone() {
    let mut first = [7; 40];
    first[0] = 0x60;
    let next = with(&first, &[(4, 1), (5, 2)]);
    assert!(continues_ip(&first, &next, 3));
    for at in (0..4).chain(6..40) {
        let version = if at == 0 { 0x01 } else { 0x10 };
        assert!(!continues_ip(&first, &with(&next, &[(at, next[at] ^ version)]), 3), "byte {at}");
    }
}

#[test]
fn a_tcp_header_differs_by_sequence_number_checksum_and_flags_of_ends() {
    let next = with(&TCP, &[(4, 0), (5, 0), (6, 5), (7, 0x98), (16, 0), (17, 0)]);
    let offset = 0x5a8;
    assert!(continues_tcp(&TCP, &next, offset));
    assert!(continues_tcp(&TCP, &with(&next, &[(13, 0x19)]), offset), "FIN and PSH of the last");
    assert!(continues_tcp(&with(&TCP, &[(13, 0x90)]), &next, offset), "CWR of the first");
    assert!(!continues_tcp(&with(&TCP, &[(13, 0x18)]), &next, offset), "nothing follows PSH");
    assert!(!continues_tcp(&TCP, &with(&next, &[(13, 0x90)]), offset), "CWR begins a super-packet");
    assert!(!continues_tcp(&TCP, &next, offset - 1));
    for at in (0..16).chain(18..32) {
        let bit = if at == TCP_FLAGS_OFFSET { 0x40 } else { 1 };
        assert!(!continues_tcp(&TCP, &with(&next, &[(at, next[at] ^ bit)]), offset), "byte {at}");
    }
}
