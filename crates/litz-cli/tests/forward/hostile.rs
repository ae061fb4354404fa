//! Peers that do not keep to the protocol.

use forward::message::{HEADER_LEN, Header, Message, Reason};
use litz::identity::{KeyPair, client_config, server_config};
use litz::{Connection, Endpoint, EndpointConfig, RecvStream, SendStream};
use transfer::{Role, Secret, Ticket, TicketAddress, proof_context};

use super::*;

pub(super) type Streams = (SendStream, RecvStream);

pub(super) fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

pub(super) fn read(stream: &mut RecvStream) -> Option<Message> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).ok()?;
    let header = Header::parse(header).expect("the command sends messages");
    let mut body = vec![0; header.body_len];
    stream.read_exact(&mut body).ok()?;
    Some(Message::decode(header, &body).expect("the command sends messages"))
}

/// A client of its own, connected to the server of a ticket.
pub(super) struct Client {
    key: KeyPair,
    pub(super) ticket: Ticket,
    pub(super) connection: Connection,
    _endpoint: Endpoint,
}

impl Client {
    pub(super) fn new(ticket: &str, key: KeyPair) -> Self {
        let ticket: Ticket = ticket.parse().expect("a ticket");
        let [TicketAddress::Socket(address), ..] = ticket.addresses[..] else { panic!("an address") };
        let tls = client_config(&key, &[ticket.receiver], [forward::ALPN]).expect("a key");
        let endpoint = Endpoint::bind(EndpointConfig::loopback()).expect("a port");
        let connection = endpoint.connect(address, "litz", tls.config).expect("the server is there");
        Self { key, ticket, connection, _endpoint: endpoint }
    }

    /// Says Hello; returns the answer.
    pub(super) fn hello(&self, secret: &Secret) -> (Option<Message>, Streams) {
        let context = proof_context(&self.connection, self.key.public(), self.ticket.receiver).expect("it is open");
        let proof = Some(*context.prove(secret, Role::Sender).as_bytes());
        let (mut send, mut recv) = self.connection.open_bi().expect("it is open");
        send.write_all(&encoded(&Message::Hello { run: [1; 16], proof })).expect("it is open");
        (read(&mut recv), (send, recv))
    }

    /// What the server answers to these bytes on a stream. It may refuse the rest of the stream before all
    /// is written.
    pub(super) fn ask(&self, bytes: &[u8]) -> Option<Message> {
        let (mut send, mut recv) = self.connection.open_bi().expect("it is open");
        let _refused = send.write_all(bytes).is_err() || send.finish().is_err();
        read(&mut recv)
    }
}

