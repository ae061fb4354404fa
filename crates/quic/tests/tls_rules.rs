//! What RFC 9001 demands of TLS messages, between two sessions of rustls: a message is taken out of
//! the handshake, changed and passed on. `docs/spec/requirements` names the clauses.

use std::sync::Arc;

use quic::session::tls::{TlsClient, TlsServer};
use quic::session::{HandshakeVersions, NewKeys, Session, SessionFactory};
use quic::{ConnectionId, ErrorCode, TransportError};

use crate::support::hostile::{client_parameters, encode};
use crate::tls::{early_configs, server_key};

// Handshake types (RFC 8446, section 4).
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const END_OF_EARLY_DATA: u8 = 5;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const CERTIFICATE_REQUEST: u8 = 13;
const KEY_UPDATE: u8 = 24;

// Extensions.
const ALPN: u16 = 16;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const TRANSPORT_PARAMETERS: u16 = 57;

/// One side, and what it has sent at each level: Initial, Handshake, 1-RTT.
struct Peer {
    session: Box<dyn Session>,
    level: usize,
    sent: [Vec<u8>; 3],
}

impl Peer {
    fn new(factory: &dyn SessionFactory) -> Self {
        let parameters = encode(&client_parameters(ConnectionId::EMPTY));
        let session = factory.start("server.test", &parameters, HandshakeVersions::V1).expect("sessions start");
        Self { session, level: 0, sent: Default::default() }
    }

    /// The messages that it sends next, at all levels.
    fn write(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let keys = self.session.poll_crypto(&mut bytes);
            self.sent[self.level].extend_from_slice(&bytes);
            all.extend(bytes);
            match keys {
                Some(NewKeys::Handshake(_)) => self.level = 1,
                Some(NewKeys::OneRtt(_)) => self.level = 2,
                None => return all,
            }
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        messages(bytes).iter().try_for_each(|message| self.session.handle_crypto(message))
    }

    /// The types of the messages that it has sent at a level.
    fn types(&self, level: usize) -> Vec<u8> {
        messages(&self.sent[level]).iter().map(|message| message[0]).collect()
    }
}

/// The factories of both sides, with 0-RTT.
fn factories() -> (TlsClient, TlsServer) {
    let (client, server) = early_configs(server_key());
    let server = TlsServer::new(Arc::new(server)).expect("AES-128-GCM is there");
    (TlsClient::new(Arc::new(client)).expect("AES-128-GCM is there"), server)
}

/// Two sides after the handshake, and the server's messages after it, which the client has not read.
fn connected((client, server): &(TlsClient, TlsServer)) -> (Peer, Peer, Vec<u8>) {
    let (mut client, mut server) = (Peer::new(client), Peer::new(server));
    server.read(&client.write()).expect("a hello");
    client.read(&server.write()).expect("the server's flight");
    server.read(&client.write()).expect("the client's flight");
    let after = server.write();
    assert!(!client.session.is_handshaking() && !server.session.is_handshaking());
    (client, server, after)
}

/// Two sides, and the client's hello, which the server has not read.
fn beginning() -> (Peer, Peer, Vec<u8>) {
    let (client, server) = factories();
    let (mut client, server) = (Peer::new(&client), Peer::new(&server));
    let hello = client.write();
    (client, server, hello)
}

/// The whole messages in `bytes`.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(&[_, high, middle, low]) = bytes.first_chunk() {
        let (message, rest) = bytes.split_at(4 + u32::from_be_bytes([0, high, middle, low]) as usize);
        messages.push(message.to_vec());
        bytes = rest;
    }
    messages
}

