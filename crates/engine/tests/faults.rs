//! The engine itself fails: its driver panics, or its socket does not receive for good.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Wake, Waker};
use std::time::Duration as Patience;

use bytes::Bytes;
use engine::{Closed, ConnectionHandle, Engine, EngineConfig, LiveSocket, Readiness, RecvHandle, SendHandle};
use net::{DatagramSocket, MemoryNetwork, MemorySocket, RecvMeta, SendError, SocketCounters, Transmit};
use quic::session::deterministic::DeterministicFactory;
use quic::session::{ExportError, LevelKeys, NewKeys, PhaseKeys, Session, SessionFactory, SessionSummary};
use quic::{ConnectionId, Dir, Side, TransportConfig, TransportError};
use units::{Duration, Rng};

/// Nothing here takes that long, on any machine: beyond, something hangs.
const PATIENCE: Patience = Patience::from_secs(30);

/// The driver gives up on a socket after this many errors in a row, until something arrives.
const RECV_ERRORS_MAX: usize = 16;

const BIDI_STREAMS_MAX: u64 = 4;

/// How a socket shall fail, and what became of it.
#[derive(Default)]
struct Faults {
    panic_in_recv: AtomicBool,
    panic_in_send: AtomicBool,
    fail_recv: AtomicBool,
    refuse_send: AtomicBool,
    /// So many more batches are refused.
    refusals_left: AtomicUsize,
    recv_calls: AtomicUsize,
    /// One each time the driver has done a turn.
    flushes: AtomicUsize,
    arrivals: OnceLock<Waker>,
}

/// A socket that fails as told.
struct Faulty {
    inner: MemorySocket,
    faults: Arc<Faults>,
}

impl DatagramSocket for Faulty {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        self.inner.max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        self.inner.max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        assert!(!self.faults.panic_in_send.load(Ordering::SeqCst), "told to panic in send");
        if self.faults.refuse_send.load(Ordering::SeqCst) {
            return Err(SendError::Other(io::ErrorKind::NetworkUnreachable.into()));
        }
        let fewer = |left: usize| left.checked_sub(1);
        if self.faults.refusals_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
            return Err(SendError::Other(io::ErrorKind::NetworkUnreachable.into()));
        }
        self.inner.send(transmit)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.faults.flushes.fetch_add(1, Ordering::SeqCst);
        self.inner.flush()
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        self.faults.recv_calls.fetch_add(1, Ordering::SeqCst);
        assert!(!self.faults.panic_in_recv.load(Ordering::SeqCst), "told to panic in recv");
        if self.faults.fail_recv.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        self.inner.recv(buffers, metas)
    }

    fn counters(&self) -> &SocketCounters {
        self.inner.counters()
    }
}

impl LiveSocket for Faulty {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.faults.arrivals.set(waker.clone()).expect("asked once");
        self.inner.readiness(waker)
    }
}

fn factory(side: Side) -> Arc<dyn SessionFactory> {
    Arc::new(DeterministicFactory::new(side, Rng::from_seed(side as u64 + 1)))
}

/// Panics where an application's own session may.
struct Fragile {
    in_start: bool,
    in_export: bool,
}

/// A session of [`Fragile`].
struct FragileSession {
    inner: Box<dyn Session>,
    in_export: bool,
}

impl SessionFactory for Fragile {
    fn initial_keys(&self, destination: &ConnectionId, side: Side) -> LevelKeys {
        factory(Side::Client).initial_keys(destination, side)
    }

    fn start(&self, server_name: &str, parameters: &[u8]) -> Result<Box<dyn Session>, String> {
        assert!(!self.in_start, "told to panic in start");
        let inner = factory(Side::Client).start(server_name, parameters)?;
        Ok(Box::new(FragileSession { inner, in_export: self.in_export }))
    }
}

impl Session for FragileSession {
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
        assert!(!self.in_export, "told to panic in export");
        self.inner.export(label, context, out)
    }

    fn summary(&self) -> SessionSummary {
        self.inner.summary()
    }
}

/// Small windows, so that writers soon have to wait.
fn config() -> EngineConfig {
    EngineConfig {
        transport: TransportConfig {
            stream_window: 64 << 10,
            connection_window: 1 << 20,
            max_concurrent_bidi_streams: BIDI_STREAMS_MAX,
            idle_timeout: Duration::from_secs(120),
            ..TransportConfig::default()
        },
        server: Some(factory(Side::Server)),
        handshake_timeout: Duration::from_secs(120),
        outbox_bytes_max: 64 << 10,
        ..EngineConfig::default()
    }
}