#[test]
fn clients_without_the_proof_get_nothing() {
    let place = Place::new();
    let target = late_echo();
    let (mut server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", &target.to_string()]);
    let key = || KeyPair::generate().expect("a key");
    // A stream without a proof, and then requests.
    let stranger = Client::new(&ticket, key());
    let open = Message::Open { target: target.to_string().parse().expect("a target") };
    assert_eq!(stranger.ask(&encoded(&open)), None);
    stranger.connection.closed();
    // A wrong proof.
    let guessing = Client::new(&ticket, key());
    let (answer, _control) = guessing.hello(&Secret::from_bytes([0; 16]));
    assert_eq!(answer, Some(Message::Refused { code: 1 }));
    server.wait_until(|event| {
        event["event"] == "client_refused" && event["message"].as_str().is_some_and(|text| text.contains("no ticket"))
    });
    // Bytes that are no message.
    for bytes in [[0; 64], [0xff; 64]] {
        let visitor = Client::new(&ticket, key());
        assert_eq!(visitor.ask(&bytes), None);
        visitor.connection.closed();
    }
    // Another command.
    let state = format!("--state-dir={}", place.path("x").display());
    place.send(&[&place.file("file", 10, 1)], &ticket, &[&state]).fail(2, "the command that printed the ticket");
    // The ticket was not used up.
    let owner = Client::new(&ticket, key());
    assert!(matches!(owner.hello(&owner.ticket.secret.clone()).0, Some(Message::Accepted { proof: Some(_) })));
}

#[test]
fn a_client_that_breaks_the_protocol_harms_only_itself() {
    let place = Place::new();
    let target = late_echo();
    let rule = target.to_string();
    let (mut server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target", &rule, "--permit-listen=*"]);
    let key = KeyPair::generate().expect("a key");
    let client = Client::new(&ticket, key);
    let (answer, mut control) = client.hello(&client.ticket.secret.clone());
    assert!(matches!(answer, Some(Message::Accepted { .. })), "{answer:?}");
    // Streams without a message, and with another message than a request.
    for bytes in [&b""[..], &[1, 0x10, 0xff, 0xff], &[9; 100]] {
        let Some(Message::Failed(failure)) = client.ask(bytes) else { panic!("an answer") };
        assert_eq!(failure.reason, Reason::Unknown);
    }
    for message in [Message::Arrived { id: 0, origin: None }, Message::Refused { code: 1 }] {
        let Some(Message::Failed(failure)) = client.ask(&encoded(&message)) else { panic!("an answer") };
        assert_eq!(failure.reason, Reason::Unknown);
    }
    let forbidden = Message::Open { target: "169.254.169.254:80".parse().expect("a target") };
    let Some(Message::Failed(failure)) = client.ask(&encoded(&forbidden)) else { panic!("an answer") };
    assert_eq!(failure.reason, Reason::NotAllowed);
    // Packets of no flow, and of none at all.
    for packet in [vec![], vec![0xc0], forward::packet::encode(1 << 40, b"x")] {
        let _sent = client.connection.send_datagram(packet.clone().into());
        client.connection.send_message(packet.into()).expect("it is open");
    }
    // Listeners beyond the bound.
    let mut refused = None;
    for id in 0..100 {
        let listen = "0:a:1".parse::<forward::spec::Forward>().expect("a forward").listen;
        control.0.write_all(&encoded(&Message::Listen { id, listen })).expect("it is open");
        match read(&mut control.1).expect("an answer") {
            Message::Listening { id: answered, .. } => assert_eq!(answered, id),
            Message::NotListening { failure, .. } => refused = refused.or(Some((id, failure.reason))),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, Some((64, Reason::Busy)));
    // It works all the same, until it breaks the control stream.
    let (mut send, mut recv) = client.connection.open_bi().expect("it is open");
    send.write_all(&encoded(&Message::Open { target: rule.parse().expect("a target") })).expect("it is open");
    send.write_all(b"hello").expect("it is open");
    send.finish().expect("it is open");
    assert!(matches!(read(&mut recv), Some(Message::Connected { local: Some(_) })));
    let mut answer = Vec::new();
    recv.read_to_end(&mut answer).expect("an answer");
    assert_eq!(answer, b"hello");
    control.0.write_all(&encoded(&Message::Accepted { proof: None })).expect("it is open");
    client.connection.closed();
    server.wait_for("client_ended");
}

/// A server of its own, and its ticket.
fn own_server() -> (Endpoint, Ticket) {
    let key = KeyPair::generate().expect("a key");
    let tls = server_config(&key, [forward::ALPN]).expect("a key");
    let endpoint = Endpoint::bind(EndpointConfig::loopback().with_server_tls(tls)).expect("a port");
    let addresses = vec![TicketAddress::Socket(endpoint.local_addr())];
    let secret = Secret::generate().expect("a secret");
    (endpoint, Ticket::new(addresses, key.public().fingerprint(), secret, 1 << 39))
}

#[test]
fn a_server_that_does_not_know_the_secret_is_left() {
    let (endpoint, ticket) = own_server();
    let place = Place::new();
    let mut command = client(&place, &ticket.to_text().expect("a ticket"), &["-L", "0:localhost:1"]);
    let connection = endpoint.accept().expect("a client");
    let (mut send, mut recv) = connection.accept_bi().expect("the control stream");
    assert!(matches!(read(&mut recv), Some(Message::Hello { proof: Some(_), .. })));
    send.write_all(&encoded(&Message::Accepted { proof: Some([7; 32]) })).expect("it is open");
    command.fail(2, "does not know the ticket's secret");
}

#[test]
fn a_server_reaches_nothing_on_the_clients_side_but_the_targets_of_its_listeners() {
    let (endpoint, ticket) = own_server();
    let place = Place::new();
    let target = late_echo();
    let remote = format!("0:{target}");
    let mut command = client(&place, &ticket.to_text().expect("a ticket"), &["-R", &remote]);
    let connection = endpoint.accept().expect("a client");
    let (mut send, mut recv) = connection.accept_bi().expect("the control stream");
    let Some(Message::Hello { proof: Some(_), .. }) = read(&mut recv) else { panic!("a proof") };
    let key = transfer::peer_key(&connection).expect("a key");
    let context = proof_context(&connection, key, ticket.receiver).expect("it is open");
    let proof = Some(*context.prove(&ticket.secret, Role::Receiver).as_bytes());
    send.write_all(&encoded(&Message::Accepted { proof })).expect("it is open");
    let Some(Message::Listen { id: 0, listen }) = read(&mut recv) else { panic!("a listener") };
    send.write_all(&encoded(&Message::Listening { id: 0, listen })).expect("it is open");
    command.wait_for("connected");
    let ask = |message: &Message| {
        let (mut send, mut recv) = connection.open_bi().expect("it is open");
        send.write_all(&encoded(message)).expect("it is open");
        send.finish().expect("it is open");
        (read(&mut recv), recv)
    };
    let open = Message::Open { target: target.to_string().parse().expect("a target") };
    let (Some(Message::Failed(failure)), _) = ask(&open) else { panic!("an answer") };
    assert_eq!(failure.reason, Reason::NotAllowed);
    let (Some(Message::Failed(failure)), _) = ask(&Message::Arrived { id: 1, origin: None }) else {
        panic!("an answer")
    };
    assert_eq!(failure.reason, Reason::Unknown);
    let (Some(Message::Connected { .. }), mut recv) = ask(&Message::Arrived { id: 0, origin: None }) else {
        panic!("an answer")
    };
    let mut answer = Vec::new();
    recv.read_to_end(&mut answer).expect("an answer");
    assert!(answer.is_empty());
    // A message that is not expected ends it.
    send.write_all(&encoded(&Message::Refused { code: 1 })).expect("it is open");
    command.fail(2, "not expected");
}
