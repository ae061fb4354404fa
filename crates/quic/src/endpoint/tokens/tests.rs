use super::*;

const KEY: [u8; 32] = [5; 32];

fn remote() -> SocketAddr {
    "192.0.2.7:4433".parse().expect("an address")
}

fn id(byte: u8, len: usize) -> ConnectionId {
    ConnectionId::new(&vec![byte; len]).expect("at most 20 bytes")
}

fn at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

#[test]
fn a_retry_token_shows_the_original_destination_to_its_own_client_for_a_while() {
    let token = retry_token(&KEY, [1; 12], at(100), remote(), &id(3, 20), &id(9, 8));
    assert_eq!(token.len(), RETRY_LEN);
    let open = |key, now, remote, destination: ConnectionId, token: &[u8]| open(key, now, remote, &destination, token);
    let proof = Ok(id(3, 20));
    assert_eq!(open(&KEY, at(100), remote(), id(9, 8), &token), proof);
    assert_eq!(open(&KEY, at(115), remote(), id(9, 8), &token), proof, "at the end of its life");

    let refused = Err(TokenError::Retry);
    assert_eq!(open(&KEY, at(116), remote(), id(9, 8), &token), refused, "expired");
    assert_eq!(open(&[6; 32], at(100), remote(), id(9, 8), &token), refused, "another server's");
    assert_eq!(open(&KEY, at(100), "192.0.2.8:4433".parse().unwrap(), id(9, 8), &token), refused, "another host");
    assert_eq!(open(&KEY, at(100), "192.0.2.7:4434".parse().unwrap(), id(9, 8), &token), refused, "another port");
    assert_eq!(open(&KEY, at(100), remote(), id(8, 8), &token), refused, "another source");
    for at_byte in 1..token.len() {
        let mut forged = token.clone();
        forged[at_byte] ^= 1;
        assert_eq!(open(&KEY, at(100), remote(), id(9, 8), &forged), refused, "byte {at_byte}");
    }
}

#[test]
fn other_bytes_are_no_token() {
    for token in [&[][..], &[RETRY], &[7; RETRY_LEN], &[RETRY; 500]] {
        assert_eq!(open(&KEY, at(0), remote(), &id(1, 8), token), Err(TokenError::Other), "{token:?}");
    }
    assert_eq!(open(&KEY, at(0), remote(), &id(1, 8), &[RETRY; RETRY_LEN]), Err(TokenError::Retry));
}