/// Two engines with threads of their own; the first one's socket fails as told.
struct World {
    network: MemoryNetwork,
    faults: Arc<Faults>,
    failing: Engine,
    peer: Engine,
}

impl World {
    fn new(config: EngineConfig, faults: Faults) -> Self {
        let network = MemoryNetwork::new();
        let faults = Arc::new(faults);
        let faulty = Faulty { inner: bind(&network), faults: Arc::clone(&faults) };
        let failing = Engine::start(config.clone(), vec![Box::new(faulty)]).unwrap();
        let peer = Engine::start(config, vec![Box::new(bind(&network))]).unwrap();
        Self { network, faults, failing, peer }
    }

    /// A connection of `from` to `to`, seen from both sides.
    fn connect(from: &Engine, to: &Engine) -> (ConnectionHandle, ConnectionHandle) {
        let ours = from.connect(to.local_addrs()[0], "peer", factory(Side::Client)).unwrap();
        wait(from, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(to, |waker| to.poll_accept(waker)).unwrap();
        (ours, theirs)
    }

    /// Sends noise to the failing engine.
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

    fn recv_calls(&self) -> usize {
        self.faults.recv_calls.load(Ordering::SeqCst)
    }

    /// Waits until the socket was asked `count` times, and a while longer to see that this was all.
    fn expect_recv_calls(&self, count: usize) {
        let deadline = self.peer.now() + PATIENCE.into();
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

/// Waits for an engine that works.
fn wait<T>(engine: &Engine, poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    engine.block_on(Some(engine.now() + PATIENCE.into()), poll).expect("the engine hangs")
}

fn pause(engine: &Engine, span: Duration) {
    assert!(engine.block_on(Some(engine.now() + span), |_| Poll::<()>::Pending).is_none());
}

/// Looks whether what is waited for has come, in words, and leaves the waker if not.
type Look<'a> = dyn FnMut(&Waker) -> Poll<String> + 'a;

/// Somebody who waits, with a waker of its own.
struct Waiter<'a> {
    name: &'static str,
    poll: Box<Look<'a>>,
    waker: Waker,
    woken: Receiver<()>,
}

struct Bell(Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Nobody listens any more once the test is over.
        let _over = self.0.send(());
    }
}

impl<'a> Waiter<'a> {
    fn new(name: &'static str, poll: impl FnMut(&Waker) -> Poll<String> + 'a) -> Self {
        let (sender, woken) = channel();
        let mut waiter = Self { name, poll: Box::new(poll), waker: Arc::new(Bell(sender)).into(), woken };
        assert_eq!((waiter.poll)(&waiter.waker), Poll::Pending, "{name} does not wait");
        waiter
    }

