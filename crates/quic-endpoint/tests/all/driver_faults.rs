//! Faults of the driver and its socket: panics in the socket or in a session, and errors of system
//! calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Poll, Wake, Waker};
use std::time::Duration as StdDuration;

use bytes::Bytes;
use net::testing::{Faults, InterceptedSocket};
use net::{DatagramSocket, MemoryNetwork, MemorySocket, Transmit};
use quic::session::deterministic::DeterministicFactory;
use quic::session::{
    ExportError, HandshakeVersions, LevelKeys, NewKeys, PhaseKeys, Session, SessionFactory, SessionSummary,
};
use quic::{ConnectionId, Dir, Side, TransportConfig, TransportError, Version};
use quic_endpoint::Closed;
use quic_endpoint::runtime::{ConnectionHandle, Engine, EngineConfig, RecvHandle, SendHandle};
use units::{Duration, Rng};

/// No step takes this long on any machine. A test that waits longer hangs.
const TEST_TIMEOUT: StdDuration = StdDuration::from_secs(30);

/// After this many consecutive errors the driver does not receive until an arrival is announced.
const RECV_ERRORS_MAX: u64 = 16;

const BIDI_STREAMS_MAX: u64 = 4;

fn factory(side: Side) -> Arc<dyn SessionFactory> {
    Arc::new(DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1)))
}

/// A session factory of an application that panics.
struct PanickingSessions {
    in_start: bool,
    in_export: bool,
}

/// A session of [`PanickingSessions`].
struct PanickingSession {
    inner: Box<dyn Session>,
    in_export: bool,
}

impl SessionFactory for PanickingSessions {
    fn initial_keys(&self, destination: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        factory(Side::Client).initial_keys(destination, side, version)
    }

    fn start(
        &self,
        server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        assert!(!self.in_start, "requested by the test: panic in start");
        let inner = factory(Side::Client).start(server_name, parameters, versions)?;
        Ok(Box::new(PanickingSession { inner, in_export: self.in_export }))
    }
}

impl Session for PanickingSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.inner.handle_crypto(bytes)
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        self.inner.poll_crypto(out)
    }

    fn next_phase(&self) -> PhaseKeys {
        self.inner.next_phase()
    }

    fn advance_phase(&mut self) {
        self.inner.advance_phase();
    }

    fn peer_parameters(&self) -> Option<&[u8]> {
        self.inner.peer_parameters()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn peer_identity(&self) -> Vec<Vec<u8>> {
        self.inner.peer_identity()
    }

    fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        assert!(!self.in_export, "requested by the test: panic in export");
        self.inner.export(label, context, out)
    }

    fn version(&self) -> Version {
        self.inner.version()
    }

    fn set_version(&mut self, version: Version) {
        self.inner.set_version(version);
    }

    fn summary(&self) -> SessionSummary {
        self.inner.summary()
    }
}

/// Small windows, so that writers have to wait.
fn config() -> EngineConfig {
    EngineConfig {
        transport: TransportConfig::default()
            .with_stream_window(64 << 10)
            .with_connection_window(1 << 20)
            .with_max_concurrent_bidi_streams(BIDI_STREAMS_MAX)
            .with_handshake_timeout(Duration::from_secs(120))
            .with_idle_timeout(Duration::from_secs(120)),
        server: Some(factory(Side::Server)),
        outbox_bytes_max: 64 << 10,
        ..EngineConfig::default()
    }
}

/// Two engines on threads. The socket of the first one has faults.
struct EnginePair {
    network: MemoryNetwork,
    faults: Arc<Faults>,
    failing: Engine,
    peer: Engine,
}

impl EnginePair {
    fn new(config: EngineConfig, faults: Faults) -> Self {
        let network = MemoryNetwork::new();
        let faults = Arc::new(faults);
        let faulty = InterceptedSocket::new(bind(&network), Arc::clone(&faults));
        let failing = Engine::start(config.clone(), vec![Box::new(faulty)]).unwrap();
        let peer = Engine::start(config, vec![Box::new(bind(&network))]).unwrap();
        Self { network, faults, failing, peer }
    }