fn message(ty: u8, body: &[u8]) -> Vec<u8> {
    [&[ty][..], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

fn number(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Where the list of extensions of a message begins, with its length.
fn extensions_at(message: &[u8]) -> usize {
    let hello = |message: &[u8]| 4 + 2 + 32 + 1 + usize::from(message[38]);
    match message[0] {
        // A list of cipher suites, and one of compression methods.
        1 => {
            let suites = hello(message);
            let compression = suites + 2 + number(message, suites);
            compression + 1 + usize::from(message[compression])
        }
        SERVER_HELLO => hello(message) + 3,
        ENCRYPTED_EXTENSIONS => 4,
        NEW_SESSION_TICKET => {
            let ticket = 4 + 8 + 1 + usize::from(message[12]);
            ticket + 2 + number(message, ticket)
        }
        ty => panic!("a message of type {ty}"),
    }
}

/// The extensions of a message: number and value.
fn extensions(message: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut at = extensions_at(message) + 2;
    let mut extensions = Vec::new();
    while at < message.len() {
        let len = number(message, at + 2);
        extensions.push((number(message, at) as u16, message[at + 4..at + 4 + len].to_vec()));
        at += 4 + len;
    }
    extensions
}

/// A message with other extensions.
fn with_extensions(original: &[u8], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (id, value) in extensions {
        list.extend([id.to_be_bytes(), (value.len() as u16).to_be_bytes()].concat());
        list.extend(value);
    }
    let mut body = original[4..extensions_at(original)].to_vec();
    body.extend((list.len() as u16).to_be_bytes());
    body.extend(list);
    message(original[0], &body)
}

/// A message without one of its extensions.
fn without(original: &[u8], removed: u16) -> Vec<u8> {
    let all = extensions(original);
    let left: Vec<_> = all.iter().filter(|(id, _)| *id != removed).cloned().collect();
    assert_eq!(left.len() + 1, all.len(), "the extension was there");
    with_extensions(original, &left)
}

/// A message with another value of one of its extensions.
fn with_value(original: &[u8], changed: u16, value: &[u8]) -> Vec<u8> {
    let mut all = extensions(original);
    let old = all.iter_mut().find(|(id, _)| *id == changed).expect("the extension is there");
    old.1 = value.to_vec();
    with_extensions(original, &all)
}

/// The first message of this type, changed, with all others as they are.
fn change(bytes: &[u8], ty: u8, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let all = messages(bytes);
    assert!(all.iter().any(|message| message[0] == ty), "there is such a message");
    all.into_iter().flat_map(|message| if message[0] == ty { change(&message) } else { message }).collect()
}

#[track_caller]
fn assert_refused(result: Result<(), TransportError>, code: ErrorCode) {
    assert_eq!(result.map_err(|error| error.code), Err(code));
}

#[test]
fn a_client_offers_tls_1_3_alone_and_no_session_of_older_versions() {
    let (_, _, hello) = beginning();
    let versions = extensions(&hello).into_iter().find(|(id, _)| *id == SUPPORTED_VERSIONS).expect("it is there");
    assert_eq!(versions.1, [2, 3, 4], "RFC 9001, section 4.2");
    assert_eq!(hello[38], 0, "an empty legacy_session_id: RFC 9001, section 8.4");
}

#[test]
fn an_older_version_of_tls_ends_the_handshake() {
    // RFC 9001, section 4.2.
    let (mut client, mut server, hello) = beginning();
    server.read(&hello).expect("a hello");
    let older = change(&server.write(), SERVER_HELLO, |hello| with_value(hello, SUPPORTED_VERSIONS, &[3, 3]));
    let refused = client.read(&older).expect_err("the server chooses TLS 1.2");
    assert!(refused.code.tls_alert().is_some(), "{refused}");
    let (_, mut server, hello) = beginning();
    // protocol_version.
    assert_refused(server.read(&with_value(&hello, SUPPORTED_VERSIONS, &[2, 3, 3])), ErrorCode::crypto(70));
}

#[test]
fn unknown_cipher_suites_in_a_hello_do_no_harm() {
    // RFC 9001, section 5.3: also those that are not defined for QUIC.
    let (_, mut server, hello) = beginning();
    let (head, rest) = hello[4..].split_at(2 + 32 + 1);
    let suites = [&(number(rest, 0) as u16 + 4).to_be_bytes()[..], &[0x13, 0x05, 0x13, 0xff]].concat();
    let more = message(1, &[head, &suites, &rest[2..]].concat());
    server.read(&more).expect("it chooses one that it knows");
    server.write();
    assert_eq!(server.types(0), [SERVER_HELLO]);
}

#[test]
fn a_hello_with_a_session_id_is_a_violation() {
    let (_, mut server, hello) = beginning();
    let (head, rest) = hello[4..].split_at(2 + 32);
    let compatible = message(1, &[head, &[32], &[7; 32], &rest[1..]].concat());
    assert_refused(server.read(&compatible), ErrorCode::PROTOCOL_VIOLATION);
}

#[test]
fn a_peer_without_transport_parameters_is_refused() {
    // missing_extension: RFC 9001, section 8.2.
    let (_, mut server, hello) = beginning();
    assert_refused(server.read(&without(&hello, TRANSPORT_PARAMETERS)), ErrorCode::crypto(109));
    let (mut client, mut server, hello) = beginning();
    server.read(&hello).expect("a hello");
    let bare = change(&server.write(), ENCRYPTED_EXTENSIONS, |message| without(message, TRANSPORT_PARAMETERS));
    assert_refused(client.read(&bare), ErrorCode::crypto(109));
}

#[test]
fn a_client_refuses_a_server_that_chooses_no_protocol() {
    let (mut client, mut server, hello) = beginning();
    server.read(&hello).expect("a hello");
    let silent = change(&server.write(), ENCRYPTED_EXTENSIONS, |message| without(message, ALPN));
    // no_application_protocol: RFC 9001, section 8.1.
    assert_refused(client.read(&silent), ErrorCode::crypto(120));
}

#[test]
fn after_the_handshake_a_server_sends_tickets_and_a_client_nothing() {
    let (client, server, _) = connected(&factories());
    // No CertificateRequest (RFC 9001, section 4.4) and no KeyUpdate (section 6).
    assert!(server.types(2).iter().all(|ty| *ty == NEW_SESSION_TICKET), "{:?}", server.types(2));
    assert!(!server.types(2).is_empty() && client.types(2).is_empty(), "{:?}", client.types(2));
}

#[test]
fn messages_that_quic_has_no_use_for_end_the_connection() {
    let key_update = message(KEY_UPDATE, &[0]);
    let (mut client, mut server, _) = connected(&factories());
    // unexpected_message: RFC 9001, section 6.
    assert_refused(client.read(&key_update), ErrorCode::crypto(10));
    assert_refused(server.read(&key_update), ErrorCode::crypto(10));
    // A context, and the extension signature_algorithms.
    let request = message(CERTIFICATE_REQUEST, &[1, 9, 0, 8, 0, 13, 0, 4, 0, 2, 8, 7]);
    let (mut client, ..) = connected(&factories());
    // RFC 9001, section 4.4.
    assert_refused(client.read(&request), ErrorCode::PROTOCOL_VIOLATION);
}

#[test]
fn a_ticket_that_limits_0_rtt_is_a_violation() {
    for limit in [1_u32, 1 << 14, u32::MAX - 1] {
        let (mut client, _, tickets) = connected(&factories());
        let limited =
            change(&tickets, NEW_SESSION_TICKET, |ticket| with_value(ticket, EARLY_DATA, &limit.to_be_bytes()));
        // RFC 9001, section 4.6.1.
        assert_refused(client.read(&limited), ErrorCode::PROTOCOL_VIOLATION);
    }
    let (mut client, _, tickets) = connected(&factories());
    client.read(&tickets).expect("those of the server have no limit");
}

/// A ticket with other bytes for the server, which only the server may interpret.
fn with_ticket(original: &[u8], ticket: &[u8]) -> Vec<u8> {
    let at = 4 + 8 + 1 + usize::from(original[12]);
    let end = extensions_at(original);
    let body = [&original[4..at], &(ticket.len() as u16).to_be_bytes(), ticket, &original[end..]].concat();
    message(NEW_SESSION_TICKET, &body)
}

#[test]
fn a_ticket_comes_back_as_it_was_and_once() {
    let factories = factories();
    let (mut client, _, tickets) = connected(&factories);
    let odd: Vec<u8> = (0..77).map(|byte| byte * 3).collect();
    client.read(&with_ticket(&messages(&tickets)[0], &odd)).expect("a ticket is opaque");
    let hellos: Vec<Vec<u8>> = (0..3).map(|_| Peer::new(&factories.0).write()).collect();
    let uses = hellos.iter().map(|hello| hello.windows(odd.len()).filter(|bytes| *bytes == odd).count());
    // RFC 9001, sections 9.2 and 4.5.
    assert_eq!(uses.collect::<Vec<_>>(), [1, 0, 0]);
}

#[test]
fn a_client_does_not_announce_the_end_of_0_rtt() {
    let factories = factories();
    let (mut client, _, tickets) = connected(&factories);
    client.read(&tickets).expect("tickets");
    let (client, _, _) = connected(&factories);
    assert!(client.session.is_early_accepted(), "0-RTT is in use");
    for level in 0..3 {
        assert!(!client.types(level).contains(&END_OF_EARLY_DATA), "RFC 9001, section 8.3");
    }
}
