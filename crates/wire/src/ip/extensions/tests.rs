use super::*;
use crate::ip::Packet;
use crate::ip::tests::{error, v6};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns a fragment header.
fn fragment(next: Protocol, offset: u16, more: bool) -> [u8; 8] {
    let field = (offset | u16::from(more)).to_be_bytes();
    [next.0, 0, field[0], field[1], 0, 0, 0, 7]
}

#[test]
fn ipv6_extension_headers_are_read_over() {
    // Router Alert and padding; a routing header without segments left; 14 bytes of padding.
    let mut rest = vec![Protocol::ROUTING.0, 0, 5, 2, 0, 0, 1, 0];
    rest.extend_from_slice(&[Protocol::DESTINATION_OPTIONS.0, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend_from_slice(&[Protocol::TCP.0, 1, 0, 1, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend_from_slice(b"data");
    let bytes = v6(Protocol::HOP_BY_HOP, &rest);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.protocol, packet.header_len, packet.payload), (Protocol::TCP, 72, &b"data"[..]));
    // Encrypted, authenticated and empty payloads are left to the caller.
    for protocol in [Protocol::ESP, Protocol::AH, Protocol::NO_NEXT_HEADER, Protocol(253)] {
        assert_eq!(Packet::parse(&v6(protocol, b"data")).unwrap().protocol, protocol);
    }
}

#[test]
fn eight_extension_headers_are_the_most() {
    let chain = |count: usize| {
        let mut rest = Vec::new();
        for index in 0..count {
            let next = if index + 1 == count { Protocol::UDP } else { Protocol::DESTINATION_OPTIONS };
            rest.extend_from_slice(&[next.0, 0, 1, 4, 0, 0, 0, 0]);
        }
        v6(Protocol::DESTINATION_OPTIONS, &rest)
    };
    assert_eq!(Packet::parse(&chain(8)).unwrap().protocol, Protocol::UDP);
    assert_eq!(error(&chain(9)), ParseError::TooManyExtensions);
    assert_eq!(error(&chain(1000)), ParseError::TooManyExtensions);
}

#[test]
fn hop_by_hop_options_must_come_first() {
    let rest = [Protocol::HOP_BY_HOP.0, 0, 1, 4, 0, 0, 0, 0, Protocol::UDP.0, 0, 1, 4, 0, 0, 0, 0];
    let bytes = v6(Protocol::DESTINATION_OPTIONS, &rest);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.protocol, packet.header_len), (Protocol::HOP_BY_HOP, 48));
}

#[test]
fn routes_with_segments_left_are_refused() {
    let bytes = |left| v6(Protocol::ROUTING, &[Protocol::UDP.0, 0, 4, left, 0, 0, 0, 0]);
    assert!(Packet::parse(&bytes(0)).is_ok());
    assert_eq!(error(&bytes(1)), ParseError::Routing { pointer: 42 });
}

#[test]
fn unknown_options_are_handled_by_their_type() {
    let bytes = |ty| v6(Protocol::DESTINATION_OPTIONS, &[Protocol::UDP.0, 0, 0, ty, 2, 0, 0, 0]);
    assert!(Packet::parse(&bytes(0x3e)).is_ok());
    let cases = [(0x7e, OptionReport::Never), (0xbe, OptionReport::Always), (0xc2, OptionReport::Unicast)];
    for (ty, report) in cases {
        assert_eq!(error(&bytes(ty)), ParseError::UnknownOption { pointer: 43, report });
    }
    // An option that ends beyond the header, and one without a length.
    assert_eq!(error(&v6(Protocol::HOP_BY_HOP, &[17, 0, 0, 1, 4, 0, 0, 0])), ParseError::HeaderLength);
    assert_eq!(error(&v6(Protocol::HOP_BY_HOP, &[17, 0, 0, 0, 0, 0, 0, 1])), ParseError::HeaderLength);
}