    /// Both handles of a connection from `from` to `to`.
    fn connect(from: &Engine, to: &Engine) -> (ConnectionHandle, ConnectionHandle) {
        let ours = from.connect(to.local_addrs()[0], "peer", factory(Side::Client)).unwrap();
        wait(from, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(to, |waker| to.poll_accept(waker)).unwrap();
        (ours, theirs)
    }

    /// Sends a datagram that is not QUIC to the failing engine.
    fn disturb(&self) {
        let transmit = Transmit {
            destination: self.failing.local_addrs()[0],
            source_ip: None,
            ecn: None,
            contents: b"noise",
            segment_size: None,
        };
        bind(&self.network).send(&transmit).unwrap();
    }

    fn recv_calls(&self) -> u64 {
        self.faults.recv_calls.load(Ordering::SeqCst)
    }

    /// Waits until `count` receive calls were made, and checks that no more follow.
    fn expect_recv_calls(&self, count: u64) {
        let deadline = self.peer.now() + TEST_TIMEOUT.into();
        while self.recv_calls() < count && self.peer.now() < deadline {
            pause(&self.peer, Duration::from_millis(1));
        }
        pause(&self.peer, Duration::from_millis(50));
        assert_eq!(self.recv_calls(), count);
    }
}

fn bind(network: &MemoryNetwork) -> MemorySocket {
    network.bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Waits on an engine that works.
fn wait<T>(engine: &Engine, poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    engine.block_on(Some(engine.now() + TEST_TIMEOUT.into()), poll).expect("the engine hangs")
}

fn pause(engine: &Engine, span: Duration) {
    assert!(engine.block_on(Some(engine.now() + span), |_| Poll::<()>::Pending).is_none());
}

/// Polls for the result as text, and registers the waker if there is none.
type Look<'a> = dyn FnMut(&Waker) -> Poll<String> + 'a;

/// A pending call with a waker of its own.
struct Waiter<'a> {
    name: &'static str,
    poll: Box<Look<'a>>,
    waker: Waker,
    woken: Receiver<()>,
}

struct ChannelWaker(Sender<()>);

impl Wake for ChannelWaker {
    fn wake(self: Arc<Self>) {
        // The receiver is dropped at the end of the test.
        let _over = self.0.send(());
    }
}

impl<'a> Waiter<'a> {
    fn new(name: &'static str, poll: impl FnMut(&Waker) -> Poll<String> + 'a) -> Self {
        let (sender, woken) = channel();
        let mut waiter = Self { name, poll: Box::new(poll), waker: Arc::new(ChannelWaker(sender)).into(), woken };
        assert_eq!((waiter.poll)(&waiter.waker), Poll::Pending, "{name} does not wait");
        waiter
    }

    /// Waits for the result. Polls only when it is woken, as a thread or task does.
    fn result(mut self) -> String {
        loop {
            assert!(self.woken.recv_timeout(TEST_TIMEOUT).is_ok(), "{} hangs", self.name);
            if let Poll::Ready(result) = (self.poll)(&self.waker) {
                return result;
            }
        }
    }
}

/// The result as text.
fn text<T, E: std::fmt::Display>(polled: Poll<Result<T, E>>) -> Poll<String> {
    polled.map(|result| result.map_or_else(|error| error.to_string(), |_| "success".to_owned()))
}

/// Writes until the outbox is full.
fn fill(send: &mut SendHandle, waker: &Waker) -> Poll<String> {
    loop {
        match send.poll_write(&[7; 8 << 10], waker) {
            Poll::Ready(Ok(_)) => {}
            polled => return text(polled),
        }
    }
}

fn open(connection: &ConnectionHandle, dir: Dir) -> (SendHandle, Option<RecvHandle>) {
    let mut opening = connection.open(dir);
    wait(connection.runtime(), |waker| opening.poll(waker)).unwrap()
}

/// A pending call of each kind on a connection that uses streams, and on the engine.
fn waiters_for_streams<'a>(pair: &'a EnginePair, connection: &'a ConnectionHandle) -> Vec<Waiter<'a>> {
    let silent = bind(&pair.network);
    let begun = pair.failing.connect(silent.local_addr().unwrap(), "silent", factory(Side::Client)).unwrap();
    let (mut writing, reading) = open(connection, Dir::Bi);
    let mut reading = reading.expect("a bidirectional stream can be read");
    let (mut finished, _) = open(connection, Dir::Uni);
    // More than the peer's window; the peer reads nothing.
    let mut chunk = Some(Bytes::from(vec![7; 256 << 10]));
    assert!(finished.poll_write_chunk(&mut chunk, Waker::noop()).is_ready());
    finished.finish().unwrap();
    // All streams that the peer permits.
    let others: Vec<_> = (1..BIDI_STREAMS_MAX).map(|_| open(connection, Dir::Bi)).collect();
    let mut opening = connection.open(Dir::Bi);
    vec![
        Waiter::new("a client", |waker| text(pair.failing.poll_accept(waker))),
        Waiter::new("a handshake", move |waker| {
            let _keep = &silent;
            text(begun.poll_connected(waker))
        }),
        Waiter::new("the end", |waker| connection.poll_closed(waker).map(|closed| closed.to_string())),
        Waiter::new("a stream of ours", move |waker| {
            let _keep = &others;
            text(opening.poll(waker))
        }),
        Waiter::new("a stream of the peer", |waker| text(connection.poll_accept_bi(waker))),
        Waiter::new("a one-way stream", |waker| text(connection.poll_accept_uni(waker))),
        Waiter::new("a datagram", |waker| text(connection.poll_recv_datagram(waker))),
        Waiter::new("space to write", move |waker| fill(&mut writing, waker)),
        Waiter::new("bytes to read", move |waker| text(reading.poll_ready(waker))),
        Waiter::new("acknowledgement", move |waker| text(finished.poll_acknowledged(waker))),
    ]
}

/// A pending call of each kind on a connection that uses messages.
fn waiters_for_messages(connection: &ConnectionHandle) -> Vec<Waiter<'_>> {
    let mut message = None;
    let mut push = move |waker: &Waker| {
        loop {
            message.get_or_insert_with(|| Bytes::from(vec![7; 1 << 20]));
            match connection.poll_send_message(&mut message, waker) {
                Poll::Ready(Ok(())) => {}
                polled => return text(polled),
            }
        }
    };
    vec![
        Waiter::new("space for a message", move |waker| push(waker)),
        Waiter::new("messages to arrive", |waker| text(connection.poll_messages_flushed(waker))),
        Waiter::new("a message", |waker| text(connection.poll_recv_message(waker))),
    ]
}

