//! The integrity tag of Retry packets (RFC 9001, section 5.8).

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use wire::quic::{ConnectionId, Version};

use super::TAG_LEN;

/// The key and nonce of a version (RFC 9001, section 5.8; RFC 9369, section 3.3.3). Everyone knows
/// them: the tag shows that the sender has seen the client's first packet, and that nothing was
/// corrupted.
fn key_and_nonce(version: Version) -> ([u8; 16], [u8; 12]) {
    match version {
        Version::V1 => (
            [0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e],
            [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb],
        ),
        Version::V2 => (
            [0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc, 0x92],
            [0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a],
        ),
    }
}

/// The tag of a Retry packet, `packet` without it, in response to a client's first packet to
/// `original_destination`.
pub fn retry_tag(version: Version, original_destination: &ConnectionId, packet: &[u8]) -> [u8; TAG_LEN] {
    let (key, nonce) = key_and_nonce(version);
    let key = UnboundKey::new(&AES_128_GCM, &key).expect("the key has the length of the cipher's");
    let mut pseudo_packet = Vec::with_capacity(1 + original_destination.len() + packet.len());
    pseudo_packet.push(original_destination.len() as u8);
    pseudo_packet.extend_from_slice(original_destination.as_slice());
    pseudo_packet.extend_from_slice(packet);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = LessSafeKey::new(key).seal_in_place_separate_tag(nonce, Aad::from(&pseudo_packet), &mut []);
    tag.expect("no datagram is too long").as_ref().try_into().expect("AES-GCM has a tag of 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_rfc_9001_a4_matches() {
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]).expect("eight bytes");
        let packet = [
            0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, 0x74, 0x6f, 0x6b,
            0x65, 0x6e,
        ];
        let tag = [0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24, 0x96, 0xba];
        assert_eq!(retry_tag(Version::V1, &original, &packet), tag);
    }

    #[test]
    fn the_tag_of_rfc_9369_a4_matches() {
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]).expect("eight bytes");
        let packet = [
            0xcf, 0x6b, 0x33, 0x43, 0xcf, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, 0x74, 0x6f, 0x6b,
            0x65, 0x6e,
        ];
        let tag = [0xc8, 0x64, 0x6c, 0xe8, 0xbf, 0xe3, 0x39, 0x52, 0xd9, 0x55, 0x54, 0x36, 0x65, 0xdc, 0xc7, 0xb6];
        assert_eq!(retry_tag(Version::V2, &original, &packet), tag);
    }
}
