//! Tokens with which a client that comes back proves its address at once (RFC 9000, section 8.1.3).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use quic::address_tokens::{ServerId, TokenMemory};
use quic::session::deterministic::DeterministicFactory;
use quic::{AddressValidation, Addresses, ConnectionId, Event, Side, TransportConfig, Version};
use units::{Duration, Rng};
use wire::quic::{PacketType, Parsed, parse_packet};

use crate::support::apps::transfer;
use crate::support::{CLIENT, Node, Pair, SERVER, Setup, client_on};

fn server_id() -> ServerId {
    ServerId { name: "server".to_owned(), address: SERVER, version: Version::V1 }
}

/// A pair whose server asks each client to prove its address and issues tokens, which the client
/// keeps. The client's endpoint could issue some, too.
fn pair_with(setup: Setup) -> (Pair, Arc<TokenMemory>) {
    let seed = setup.seed;
    let (client, server) = (setup.client.clone(), setup.server.clone());
    let mut pair = setup.build();
    let rng = Rng::from_seed(seed).split("tokens");
    let sessions = Arc::new(DeterministicFactory::new(Side::Server, rng.split("session")));
    let issuing = |secrets: quic::SecretSource| secrets.with_address_tokens(Duration::from_secs(1 << 30));
    pair.server = Node::with_secrets(Side::Server, server, &rng.split("server"), Some(sessions), issuing);
    pair.client = Node::with_secrets(Side::Client, client, &rng.split("client"), None, issuing);
    pair.server.endpoint.set_address_validation(AddressValidation::Always);
    let memory = Arc::new(TokenMemory::new());
    pair.client.endpoint.set_token_memory(Arc::clone(&memory));
    pair.record = Some(Vec::new());
    (pair, memory)
}

fn pair(seed: u64) -> (Pair, Arc<TokenMemory>) {
    pair_with(Setup::new(seed))
}

/// Begins another connection and runs until the client knows that the handshake is complete. Returns
/// the tokens of the client's Initial packets, and whether there was a Retry packet.
fn connect_again(pair: &mut Pair) -> (Vec<Vec<u8>>, bool) {
    pair.record = Some(Vec::new());
    let index = pair.start();
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        pair.client.take_event(index, |event| *event == Event::Confirmed).is_some()
    });
    assert!(done, "seed {}: {:?}", pair.seed, pair.client.events[index]);
    let record = pair.record.replace(Vec::new()).expect("it is recorded");
    let is_retry = |datagram: &[u8]| matches!(parse_packet(datagram, 8), Ok(Parsed::Retry { .. }));
    let has_retry = record.iter().any(|(_, direction, datagram)| *direction == 1 && is_retry(datagram));
    let sent = record.iter().filter(|(_, direction, _)| *direction == 0);
    (sent.filter_map(|(_, _, datagram)| initial(datagram).map(|(_, token)| token)).collect(), has_retry)
}

/// Destination and token of a datagram that begins with an Initial packet.
fn initial(datagram: &[u8]) -> Option<(ConnectionId, Vec<u8>)> {
    match parse_packet(datagram, 8) {
        Ok(Parsed::Protected(header)) if header.ty == PacketType::Initial => {
            Some((header.dcid, datagram[header.token.clone()].to_vec()))
        }
        _ => None,
    }
}

/// Runs until everything that is under way has arrived.
fn rest(pair: &mut Pair) {
    pair.run_for(Duration::from_secs(2));
}

fn at(ip: [u8; 4]) -> SocketAddr {
    SocketAddr::new(IpAddr::from(ip), 3000)
}

#[test]
fn a_client_that_comes_back_proves_its_address_at_once() {
    let (mut pair, _memory) = pair(1);
    let (tokens, has_retry) = connect_again(&mut pair);
    assert!(has_retry && tokens[0].is_empty(), "the first time");
    let mut used = Vec::new();
    for _ in 0..3 {
        rest(&mut pair);
        let (tokens, has_retry) = connect_again(&mut pair);
        assert!(!has_retry);
        assert!(tokens.len() >= 2 && !tokens[0].is_empty(), "{tokens:?}");
        assert!(tokens.iter().all(|token| *token == tokens[0]), "every Initial packet has it");
        assert!(!used.contains(&tokens[0]), "each connection has another");
        used.push(tokens[0].clone());
    }
    assert_eq!(pair.server.connections.len(), 4);
    transfer(&mut pair, 100_000, Duration::from_secs(60));
}

#[test]
fn a_token_begins_one_connection() {
    let (mut pair, memory) = pair(2);
    connect_again(&mut pair);
    rest(&mut pair);
    let token = memory.take(&server_id()).expect("a token");
    for (is_first, what) in [(true, "new"), (false, "used")] {
        while memory.take(&server_id()).is_some() {}
        memory.insert(&server_id(), &token);
        let (tokens, has_retry) = connect_again(&mut pair);
        assert_eq!((&tokens[0], has_retry), (&token, !is_first), "{what}");
        // After a Retry packet the client has that packet's token alone (section 8.1.2).
        assert_eq!(tokens.last() == Some(&token), is_first, "{what}");
        rest(&mut pair);
    }
}