/// Lets the driver panic by `inject` while calls of each kind are pending, and checks their
/// results.
fn all_pending_calls_end(inject: impl Fn(&EnginePair, &ConnectionHandle)) {
    let pair = EnginePair::new(config(), Faults::default());
    let (streams, _streams_peer) = EnginePair::connect(&pair.failing, &pair.peer);
    let (accepted_peer, accepted) = EnginePair::connect(&pair.peer, &pair.failing);
    let (messages, _messages_peer) = EnginePair::connect(&pair.failing, &pair.peer);
    let mut waiters = waiters_for_streams(&pair, &streams);
    waiters.extend(waiters_for_messages(&messages));
    waiters.push(Waiter::new("the end of another", |waker| accepted.poll_closed(waker).map(|why| why.to_string())));
    let blocked = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| wait(&pair.failing, |waker| streams.poll_closed(waker)));
        inject(&pair, &streams);
        for waiter in waiters {
            let name = waiter.name;
            assert_eq!(waiter.result(), Closed::EndpointClosed.to_string(), "{name}");
        }
        blocked.join().unwrap()
    });
    assert_eq!(blocked, Closed::EndpointClosed);
    // Later calls do not wait either.
    for connection in [&streams, &messages, &accepted] {
        assert_eq!(connection.closed(), Some(Closed::EndpointClosed));
        assert_eq!(connection.stats().map(|_| ()), None);
        assert!(connection.export_keying_material(b"label", b"", &mut [0; 8]).is_err());
        assert!(connection.send_datagram(Bytes::from_static(b"late")).is_err());
        let late = text(connection.open(Dir::Bi).poll(Waker::noop()));
        assert_eq!(late, Poll::Ready(Closed::EndpointClosed.to_string()));
    }
    let late = pair.failing.connect(pair.peer.local_addrs()[0], "peer", factory(Side::Client));
    assert_eq!(late.map(|_| ()), Err(Closed::EndpointClosed));
    assert!(pair.failing.poll_accept(Waker::noop()).is_ready());
    pair.failing.stop();
    pair.failing.stop();
    // The peer is another engine and continues.
    assert_eq!(accepted_peer.closed(), None);
    pair.peer.stop();
    assert_eq!(accepted_peer.closed(), Some(Closed::EndpointClosed));
}

#[test]
fn a_panic_while_receiving_ends_all_pending_calls() {
    all_pending_calls_end(|pair, _| {
        pair.faults.panic_in_recv.store(true, Ordering::SeqCst);
        pair.disturb();
    });
}

#[test]
fn a_panic_while_sending_ends_all_pending_calls() {
    all_pending_calls_end(|pair, connection| {
        pair.faults.panic_in_send.store(true, Ordering::SeqCst);
        connection.send_datagram(Bytes::from_static(b"the last one")).unwrap();
    });
}

