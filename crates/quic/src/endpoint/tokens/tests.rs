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
    let mut tokens = Tokens::new();
    let mut open =
        |key, now, remote, destination: ConnectionId, token: &[u8]| tokens.open(key, now, remote, &destination, token);
    let proof = Ok(Proof::Retry { original_destination: id(3, 20) });
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
fn a_new_token_is_valid_once_from_any_port_of_its_address() {
    let token = new_token(&KEY, [1; 12], at(100), remote());
    let mut tokens = Tokens::new();
    let other_port = "192.0.2.7:9".parse().unwrap();
    let other_host = "192.0.2.8:4433".parse().unwrap();
    assert_eq!(tokens.open(&KEY, at(101), other_host, &id(1, 8), &token), Err(TokenError::Other), "another host");
    assert_eq!(tokens.open(&KEY, at(101), other_port, &id(1, 8), &token), Ok(Proof::NewToken));
    assert_eq!(tokens.open(&KEY, at(101), other_port, &id(1, 8), &token), Err(TokenError::Other), "used");

    let token = new_token(&KEY, [2; 12], at(100), remote());
    let late = at(100) + NEW_TOKEN_LIFETIME + Duration::from_nanos(1);
    assert_eq!(tokens.open(&KEY, late, remote(), &id(1, 8), &token), Err(TokenError::Other), "expired");
}

#[test]
fn the_memory_of_used_tokens_is_bounded_and_none_is_accepted_twice() {
    let mut tokens = Tokens::new();
    let token = |number: usize, now| {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&(number as u64).to_be_bytes());
        new_token(&KEY, nonce, now, remote())
    };
    let unused = token(USED_MAX + 1, at(100));
    for number in 0..USED_MAX {
        let token = token(number, at(100));
        assert_eq!(tokens.open(&KEY, at(101), remote(), &id(1, 8), &token), Ok(Proof::NewToken), "{number}");
    }
    assert!(tokens.used.len() < USED_MAX);
    let again = token(0, at(100));
    assert_eq!(tokens.open(&KEY, at(102), remote(), &id(1, 8), &again), Err(TokenError::Other), "used before");
    assert_eq!(tokens.open(&KEY, at(102), remote(), &id(1, 8), &unused), Err(TokenError::Other), "issued before");
    let later = token(0, at(103));
    assert_eq!(tokens.open(&KEY, at(104), remote(), &id(1, 8), &later), Ok(Proof::NewToken), "issued since");
}

#[test]
fn other_bytes_are_no_token() {
    let mut tokens = Tokens::new();
    for token in [&[][..], &[RETRY], &[NEW_TOKEN; NEW_TOKEN_LEN], &[7; 500], &[NEW_TOKEN]] {
        assert_eq!(tokens.open(&KEY, at(0), remote(), &id(1, 8), token), Err(TokenError::Other), "{token:?}");
    }
    assert_eq!(tokens.open(&KEY, at(0), remote(), &id(1, 8), &[RETRY; RETRY_LEN]), Err(TokenError::Retry));
}