    /// What it is told in the end. It looks only when it is woken, as a thread or task does.
    fn told(mut self) -> String {
        loop {
            assert!(self.woken.recv_timeout(PATIENCE).is_ok(), "{} hangs", self.name);
            if let Poll::Ready(told) = (self.poll)(&self.waker) {
                return told;
            }
        }
    }
}

/// What is not to be waited for, as words.
fn words<T, E: std::fmt::Display>(polled: Poll<Result<T, E>>) -> Poll<String> {
    polled.map(|result| result.map_or_else(|error| error.to_string(), |_| "success".to_owned()))
}

/// Writes until there is no room.
fn fill(send: &mut SendHandle, waker: &Waker) -> Poll<String> {
    loop {
        match send.poll_write(&[7; 8 << 10], waker) {
            Poll::Ready(Ok(_)) => {}
            polled => return words(polled),
        }
    }
}

fn open(connection: &ConnectionHandle, dir: Dir) -> (SendHandle, Option<RecvHandle>) {
    let mut opening = connection.open(dir);
    wait(connection.engine(), |waker| opening.poll(waker)).unwrap()
}

/// One who waits for each thing that can be waited for on a connection of streams, and on the engine.
fn waiters_for_streams<'a>(world: &'a World, connection: &'a ConnectionHandle) -> Vec<Waiter<'a>> {
    let nobody = bind(&world.network);
    let begun = world.failing.connect(nobody.local_addr().unwrap(), "nobody", factory(Side::Client)).unwrap();
    let (mut writing, reading) = open(connection, Dir::Bi);
    let mut reading = reading.expect("a bidirectional stream can be read");
    let (mut finished, _) = open(connection, Dir::Uni);
    // More than the peer allows, which reads nothing.
    let mut chunk = Some(Bytes::from(vec![7; 256 << 10]));
    assert!(finished.poll_write_chunk(&mut chunk, Waker::noop()).is_ready());
    finished.finish().unwrap();
    // All that the peer allows.
    let others: Vec<_> = (1..BIDI_STREAMS_MAX).map(|_| open(connection, Dir::Bi)).collect();
    let mut opening = connection.open(Dir::Bi);
    vec![
        Waiter::new("a client", |waker| words(world.failing.poll_accept(waker))),
        Waiter::new("a handshake", move |waker| {
            let _keep = &nobody;
            words(begun.poll_connected(waker))
        }),
        Waiter::new("the end", |waker| connection.poll_closed(waker).map(|closed| closed.to_string())),
        Waiter::new("a stream of ours", move |waker| {
            let _keep = &others;
            words(opening.poll(waker))
        }),
        Waiter::new("a stream of the peer", |waker| words(connection.poll_accept_bi(waker))),
        Waiter::new("a one-way stream", |waker| words(connection.poll_accept_uni(waker))),
        Waiter::new("a datagram", |waker| words(connection.poll_recv_datagram(waker))),
        Waiter::new("room to write", move |waker| fill(&mut writing, waker)),
        Waiter::new("bytes to read", move |waker| words(reading.poll_ready(waker))),
        Waiter::new("acknowledgement", move |waker| words(finished.poll_acknowledged(waker))),
    ]
}

/// The same for a connection of messages.
fn waiters_for_messages(connection: &ConnectionHandle) -> Vec<Waiter<'_>> {
    let mut message = None;
    let mut push = move |waker: &Waker| {
        loop {
            message.get_or_insert_with(|| Bytes::from(vec![7; 1 << 20]));
            match connection.poll_send_message(&mut message, waker) {
                Poll::Ready(Ok(())) => {}
                polled => return words(polled),
            }
        }
    };
    vec![
        Waiter::new("room for a message", move |waker| push(waker)),
        Waiter::new("messages to arrive", |waker| words(connection.poll_messages_flushed(waker))),
        Waiter::new("a message", |waker| words(connection.poll_get_message(waker))),
    ]
}

/// Lets the driver panic by `strike` while everybody waits.
fn everybody_is_told(strike: impl Fn(&World, &ConnectionHandle)) {
    let world = World::new(config(), Faults::default());
    let (streams, _streams_peer) = World::connect(&world.failing, &world.peer);
    let (accepted_peer, accepted) = World::connect(&world.peer, &world.failing);
    let (messages, _messages_peer) = World::connect(&world.failing, &world.peer);
    let mut waiters = waiters_for_streams(&world, &streams);
    waiters.extend(waiters_for_messages(&messages));
    waiters.push(Waiter::new("the end of another", |waker| accepted.poll_closed(waker).map(|why| why.to_string())));
    let blocked = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| wait(&world.failing, |waker| streams.poll_closed(waker)));
        strike(&world, &streams);
        for waiter in waiters {
            let name = waiter.name;
            assert_eq!(waiter.told(), Closed::EndpointClosed.to_string(), "{name}");
        }
        blocked.join().unwrap()
    });
    assert_eq!(blocked, Closed::EndpointClosed);
    // Nor does anybody wait who comes later.
    for connection in [&streams, &messages, &accepted] {
        assert_eq!(connection.closed(), Some(Closed::EndpointClosed));
        assert_eq!(connection.stats().map(|_| ()), None);
        assert!(connection.export_keying_material(b"label", b"", &mut [0; 8]).is_err());
        assert!(connection.send_datagram(Bytes::from_static(b"late")).is_err());
        let late = words(connection.open(Dir::Bi).poll(Waker::noop()));
        assert_eq!(late, Poll::Ready(Closed::EndpointClosed.to_string()));
    }
    let late = world.failing.connect(world.peer.local_addrs()[0], "peer", factory(Side::Client));
    assert_eq!(late.map(|_| ()), Err(Closed::EndpointClosed));
    assert!(world.failing.poll_accept(Waker::noop()).is_ready());
    world.failing.stop();
    world.failing.stop();
    // The peer is another engine and goes on.
    assert_eq!(accepted_peer.closed(), None);
    world.peer.stop();
    assert_eq!(accepted_peer.closed(), Some(Closed::EndpointClosed));
}

#[test]
fn a_panic_while_receiving_is_told_to_everybody_who_waits() {
    everybody_is_told(|world, _| {
        world.faults.panic_in_recv.store(true, Ordering::SeqCst);
        world.disturb();
    });
}

#[test]
fn a_panic_while_sending_is_told_to_everybody_who_waits() {
    everybody_is_told(|world, connection| {
        world.faults.panic_in_send.store(true, Ordering::SeqCst);
        connection.send_datagram(Bytes::from_static(b"the last one")).unwrap();
    });
}

