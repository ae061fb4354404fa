//! Headers of a datagram and of all packets coalesced in it. The first byte sets the length of our
//! connection IDs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::quic::{
    MAX_CID_LEN, Parsed, SAMPLE_LEN, VARINT_MAX, decode_number, destination, parse_packet, read_unprotected,
    sample_offset, versions,
};

fuzz_target!(|input: &[u8]| {
    let Some((choice, mut datagram)) = input.split_first() else { return };
    let local_cid_len = usize::from(*choice) % (MAX_CID_LEN + 1);
    while let Ok(parsed) = parse_packet(datagram, local_cid_len) {
        // Routing must agree with parsing.
        let destination = destination(datagram, local_cid_len).expect("what can be parsed can be routed");
        match parsed {
            Parsed::Protected(header) => {
                assert_eq!(destination.dcid, header.dcid.as_slice());
                assert!(header.token.end <= header.number_offset);
                assert!(sample_offset(header.number_offset) + SAMPLE_LEN <= header.end);
                let clear = read_unprotected(datagram[0], &datagram[header.number_offset..header.end]);
                assert!(decode_number(None, clear.truncated, clear.number_len) <= VARINT_MAX);
                datagram = &datagram[header.end..];
            }
            Parsed::VersionNegotiation { dcid, versions: list, .. } => {
                assert_eq!(destination.dcid, dcid);
                assert_eq!(versions(list).count() * 4, list.len());
                return;
            }
            Parsed::UnknownVersion { dcid, .. } => return assert_eq!(destination.dcid, dcid),
            Parsed::Retry { dcid, .. } => return assert_eq!(destination.dcid, dcid.as_slice()),
        }
    }
});
