//! Both ends of forwarding inside one process, without the command: a listener, a target that the server's rules allow,
//! and one that they do not.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forward::address::{Address, Protocol, Target};
use forward::message::Message;
use forward::policy::Policy;
use forward::spec::{Bind, Listen};
use forwarding::carry::{Broken, Carried};
use forwarding::events::{Events, Label};
use forwarding::listener::{Bound, Way, places};
use forwarding::listeners::Listeners;
use forwarding::session::{AllowedRequests, Session, transport};
use forwarding::sessions::Sessions;
use forwarding::sources::Sources;
use quic_endpoint::identity::{self, KeyPair};
use quic_endpoint::{Connection, Endpoint, EndpointConfig, TransportConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use units::Duration;

/// Keeps what it takes.
#[derive(Default)]
struct Kept {
    next: AtomicU64,
    lines: watch::Sender<Vec<String>>,
}

impl Kept {
    fn push(&self, line: String) {
        self.lines.send_modify(|lines| lines.push(line));
    }

    /// The first `count`, as soon as there are so many.
    async fn first(&self, count: usize) -> Vec<String> {
        let mut lines = self.lines.subscribe();
        lines.wait_for(|lines| lines.len() >= count).await.expect("the sender is here").clone()
    }
}

impl Events for Kept {
    fn label(&self, from: &dyn Display, target: &dyn Display) -> Label {
        Label { number: self.next.fetch_add(1, Ordering::Relaxed), from: from.to_string(), target: target.to_string() }
    }

    fn opened(&self, label: &Label) {
        self.push(format!("opened {}", label.target));
    }

    fn refused(&self, label: &Label, reason: &str, _message: &str) {
        self.push(format!("refused {}: {reason}", label.target));
    }

    fn closed(&self, label: &Label, carried: &Carried, result: &Result<(), Broken>) {
        let bytes = (carried.sent.load(Ordering::Relaxed), carried.received.load(Ordering::Relaxed));
        self.push(format!("closed {} after {bytes:?}: {}", label.target, result.is_ok()));
    }
}

/// Both ends of a connection, and the endpoints that they need.
fn pair() -> ([Connection; 2], [Endpoint; 2]) {
    let (server_key, client_key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let config = EndpointConfig::loopback().with_transport(transport(TransportConfig::default()));
    let server_tls = identity::server_config(&server_key, [forward::ALPN]).expect("settings");
    let server = Endpoint::bind(config.clone().with_server_tls(server_tls)).expect("a socket");
    let client = Endpoint::bind(config).expect("a socket");
    let tls =
        identity::client_config(&client_key, &[server_key.public().fingerprint()], [forward::ALPN]).expect("settings");
    let ours = client.connect(server.local_addr(), "litz", tls.config.clone()).expect("a connection");
    let theirs = server.accept().expect("a connection");
    ([ours, theirs], [client, server])
}

/// A listener of the client whose connections lead to `target`. Returns where it listens.
fn listen(session: &Arc<Session>, target: SocketAddr, events: &Arc<Kept>, tasks: &mut JoinSet<()>) -> SocketAddr {
    let listen = Listen::Port { protocol: Protocol::Tcp, bind: Bind::Ip([127, 0, 0, 1].into()), port: 0 };
    let bound = Bound::open_here(&listen).expect("a port");
    let address = bound.address().expect("a port");
    let target = Target::Host(Protocol::Tcp, Address::of(target));
    let way = Way {
        sessions: Sessions::One(Arc::clone(session)),
        shown: target.to_string(),
        request: Box::new(move |_| Message::Open { target: target.clone() }),
        events: events.clone(),
        places: places(),
    };
    bound.serve(&Arc::new(way), tasks);
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_forwards_connections_without_the_command() {
    let ([ours, theirs], _endpoints) = tokio::task::spawn_blocking(pair).await.expect("no panic");
    let echo = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let target = echo.local_addr().expect("a port");
    tokio::spawn(async move {
        let (mut stream, _) = echo.accept().await.expect("a connection");
        let mut words = Vec::new();
        stream.read_to_end(&mut words).await.expect("words");
        stream.write_all(&words.to_ascii_uppercase()).await.expect("an answer");
    });

    let (client_events, server_events) = (Arc::<Kept>::default(), Arc::<Kept>::default());
    let policy = Arc::new(Policy::new(vec![target.to_string().parse().expect("a rule")], Vec::new()));
    let others = Arc::new(Listeners::new(Arc::clone(&policy)));
    let server =
        Arc::new(Session::new(theirs, "the client".to_owned(), Duration::from_secs(60), server_events.clone()));
    let allowed = Arc::new(AllowedRequests::Server(policy, Sources::default(), others));
    tokio::spawn(async move { server.run(&allowed).await });
    let client = Session::new(ours, "the server".to_owned(), Duration::from_secs(60), client_events.clone());
    let (client, mut tasks) = (Arc::new(client), JoinSet::new());

    let mut stream =
        TcpStream::connect(listen(&client, target, &client_events, &mut tasks)).await.expect("a connection");
    stream.write_all(b"how fast?").await.expect("written");
    stream.shutdown().await.expect("the end");
    let mut words = String::new();
    stream.read_to_string(&mut words).await.expect("an answer");
    assert_eq!(words, "HOW FAST?");

    let carried = [format!("opened {target}"), format!("closed {target} after (9, 9): true")];
    assert_eq!([client_events.first(2).await, server_events.first(2).await], [carried.clone(), carried]);

    let other = SocketAddr::new(target.ip(), 1);
    let mut stream =
        TcpStream::connect(listen(&client, other, &client_events, &mut tasks)).await.expect("a connection");
    assert!(stream.read_to_end(&mut Vec::new()).await.is_err(), "it is reset");
    let refused = format!("refused {other}: not_allowed");
    assert_eq!([&client_events.first(3).await[2], &server_events.first(3).await[2]], [&refused; 2]);
}