#[test]
fn a_panic_in_starting_a_session_ends_the_connect_call() {
    let pair = EnginePair::new(config(), Faults::default());
    let panicking = Arc::new(PanickingSessions { in_start: true, in_export: false });
    let begun = pair.failing.connect(pair.peer.local_addrs()[0], "peer", panicking).unwrap();
    let connected = wait(&pair.failing, |waker| begun.poll_connected(waker));
    assert_eq!(connected, Err(Closed::EndpointClosed));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a call that hangs must not block the test")]
fn a_panic_in_exporting_keying_material_ends_the_export_call() {
    let pair = EnginePair::new(config(), Faults::default());
    let panicking = Arc::new(PanickingSessions { in_start: false, in_export: true });
    let ours = pair.failing.connect(pair.peer.local_addrs()[0], "peer", panicking).unwrap();
    wait(&pair.failing, |waker| ours.poll_connected(waker)).unwrap();
    let (sender, asked) = channel();
    let connection = ours.clone();
    std::thread::spawn(move || sender.send(connection.export_keying_material(b"label", b"", &mut [0; 8])));
    let asked = asked.recv_timeout(TEST_TIMEOUT).expect("the call hangs");
    assert!(asked.is_err());
    assert_eq!(wait(&pair.failing, |waker| ours.poll_closed(waker)), Closed::ProcessorGone);
}

#[test]
fn a_panic_in_one_connection_does_not_affect_others() {
    let pair = EnginePair::new(config(), Faults::default());
    let (others, others_there) = EnginePair::connect(&pair.failing, &pair.peer);
    for _ in 0..3 {
        let panicking = Arc::new(PanickingSessions { in_start: false, in_export: true });
        let failing = pair.failing.connect(pair.peer.local_addrs()[0], "peer", panicking).unwrap();
        wait(&pair.failing, |waker| failing.poll_connected(waker)).unwrap();
        let (mut writing, _) = open(&failing, Dir::Uni);
        assert!(failing.export_keying_material(b"label", b"", &mut [0; 8]).is_err());
        assert_eq!(wait(&pair.failing, |waker| failing.poll_closed(waker)), Closed::ProcessorGone);
        assert!(wait(&pair.failing, |waker| writing.poll_write(b"late", waker)).is_err());
        // The other connection works.
        let (mut send, _) = open(&others, Dir::Uni);
        assert!(wait(&pair.failing, |waker| send.poll_write(&[7; 1000], waker)).is_ok());
        send.finish().unwrap();
        let mut recv = wait(&pair.peer, |waker| others_there.poll_accept_uni(waker)).unwrap();
        let mut len = 0;
        while wait(&pair.peer, |waker| recv.poll_ready(waker)).unwrap() {
            len += std::mem::take(recv.front_mut()).len();
        }
        assert_eq!(len, 1000);
    }
    assert_eq!(pair.failing.connection_count(), 1);
}

#[test]
fn sending_to_a_socket_that_fails_is_retried_with_backoff_and_no_data_is_lost() {
    const LEN: usize = 10_000;
    let pair = EnginePair::new(config(), Faults::default());
    let (ours, theirs) = EnginePair::connect(&pair.failing, &pair.peer);
    let (mut send, _) = open(&ours, Dir::Uni);
    pause(&pair.failing, Duration::from_millis(50));
    pair.faults.refuse_send.store(true, Ordering::SeqCst);
    let before = pair.faults.flushes.load(Ordering::SeqCst);
    assert!(send.poll_write(&[7; LEN], Waker::noop()).is_ready());
    send.finish().unwrap();
    pause(&pair.failing, Duration::from_millis(500));
    // The driver waits 5 ms, then twice as long each time. Each retry is a turn, and so is each
    // timer of loss recovery.
    let turns = pair.faults.flushes.load(Ordering::SeqCst) - before;
    assert!((2..100).contains(&turns), "{turns} turns");
    pair.faults.refuse_send.store(false, Ordering::SeqCst);
    let mut recv = wait(&pair.peer, |waker| theirs.poll_accept_uni(waker)).unwrap();
    let mut len = 0;
    while wait(&pair.peer, |waker| recv.poll_ready(waker)).unwrap() {
        len += std::mem::take(recv.front_mut()).len();
    }
    assert_eq!(len, LEN);
}

#[test]
fn a_backoff_that_ends_without_data_to_send_causes_no_further_turns() {
    let pair = EnginePair::new(config(), Faults::default());
    let (ours, _theirs) = EnginePair::connect(&pair.failing, &pair.peer);
    pause(&pair.failing, Duration::from_millis(50));
    pair.faults.refuse_send.store(true, Ordering::SeqCst);
    ours.send_datagram(Bytes::from_static(b"refused, and not to be repeated")).unwrap();
    pause(&pair.failing, Duration::from_millis(2));
    pair.faults.refuse_send.store(false, Ordering::SeqCst);
    let before = pair.faults.flushes.load(Ordering::SeqCst);
    pause(&pair.failing, Duration::from_millis(300));
    let turns = pair.faults.flushes.load(Ordering::SeqCst) - before;
    assert!(turns < 100, "{turns} turns");
}

#[test]
fn a_connection_close_that_the_socket_refuses_is_sent_again() {
    let pair = EnginePair::new(config(), Faults::default());
    let (ours, theirs) = EnginePair::connect(&pair.failing, &pair.peer);
    // Two refusals and not a duration: a closing connection exists for three probe timeouts, about
    // 80 ms here.
    pair.faults.refusals_left.store(2, Ordering::SeqCst);
    ours.send_datagram(Bytes::from_static(b"refused")).unwrap();
    pair.failing.stop();
    assert_eq!(pair.faults.refusals_left.load(Ordering::SeqCst), 0);
    let closed = wait(&pair.peer, |waker| theirs.poll_closed(waker));
    assert!(!matches!(closed, Closed::TimedOut), "{closed}");
}

#[test]
fn a_socket_that_fails_to_receive_is_tried_again_only_after_an_arrival() {
    let faults = Faults::default();
    faults.fail_recv.store(true, Ordering::SeqCst);
    let pair = EnginePair::new(config(), faults);
    pair.expect_recv_calls(RECV_ERRORS_MAX);
    // One more call for each arrival.
    for arrival in 1..=5 {
        pair.faults.wake();
        pair.expect_recv_calls(RECV_ERRORS_MAX + arrival);
    }
}

#[test]
fn a_handshake_over_a_socket_that_fails_to_receive_times_out() {
    let faults = Faults::default();
    faults.fail_recv.store(true, Ordering::SeqCst);
    let transport = TransportConfig::default().with_handshake_timeout(Duration::from_millis(300));
    let pair = EnginePair::new(EngineConfig { transport, ..config() }, faults);
    let connection = pair.failing.connect(pair.peer.local_addrs()[0], "peer", factory(Side::Client)).unwrap();
    let closed = wait(&pair.failing, |waker| connection.poll_closed(waker));
    assert_eq!(closed, Closed::HandshakeTimedOut { last_send_error: None });
    // One call for each packet of the peer, and no busy loop.
    let calls = pair.recv_calls();
    assert!((RECV_ERRORS_MAX..RECV_ERRORS_MAX + 100).contains(&calls), "{calls} calls");
}

#[test]
fn a_socket_that_recovers_is_used_again_with_its_error_count_reset() {
    let faults = Faults::default();
    faults.fail_recv.store(true, Ordering::SeqCst);
    let pair = EnginePair::new(config(), faults);
    pair.expect_recv_calls(RECV_ERRORS_MAX);
    pair.faults.fail_recv.store(false, Ordering::SeqCst);
    let (ours, theirs) = EnginePair::connect(&pair.peer, &pair.failing);
    theirs.send_datagram(Bytes::from_static(b"hello")).unwrap();
    let datagram = wait(&pair.peer, |waker| ours.poll_recv_datagram(waker)).unwrap();
    assert_eq!(datagram, b"hello"[..]);
    // Errors count from zero again. The peer is stopped first, so that no other packet arrives.
    pair.peer.stop();
    wait(&pair.failing, |waker| theirs.poll_closed(waker));
    pause(&pair.failing, Duration::from_millis(50));
    pair.faults.fail_recv.store(true, Ordering::SeqCst);
    let before = pair.recv_calls();
    pair.disturb();
    pair.expect_recv_calls(before + RECV_ERRORS_MAX);
}

#[test]
fn stopping_an_engine_during_a_turn_ends_it() {
    const ROUNDS: usize = 1000;
    let network = MemoryNetwork::new();
    let mut noisy = bind(&network);
    for _ in 0..ROUNDS {
        // Without a connection there is no timer that would end the driver's sleep.
        let engine = Engine::start(config(), vec![Box::new(bind(&network))]).unwrap();
        let transmit = Transmit {
            destination: engine.local_addrs()[0],
            source_ip: None,
            ecn: None,
            contents: b"noise",
            segment_size: None,
        };
        // Each datagram causes a turn.
        (0..3).for_each(|_| noisy.send(&transmit).unwrap());
        let (ends, ended) = std::sync::mpsc::channel::<std::convert::Infallible>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                engine.stop();
                drop(ends);
            });
            let timeout = ended.recv_timeout(TEST_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if timeout {
                // Another turn ends the engine.
                noisy.send(&transmit).unwrap();
            }
            assert!(!timeout, "the driver sleeps although it was stopped");
        });
    }
}