#[test]
fn ipv6_fragments_are_marked() {
    let bytes = |offset, more, rest: &[u8]| {
        let mut all = vec![Protocol::FRAGMENT.0, 0, 1, 4, 0, 0, 0, 0];
        all.extend_from_slice(&fragment(Protocol::UDP, offset, more));
        all.extend_from_slice(rest);
        v6(Protocol::DESTINATION_OPTIONS, &all)
    };
    let first = bytes(0, true, &[1; 16]);
    let packet = Packet::parse(&first).unwrap();
    assert_eq!((packet.protocol, packet.header_len, packet.payload), (Protocol::UDP, 56, &[1; 16][..]));
    assert_eq!(packet.fragment, Some(Fragment { id: 7, offset: 0, more: true }));
    let last = bytes(24, false, &[1; 5]);
    assert_eq!(Packet::parse(&last).unwrap().fragment, Some(Fragment { id: 7, offset: 24, more: false }));
    // A whole payload is no fragment.
    let whole = bytes(0, false, &[1; 5]);
    assert_eq!(Packet::parse(&whole).unwrap().fragment, None);
    assert_eq!(error(&bytes(8, true, &[1; 15])), ParseError::FragmentLength);
    // 8 + 65,520 + 7 bytes fit 16 bits, one byte more does not.
    assert!(Packet::parse(&bytes(65_520, false, &[1; 7])).is_ok());
    assert_eq!(error(&bytes(65_520, false, &[1; 8])), ParseError::FragmentEnd);
}

#[test]
fn the_first_fragment_needs_all_headers() {
    let bytes = |next, rest: &[u8]| {
        let mut all = fragment(next, 0, true).to_vec();
        all.extend_from_slice(rest);
        v6(Protocol::FRAGMENT, &all)
    };
    let mut tcp = [0; 24];
    tcp[12] = 5 << 4;
    assert!(Packet::parse(&bytes(Protocol::TCP, &tcp)).is_ok());
    tcp[12] = 7 << 4;
    assert_eq!(error(&bytes(Protocol::TCP, &tcp)), ParseError::IncompleteHeaders);
    assert_eq!(error(&bytes(Protocol::TCP, &[0; 8])), ParseError::IncompleteHeaders);
    assert_eq!(error(&bytes(Protocol::UDP, &[])), ParseError::IncompleteHeaders);
    assert!(Packet::parse(&bytes(Protocol::UDP, &[0; 8])).is_ok());
    let options = [Protocol::UDP.0, 1, 1, 4, 0, 0, 0, 0];
    assert_eq!(error(&bytes(Protocol::DESTINATION_OPTIONS, &options)), ParseError::IncompleteHeaders);
    // The payload with its extension headers is left to the code that reassembles the fragments.
    let mut chain = vec![Protocol::UDP.0, 0, 1, 4, 0, 0, 0, 0];
    chain.extend_from_slice(&[0; 8]);
    let bytes = bytes(Protocol::DESTINATION_OPTIONS, &chain);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.protocol, packet.header_len), (Protocol::DESTINATION_OPTIONS, 48));
    assert_eq!(skip_extensions(packet.protocol, packet.payload), Ok((Protocol::UDP, 8)));
}

#[test]
fn fragments_in_fragments_are_refused() {
    // Thousands of them must not cost thousands of calls.
    let headers: Vec<u8> = (0..8000).flat_map(|_| fragment(Protocol::FRAGMENT, 0, true)).collect();
    assert_eq!(error(&v6(Protocol::FRAGMENT, &headers)), ParseError::IncompleteHeaders);
    let whole = [fragment(Protocol::FRAGMENT, 0, false), fragment(Protocol::UDP, 0, false)].concat();
    assert_eq!(Packet::parse(&v6(Protocol::FRAGMENT, &whole)).unwrap().protocol, Protocol::UDP);
    assert_eq!(skip_extensions(Protocol::HOP_BY_HOP, &[0; 8]), Ok((Protocol::HOP_BY_HOP, 0)));
}

proptest! {
    #[test]
    fn chains_of_random_extension_headers_are_no_danger(headers in vec((0..5_usize, any::<[u8; 6]>()), 0..12)) {
        const NEXT: [u8; 5] = [0, 43, 44, 60, 6];
        let rest: Vec<u8> = headers.iter().flat_map(|(next, body)| [&[NEXT[*next], 0][..], body].concat()).collect();
        for next in NEXT {
            let bytes = v6(Protocol(next), &rest);
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert_eq!(packet.header_len + packet.payload.len(), bytes.len());
            }
            let _ = skip_extensions(Protocol(next), &rest);
        }
    }
}
