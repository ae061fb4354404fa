//! The layers above and below TCP: a stream of records, or a packet with a digest. A first byte
//! selects the layer, and whether records are sealed before they are changed, because random bytes
//! are hardly ever a valid record.
#![no_main]

use bytes::Bytes;
use layers::record::{IV_LEN, PLAINTEXT_MAX};
use layers::secret::Direction;
use layers::{CipherLayer, DigestLayer, RecordError, RecordKey, RecordKind, RecordReader, SharedSecret};
use libfuzzer_sys::fuzz_target;
use wire::checksum;
use wire::ip::Packet;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else { return };
    let secret = SharedSecret::new([7; 32]);
    if choice & 4 != 0 {
        return check_digest(&secret, DigestLayer::ALL[usize::from(choice & 1)], bytes);
    }
    let layer = CipherLayer::ALL[usize::from(choice & 3)];
    let direction = Direction { salt: [1; 32], sender_initial: 2, receiver_initial: 3 };
    let key = secret.record_key(layer, &direction);
    // A cut after each byte of the input that has this value.
    let cut = choice >> 4;
    let stream = if choice & 8 != 0 { sealed(&key, bytes) } else { bytes.to_vec() };
    let whole = records(&key, [&stream[..]].into_iter());
    let pieces = records(&key, stream.split_inclusive(|byte| byte & 0x0f == cut));
    assert_eq!(whole, pieces);
});

/// Records that are sealed, of which the first byte of the input changes one.
fn sealed(key: &RecordKey, bytes: &[u8]) -> Vec<u8> {
    let Some((&at, bytes)) = bytes.split_first() else { return Vec::new() };
    let mut stream = Vec::new();
    for (number, content) in bytes.chunks(usize::from(at % 32) + 1).enumerate() {
        key.seal(number as u64, RecordKind::Data, [content].into_iter(), &mut stream);
    }
    if at >= 128 && !stream.is_empty() {
        let place = usize::from(at) * 7 % stream.len();
        stream[place] ^= 1;
    }
    stream
}

/// The contents of the records, up to the first error.
fn records<'a>(key: &RecordKey, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<RecordError>) {
    let (mut reader, mut found) = (RecordReader::default(), Vec::new());
    for piece in pieces {
        reader.push(Bytes::copy_from_slice(piece));
        loop {
            match reader.next_record() {
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
                Ok(Some(record)) => {
                    let mut out = Vec::new();
                    if let Err(error) = key.open(found.len() as u64, &record, &mut out) {
                        assert!(out.is_empty());
                        return (found, Some(error));
                    }
                    assert!(out.len() + IV_LEN <= record.len() && out.len() <= PLAINTEXT_MAX + 16);
                    found.push(out);
                }
            }
        }
    }
    (found, None)
}

fn check_digest(secret: &SharedSecret, layer: DigestLayer, bytes: &[u8]) {
    let key = secret.digest_key(layer);
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 20 && bytes[0] == 0x45 {
        checksum::fill_ipv4(&mut bytes[..20]);
    }
    let Ok(packet) = Packet::parse(&bytes) else { return };
    if let Ok(rest) = key.verify(&packet, &bytes) {
        panic!("a digest was guessed for {} bytes", rest.len());
    }
    let end = packet.header_len + packet.payload.len();
    let (ip_len, has_space) = (packet.header_len, packet.payload.len() >= layers::digest::HEADER_LEN);
    if !has_space || packet.fragment.is_some() || ip_len != if packet.is_ipv6() { 40 } else { 20 } {
        return;
    }
    let protocol_at = if bytes[0] >> 4 == 6 { 6 } else { 9 };
    bytes[protocol_at] = 51;
    if bytes[0] >> 4 == 4 {
        checksum::fill_ipv4(&mut bytes[..20]);
    }
    key.fill(&mut bytes[..end], ip_len);
    let packet = Packet::parse(&bytes).expect("it was valid before");
    assert_eq!(key.verify(&packet, &bytes), Ok(&bytes[ip_len + layers::digest::HEADER_LEN..end]));
}