#[test]
fn an_invalid_token_counts_as_none() {
    let (mut pair, memory) = pair(3);
    let mut rng = Rng::from_seed(3);
    connect_again(&mut pair);
    rest(&mut pair);
    let token = memory.take(&server_id()).expect("a token");
    let mut forged = token.clone();
    *forged.last_mut().expect("a tag") ^= 1;
    let mut invalid = vec![forged, token[1..].to_vec(), vec![0], vec![token[0]; token.len()], vec![7; 800]];
    invalid.extend((0..20).map(|_| {
        let mut noise = vec![0; 1 + rng.below(200) as usize];
        rng.fill(&mut noise);
        noise[0] = token[0];
        noise
    }));
    for token in invalid {
        while memory.take(&server_id()).is_some() {}
        memory.insert(&server_id(), &token);
        let (tokens, has_retry) = connect_again(&mut pair);
        assert_eq!((&tokens[0], has_retry), (&token, true));
    }
}

#[test]
fn a_token_is_for_the_ip_address_and_not_the_port() {
    let port_only = SocketAddr::new(CLIENT.ip(), 3000);
    for (from, is_valid) in [(port_only, true), (at([192, 0, 2, 9]), false)] {
        let (mut pair, _memory) = pair(4);
        connect_again(&mut pair);
        rest(&mut pair);
        pair.remap(0, from);
        let (tokens, has_retry) = connect_again(&mut pair);
        assert!(!tokens[0].is_empty());
        assert_eq!(has_retry, !is_valid, "from {from}");
    }
}

#[test]
fn only_a_valid_token_lifts_the_anti_amplification_limit() {
    for (from, is_valid) in [(CLIENT, true), (at([192, 0, 2, 9]), false)] {
        let (mut pair, memory) = pair(5);
        connect_again(&mut pair);
        rest(&mut pair);
        pair.server.endpoint.set_address_validation(AddressValidation::Never);
        let rng = Rng::from_seed(9).split("client");
        let factory = DeterministicFactory::new(Side::Client, rng.split("session"));
        let mut client = Node::new(Side::Client, TransportConfig::default(), &rng, None);
        client.endpoint.set_token_memory(memory);
        let connection = client.endpoint.connect(pair.now, &factory, "server", Addresses::of(SERVER));
        client.add(connection.expect("sessions start"));
        client.flush(pair.now);
        let (_, first) = client.outbox.remove(0);
        assert!(initial(&first).is_some_and(|(_, token)| !token.is_empty()));
        pair.server.receive(pair.now, &first, from);
        let mut sent = 0;
        for millis in (0..9000).step_by(10) {
            let now = pair.now + Duration::from_millis(millis);
            pair.server.flush(now);
            let outbox = std::mem::take(&mut pair.server.outbox);
            sent +=
                outbox.iter().filter(|(to, _)| to.remote == from).map(|(_, datagram)| datagram.len()).sum::<usize>();
            pair.server.handle_timeouts(now);
        }
        // Unanswered, the server repeats its flight as far as it may.
        assert_eq!(sent > 3 * first.len(), is_valid, "{sent} bytes to {from}");
    }
}

#[test]
fn a_client_that_has_moved_gets_a_token_for_its_new_address() {
    let (mut pair, memory) = pair(6);
    pair.connect();
    rest(&mut pair);
    // The token for the old address is still there, and stays the only one if the port changes.
    for (to, is_new) in [(SocketAddr::new(CLIENT.ip(), 3000), false), (at([192, 0, 2, 9]), true)] {
        let before = memory.take(&server_id()).expect("a token");
        pair.remap(0, to);
        transfer(&mut pair, 100_000, Duration::from_secs(60));
        rest(&mut pair);
        let after = memory.take(&server_id());
        assert_eq!(after.is_some(), is_new, "{to}");
        memory.insert(&server_id(), after.as_ref().unwrap_or(&before));
    }
    let (_, has_retry) = connect_again(&mut pair);
    assert!(!has_retry);
}

#[test]
fn a_token_validates_the_addresses_of_all_paths() {
    for socket in [0, 1] {
        let link = Setup::new(0).links[0].clone();
        let (mut pair, _memory) = pair_with(Setup::new(7).over(&[link.clone(), link]));
        pair.connect();
        pair.open_paths();
        transfer(&mut pair, 1_000_000, Duration::from_secs(60));
        rest(&mut pair);
        if socket == 1 {
            pair.remap(0, SocketAddr::new(client_on(1).ip(), 3000));
        }
        let (tokens, has_retry) = connect_again(&mut pair);
        assert!(!tokens[0].is_empty() && !has_retry, "from the address of path {socket}");
    }
}

#[test]
fn a_lost_token_is_sent_again() {
    let mut lost = 0;
    for seed in 0..20 {
        let (mut pair, memory) = pair_with(Setup::new(seed).with_loss(30));
        connect_again(&mut pair);
        let has_token = pair.run_until(Duration::from_secs(60), |_| {
            let token = memory.take(&server_id());
            token.iter().for_each(|token| memory.insert(&server_id(), token));
            token.is_some()
        });
        assert!(has_token, "seed {seed}");
        lost += pair.link_stats()[1].lost;
    }
    assert!(lost > 20, "{lost} packets of the server were lost");
}

#[test]
fn a_retry_token_is_not_used_again_and_tokens_are_optional() {
    // The server of an ordinary pair issues none.
    let mut pair = Setup::new(8).build();
    pair.server.endpoint.set_address_validation(AddressValidation::Always);
    let memory = Arc::new(TokenMemory::new());
    pair.client.endpoint.set_token_memory(Arc::clone(&memory));
    for _ in 0..2 {
        let (tokens, has_retry) = connect_again(&mut pair);
        assert!(tokens[0].is_empty() && has_retry);
        assert!(!tokens.last().expect("several").is_empty());
        rest(&mut pair);
        assert_eq!(memory.take(&server_id()), None);
    }
}