#[test]
fn a_session_that_panics_as_it_begins_is_told_to_its_caller() {
    let world = World::new(config(), Faults::default());
    let fragile = Arc::new(Fragile { in_start: true, in_export: false });
    let begun = world.failing.connect(world.peer.local_addrs()[0], "peer", fragile).unwrap();
    let connected = wait(&world.failing, |waker| begun.poll_connected(waker));
    assert_eq!(connected, Err(Closed::EndpointClosed));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a call that waits without end needs a thread that may be left behind")]
fn a_session_that_panics_in_an_answer_is_told_to_who_asked() {
    let world = World::new(config(), Faults::default());
    let fragile = Arc::new(Fragile { in_start: false, in_export: true });
    let ours = world.failing.connect(world.peer.local_addrs()[0], "peer", fragile).unwrap();
    wait(&world.failing, |waker| ours.poll_connected(waker)).unwrap();
    let (sender, asked) = channel();
    let connection = ours.clone();
    std::thread::spawn(move || sender.send(connection.export_keying_material(b"label", b"", &mut [0; 8])));
    let asked = asked.recv_timeout(PATIENCE).expect("who asked hangs");
    assert!(asked.is_err());
    assert_eq!(wait(&world.failing, |waker| ours.poll_closed(waker)), Closed::ProcessorGone);
}

#[test]
fn a_connection_that_breaks_takes_no_other_along() {
    let world = World::new(config(), Faults::default());
    let (others, others_there) = World::connect(&world.failing, &world.peer);
    for _ in 0..3 {
        let fragile = Arc::new(Fragile { in_start: false, in_export: true });
        let breaks = world.failing.connect(world.peer.local_addrs()[0], "peer", fragile).unwrap();
        wait(&world.failing, |waker| breaks.poll_connected(waker)).unwrap();
        let (mut writing, _) = open(&breaks, Dir::Uni);
        assert!(breaks.export_keying_material(b"label", b"", &mut [0; 8]).is_err());
        assert_eq!(wait(&world.failing, |waker| breaks.poll_closed(waker)), Closed::ProcessorGone);
        assert!(wait(&world.failing, |waker| writing.poll_write(b"late", waker)).is_err());
        // The others notice nothing.
        let (mut send, _) = open(&others, Dir::Uni);
        assert!(wait(&world.failing, |waker| send.poll_write(&[7; 1000], waker)).is_ok());
        send.finish().unwrap();
        let mut recv = wait(&world.peer, |waker| others_there.poll_accept_uni(waker)).unwrap();
        let mut len = 0;
        while wait(&world.peer, |waker| recv.poll_ready(waker)).unwrap() {
            len += std::mem::take(recv.front_mut()).len();
        }
        assert_eq!(len, 1000);
    }
    assert_eq!(world.failing.connection_count(), 1);
}

#[test]
fn a_socket_that_refuses_is_tried_seldom_and_nothing_is_lost() {
    const LEN: usize = 10_000;
    let world = World::new(config(), Faults::default());
    let (ours, theirs) = World::connect(&world.failing, &world.peer);
    let (mut send, _) = open(&ours, Dir::Uni);
    pause(&world.failing, Duration::from_millis(50));
    world.faults.refuse_send.store(true, Ordering::SeqCst);
    let before = world.faults.flushes.load(Ordering::SeqCst);
    assert!(send.poll_write(&[7; LEN], Waker::noop()).is_ready());
    send.finish().unwrap();
    pause(&world.failing, Duration::from_millis(500));
    // It waits 5 ms, then twice as long each time; a turn for each, and for the timers of recovery.
    let turns = world.faults.flushes.load(Ordering::SeqCst) - before;
    assert!((2..100).contains(&turns), "{turns} turns");
    world.faults.refuse_send.store(false, Ordering::SeqCst);
    let mut recv = wait(&world.peer, |waker| theirs.poll_accept_uni(waker)).unwrap();
    let mut len = 0;
    while wait(&world.peer, |waker| recv.poll_ready(waker)).unwrap() {
        len += std::mem::take(recv.front_mut()).len();
    }
    assert_eq!(len, LEN);
}

#[test]
fn a_wait_that_ends_with_nothing_to_send_is_over() {
    let world = World::new(config(), Faults::default());
    let (ours, _theirs) = World::connect(&world.failing, &world.peer);
    pause(&world.failing, Duration::from_millis(50));
    world.faults.refuse_send.store(true, Ordering::SeqCst);
    ours.send_datagram(Bytes::from_static(b"refused, and not to be repeated")).unwrap();
    pause(&world.failing, Duration::from_millis(2));
    world.faults.refuse_send.store(false, Ordering::SeqCst);
    let before = world.faults.flushes.load(Ordering::SeqCst);
    pause(&world.failing, Duration::from_millis(300));
    let turns = world.faults.flushes.load(Ordering::SeqCst) - before;
    assert!(turns < 100, "{turns} turns");
}

#[test]
fn a_goodbye_that_is_refused_leaves_a_little_later() {
    let world = World::new(config(), Faults::default());
    let (ours, theirs) = World::connect(&world.failing, &world.peer);
    // Not for a time: a connection that ends repeats its goodbye for three probe timeouts only, some 80 ms here.
    world.faults.refusals_left.store(2, Ordering::SeqCst);
    ours.send_datagram(Bytes::from_static(b"refused")).unwrap();
    world.failing.stop();
    assert_eq!(world.faults.refusals_left.load(Ordering::SeqCst), 0);
    let closed = wait(&world.peer, |waker| theirs.poll_closed(waker));
    assert!(!matches!(closed, Closed::TimedOut), "{closed}");
}

#[test]
fn a_socket_that_never_receives_is_left_alone_between_arrivals() {
    let faults = Faults { fail_recv: AtomicBool::new(true), ..Faults::default() };
    let world = World::new(config(), faults);
    world.expect_recv_calls(RECV_ERRORS_MAX);
    // Each arrival is worth one more look.
    for arrival in 1..=5 {
        world.faults.arrivals.get().unwrap().wake_by_ref();
        world.expect_recv_calls(RECV_ERRORS_MAX + arrival);
    }
}

#[test]
fn a_connection_over_a_socket_that_never_receives_ends_in_time() {
    let faults = Faults { fail_recv: AtomicBool::new(true), ..Faults::default() };
    let world = World::new(EngineConfig { handshake_timeout: Duration::from_millis(300), ..config() }, faults);
    let connection = world.failing.connect(world.peer.local_addrs()[0], "peer", factory(Side::Client)).unwrap();
    let closed = wait(&world.failing, |waker| connection.poll_closed(waker));
    assert_eq!(closed, Closed::HandshakeTimedOut { last_send_error: None });
    // What the peer answered was worth a look each, and there was no spinning in between.
    let calls = world.recv_calls();
    assert!((RECV_ERRORS_MAX..RECV_ERRORS_MAX + 100).contains(&calls), "{calls} calls");
}

#[test]
fn a_socket_that_recovers_is_used_again_and_forgiven() {
    let faults = Faults { fail_recv: AtomicBool::new(true), ..Faults::default() };
    let world = World::new(config(), faults);
    world.expect_recv_calls(RECV_ERRORS_MAX);
    world.faults.fail_recv.store(false, Ordering::SeqCst);
    let (ours, theirs) = World::connect(&world.peer, &world.failing);
    theirs.send_datagram(Bytes::from_static(b"hello")).unwrap();
    let datagram = wait(&world.peer, |waker| ours.poll_recv_datagram(waker)).unwrap();
    assert_eq!(datagram, b"hello"[..]);
    // Errors count from zero again. The peer is silenced first, so that nothing else arrives.
    world.peer.stop();
    wait(&world.failing, |waker| theirs.poll_closed(waker));
    pause(&world.failing, Duration::from_millis(50));
    world.faults.fail_recv.store(true, Ordering::SeqCst);
    let before = world.recv_calls();
    world.disturb();
    world.expect_recv_calls(before + RECV_ERRORS_MAX);
}

#[test]
fn an_engine_that_is_stopped_in_the_middle_of_a_turn_ends() {
    const ROUNDS: usize = 1000;
    let network = MemoryNetwork::new();
    let mut noisy = bind(&network);
    for _ in 0..ROUNDS {
        // Without a connection: it has no timer that would end a wait.
        let engine = Engine::start(config(), vec![Box::new(bind(&network))]).unwrap();
        let transmit = Transmit {
            destination: engine.local_addrs()[0],
            source_ip: None,
            ecn: None,
            contents: b"noise",
            segment_size: None,
        };
        // Each datagram is a turn.
        (0..3).for_each(|_| noisy.send(&transmit).unwrap());
        let (ends, ended) = std::sync::mpsc::channel::<std::convert::Infallible>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                engine.stop();
                drop(ends);
            });
            let timeout = ended.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if timeout {
                // Another turn ends it.
                noisy.send(&transmit).unwrap();
            }
            assert!(!timeout, "it sleeps though it was stopped");
        });
    }
}
