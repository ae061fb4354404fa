use super::*;
use crate::secret::SharedSecret;

/// Returns a packet whose header of the digest is filled, and the length of its IP header.
fn packet(key: &DigestKey, is_ipv6: bool, content: &[u8]) -> (Vec<u8>, usize) {
    let (source, destination) = match is_ipv6 {
        true => ([0xfd; 16].into(), [0xfc; 16].into()),
        false => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
    };
    let (dscp, ecn) = (0, None);
    let header = ip::Header {
        source,
        destination,
        protocol: Protocol::AH,
        hop_limit: 64,
        dscp,
        ecn,
        id: 0,
        may_fragment: false,
    };
    let mut bytes = Vec::new();
    header.emit(HEADER_LEN + content.len(), &mut bytes);
    let ip_len = bytes.len();
    bytes.resize(ip_len + HEADER_LEN, 0xaa);
    bytes.extend_from_slice(content);
    key.fill(&mut bytes, ip_len);
    (bytes, ip_len)
}

fn verify<'a>(key: &DigestKey, bytes: &'a [u8]) -> Result<&'a [u8], DigestError> {
    key.verify(&ip::Packet::parse(bytes).map_err(|_| DigestError::Malformed)?, bytes)
}

fn keys() -> [DigestKey; 2] {
    DigestLayer::ALL.map(|layer| SharedSecret::new([7; 32]).digest_key(layer))
}

#[test]
fn what_is_filled_is_verified_and_what_follows_is_returned() {
    for key in keys() {
        for is_ipv6 in [false, true] {
            for len in [0, 1, 20, 55, 56, 64, 4096] {
                let content: Vec<u8> = (0..len).map(|at| at as u8).collect();
                let (bytes, _) = packet(&key, is_ipv6, &content);
                assert_eq!(verify(&key, &bytes), Ok(&content[..]), "{is_ipv6} {len}");
            }
        }
    }
}

#[test]
fn the_digest_is_keyed_md5_of_rfc_1828() {
    let key = [0x5a; 16];
    let mut long = [0; 32];
    long[..16].copy_from_slice(&key);
    let (bytes, ip_len) = packet(&DigestKey::new(DigestLayer::Md5, &long), false, b"segment");
    let mut masked = bytes.clone();
    [1, 6, 7, 8, 10, 11].into_iter().for_each(|at| masked[at] = 0);
    masked[ip_len + 8..ip_len + 24].fill(0);
    // The filling, by hand: a one bit, zeros up to 56 bytes, 128 bits in eight bytes.
    let filling = [&[0x80][..], &[0; 39], &[0x80, 0, 0, 0, 0, 0, 0, 0]].concat();
    let expected: [u8; 16] = Md5::digest([&key[..], &filling, &masked, &key].concat()).into();
    assert_eq!(bytes[ip_len + 8..ip_len + 24], expected);
    assert_eq!(bytes[ip_len..ip_len + 8], [6, 4, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn a_changed_bit_is_found_wherever_routers_may_not_change_it() {
    for key in keys() {
        for is_ipv6 in [false, true] {
            let (bytes, ip_len) = packet(&key, is_ipv6, &[3; 40]);
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let is_mutable = match is_ipv6 {
                    // A changed IPv4 header has a wrong checksum, so it does not even parse.
                    false => false,
                    // Traffic class and flow label but not the version, and the hop limit.
                    true => bit / 8 < ip_len && [1, 2, 3, 7].contains(&(bit / 8)) || bit / 8 == 0 && bit % 8 < 4,
                };
                assert_eq!(verify(&key, &changed).is_ok(), is_mutable, "bit {bit} of {}", bytes.len());
            }
        }
    }
}

#[test]
fn routers_may_change_the_time_to_live_and_mark_congestion() {
    for key in keys() {
        let (mut bytes, _) = packet(&key, false, b"segment");
        bytes[1] = 0b11;
        bytes[8] = 3;
        let header = &mut bytes[..20];
        header[10..12].fill(0);
        wire::checksum::fill_ipv4(header);
        assert_eq!(verify(&key, &bytes), Ok(&b"segment"[..]));
        // An address is covered.
        let header = &mut bytes[..20];
        header[15] ^= 1;
        header[10..12].fill(0);
        wire::checksum::fill_ipv4(header);
        assert_eq!(verify(&key, &bytes), Err(DigestError::Mismatch));
    }
}

#[test]
fn another_key_another_algorithm_and_none_are_refused() {
    let [md5, blake3] = keys();
    let other = SharedSecret::new([8; 32]).digest_key(DigestLayer::Md5);
    let (bytes, ip_len) = packet(&md5, false, b"segment");
    assert_eq!(verify(&other, &bytes), Err(DigestError::Mismatch));
    assert_eq!(verify(&blake3, &bytes), Err(DigestError::Malformed));
    let mut plain = bytes[..ip_len].to_vec();
    plain[9] = Protocol::TCP.0;
    plain[10..12].fill(0);
    wire::checksum::fill_ipv4(&mut plain[..20]);
    plain.extend_from_slice(&bytes[ip_len..]);
    assert_eq!(verify(&md5, &plain), Err(DigestError::Missing));
}

#[test]
fn a_packet_of_any_shorter_length_is_refused() {
    for key in keys() {
        let (bytes, ip_len) = packet(&key, false, b"segment");
        for len in ip_len..bytes.len() {
            let mut short = bytes[..len].to_vec();
            short[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            short[10..12].fill(0);
            wire::checksum::fill_ipv4(&mut short[..20]);
            let expected = if len < ip_len + HEADER_LEN { DigestError::Malformed } else { DigestError::Mismatch };
            assert_eq!(verify(&key, &short), Err(expected), "{len}");
        }
    }
}
