//! The thread of the first driver calls an event handler.
#![expect(clippy::disallowed_methods, reason = "the tests compare the threads of calls")]

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use engine::{EventHandler, Placement};
use net::MemoryNetwork;
use quic_endpoint::runtime::{Engine, EngineConfig};

/// Long for a wake-up, on any machine.
const WAKE_UP_MAX: Duration = Duration::from_secs(30);

/// The data that were read in a call, and the thread of the call.
type Call = (Vec<u8>, ThreadId);

/// Reads from a socket, and tells what and where.
#[derive(Debug)]
struct Reader {
    socket: UnixStream,
    calls: Mutex<Sender<Call>>,
    is_due: AtomicBool,
}

impl EventHandler for Reader {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn is_due(&self) -> bool {
        self.is_due.load(Ordering::SeqCst)
    }

    fn handle_event(&self) {
        self.is_due.store(false, Ordering::SeqCst);
        let mut read = vec![0; 100];
        // Nothing, if it was due without an event.
        let count = (&self.socket).read(&mut read).unwrap_or(0);
        read.truncate(count);
        if read == b"again" {
            self.is_due.store(true, Ordering::SeqCst);
        }
        // The test may have ended.
        let _told = self.calls.lock().unwrap().send((read, std::thread::current().id()));
    }
}

fn reader() -> (Arc<Reader>, UnixStream, Receiver<Call>) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let (calls, told) = channel();
    (Arc::new(Reader { socket: near, calls: Mutex::new(calls), is_due: AtomicBool::new(false) }), far, told)
}

fn start(placement: Placement, reader: &Arc<Reader>) -> Result<Engine, engine::StartError> {
    let network = MemoryNetwork::new();
    let socket = || {
        Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap()) as Box<dyn quic_endpoint::runtime::LiveSocket>
    };
    let handler: Arc<dyn EventHandler> = Arc::clone(reader) as _;
    let config = EngineConfig { placement, event_handler: Some(handler), ..EngineConfig::default() };
    Engine::start(config, (0..placement.driver_count()).map(|_| socket()).collect())
}

#[test]
fn one_thread_of_an_idle_engine_calls_the_handler_for_each_event() {
    for placement in [Placement::Thread, Placement::Connection(2)] {
        let (reader, mut far, told) = reader();
        let engine = start(placement, &reader).unwrap();
        let mut threads = Vec::new();
        for text in ["one", "two", "three"] {
            far.write_all(text.as_bytes()).unwrap();
            let (read, thread) = told.recv_timeout(WAKE_UP_MAX).unwrap();
            assert_eq!(read, text.as_bytes(), "{placement}");
            threads.push(thread);
        }
        assert!(threads.iter().all(|thread| *thread == threads[0] && *thread != std::thread::current().id()));
        engine.stop();
    }
}

#[test]
fn a_handler_that_is_due_is_called_without_an_event() {
    let (reader, mut far, told) = reader();
    let engine = start(Placement::Thread, &reader).unwrap();
    far.write_all(b"again").unwrap();
    assert_eq!(told.recv_timeout(WAKE_UP_MAX).unwrap().0, b"again");
    assert_eq!(told.recv_timeout(WAKE_UP_MAX).unwrap().0, b"", "a second call");
    engine.stop();
    assert!(told.try_recv().is_err(), "no third one");
}

#[test]
fn without_a_thread_there_is_no_handler() {
    let (reader, _far, _told) = reader();
    let Err(error) = start(Placement::Inline, &reader) else { panic!("it started") };
    assert!(error.to_string().contains("event handler"), "{error}");
}
