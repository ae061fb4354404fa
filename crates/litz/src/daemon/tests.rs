//! Daemons that pass memory, do not support rings, have no memory left, or end.
#![expect(clippy::disallowed_methods, reason = "stands for a daemon, and for the kernel's connections")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use forward::daemon::{MESSAGE_LEN_MAX, Reply, Request, SocketFrom};
use forward::message::{Failure, Reason};
use rings::packets;
use rings::ring::Reset;
use rustix::net::{SocketAddrUnix, SocketFlags, accept, bind, listen};
use tempfile::TempDir;

use super::{Daemon, UNANSWERED_MAX};

/// Place at which a daemon listens.
struct Place {
    listener: OwnedFd,
    path: PathBuf,
    _folder: TempDir,
}

/// A program from the daemon's point of view.
struct Program(OwnedFd);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, listener) = (folder.path().join("s"), packets::new_socket(SocketFlags::empty()).unwrap());
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        Self { listener, path, _folder: folder }
    }

    fn connect(&self) -> io::Result<Daemon> {
        Daemon::connect(&self.path, "test")
    }

    /// Accepts the next program like a daemon that does not support rings: to it, a request for
    /// them is malformed.
    fn welcome_by_old_daemon(&self) -> Program {
        for _ in 0..UNANSWERED_MAX {
            self.welcome().connect(SocketFrom::Rings);
        }
        self.welcome()
    }

    /// Accepts the next program.
    fn welcome(&self) -> Program {
        let program = Program(accept(&self.listener).unwrap());
        assert!(matches!(program.request(), Some(Request::Hello { program }) if program.as_str() == "test"));
        program.reply(&Reply::Accepted, &[]);
        program
    }
}

impl Program {
    fn request(&self) -> Option<Request> {
        let mut buffer = vec![0; MESSAGE_LEN_MAX];
        let (len, descriptors) = packets::receive(self.0.as_fd(), &mut buffer, 0).unwrap();
        assert!(descriptors.is_empty());
        (len > 0).then(|| Request::decode(&buffer[..len]).unwrap())
    }

    /// Returns the number of the next request, which must be one for a connection.
    fn connect(&self, expected: SocketFrom) -> u32 {
        match self.request() {
            Some(Request::Connect { number, socket, .. }) if socket == expected => number,
            other => panic!("{other:?}"),
        }
    }

    fn reply(&self, reply: &Reply, descriptors: &[OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        packets::send(self.0.as_fd(), &reply.encode(), &descriptors).unwrap();
    }

    /// Passes a socket, and returns the other end.
    fn pass_socket(&self, number: u32) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        self.reply(&Reply::Connected { number, local: None }, &[theirs.into()]);
        listener.accept().unwrap().0
    }

    /// Passes rings, and returns the other end.
    fn pass_rings(&self, number: u32) -> (rings::Reader, rings::Writer) {
        let (end, passed) = rings::ends::create(rings::memory::RING_LEN_MIN).unwrap();
        self.reply(&Reply::Connected { number, local: None }, &passed);
        let (reader, writer) = (end.from_program, end.to_program);
        reader.1.set_nonblocking(false).unwrap();
        writer.1.set_nonblocking(false).unwrap();
        (rings::Reader::new(reader.0, reader.1), rings::Writer::new(writer.0, writer.1))
    }
}

fn failed(number: u32, reason: Reason) -> Reply {
    Reply::Failed { number, failure: Failure::new(reason, "as the test wants") }
}

/// Runs a daemon and a program in parallel. Returns what both return.
fn run_both<D: Send, P>(daemon: impl FnOnce(&Place) -> D + Send, program: impl FnOnce(&Place) -> P) -> (D, P) {
    let place = Place::new();
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| daemon(&place));
        let result = program(&place);
        (daemon.join().unwrap(), result)
    })
}

#[test]
fn a_daemon_that_shares_memory_gets_and_gives_all_bytes() {
    let daemon = |place: &Place| {
        let program = place.welcome();
        let (mut reader, mut writer) = program.pass_rings(program.connect(SocketFrom::Rings));
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        writer.write_all(&all).unwrap();
        writer.finish();
        assert_eq!(program.request(), None, "the connection ends when the daemon is dropped");
    };
    run_both(daemon, |place| {
        let daemon = place.connect().unwrap();
        let stream = daemon.open("example:80").unwrap();
        assert!(stream.shares_memory());
        // Streams continue without it.
        drop(daemon);
        let (mut read, mut write) = stream.split();
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        write.write_all(&bytes).unwrap();
        write.finish().unwrap();
        let mut all = Vec::new();
        read.read_to_end(&mut all).unwrap();
        assert!(all == bytes);
    });
}

#[test]
fn a_daemon_that_knows_no_rings_is_asked_for_a_socket() {
    let daemon = |place: &Place| {
        let program = place.welcome_by_old_daemon();
        for _ in 0..2 {
            let mut socket = program.pass_socket(program.connect(SocketFrom::Daemon));
            socket.write_all(b"good day").unwrap();
        }
    };
    run_both(daemon, |place| {
        let daemon = place.connect().unwrap();
        for _ in 0..2 {
            let mut stream = daemon.open("example:80").unwrap();
            assert!(!stream.shares_memory());
            let mut words = String::new();
            stream.read_to_string(&mut words).unwrap();
            assert_eq!(words, "good day");
        }
    });
}

#[test]
fn a_daemon_that_is_started_again_while_it_is_asked_first_gives_rings() {
    let place = Place::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            place.welcome().connect(SocketFrom::Rings);
            let program = place.welcome();
            let (_reader, mut writer) = program.pass_rings(program.connect(SocketFrom::Rings));
            writer.finish();
            assert_eq!(program.request(), None);
        });
        let mut stream = place.connect().unwrap().open("example:80").unwrap();
        assert!(stream.shares_memory());
        assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
    });
}

#[test]
fn a_daemon_that_has_given_rings_is_asked_for_them_when_it_is_started_again() {
    let place = Place::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..=UNANSWERED_MAX {
                let program = place.welcome();
                let _rings = program.pass_rings(program.connect(SocketFrom::Rings));
                program.connect(SocketFrom::Rings);
            }
        });
        let daemon = place.connect().unwrap();
        for _ in 0..=UNANSWERED_MAX {
            assert!(daemon.open("example:80").unwrap().shares_memory());
            assert_eq!(daemon.open("example:80").unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn a_daemon_that_knows_rings_is_asked_for_them_after_one_that_does_not() {
    let place = Place::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let program = place.welcome_by_old_daemon();
            let _socket = program.pass_socket(program.connect(SocketFrom::Daemon));
            program.connect(SocketFrom::Daemon);
            drop(program);
            let program = place.welcome();
            let _rings = program.pass_rings(program.connect(SocketFrom::Rings));
            assert_eq!(program.request(), None);
        });
        let daemon = place.connect().unwrap();
        assert!(!daemon.open("example:80").unwrap().shares_memory());
        assert_eq!(daemon.open("example:80").unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(daemon.open("example:80").unwrap().shares_memory());
    });
}

#[test]
fn several_threads_of_a_program_get_sockets_of_a_daemon_that_knows_no_rings() {
    const THREADS: usize = 8;
    let place = Place::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let program = place.welcome_by_old_daemon();
            let _sockets: Vec<_> =
                (0..THREADS).map(|_| program.pass_socket(program.connect(SocketFrom::Daemon))).collect();
            assert_eq!(program.request(), None);
        });
        let daemon = place.connect().unwrap();
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| assert!(!daemon.open("example:80").unwrap().shares_memory()));
            }
        });
    });
}

#[test]
fn without_memory_to_share_the_stream_is_a_socket_and_it_is_reset_if_it_is_dropped_early() {
    let daemon = |place: &Place| {
        let program = place.welcome();
        let number = program.connect(SocketFrom::Rings);
        program.reply(&failed(number, Reason::Busy), &[]);
        let mut socket = program.pass_socket(program.connect(SocketFrom::Daemon));
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap_err().kind()
    };
    let (end, ()) = run_both(daemon, |place| {
        let mut stream = place.connect().unwrap().open("example:80").unwrap();
        assert!(!stream.shares_memory());
        stream.write_all(b"half").unwrap();
    });
    assert_eq!(end, ErrorKind::ConnectionReset);
}

#[test]
fn failures_have_their_kind_and_text() {
    let kinds = [
        (Reason::NotAllowed, ErrorKind::PermissionDenied),
        (Reason::Refused, ErrorKind::ConnectionRefused),
        (Reason::NameNotFound, ErrorKind::HostUnreachable),
        (Reason::Unknown, ErrorKind::Other),
    ];
    let daemon = |place: &Place| {
        let program = place.welcome();
        for (reason, _) in kinds {
            let number = program.connect(SocketFrom::Rings);
            program.reply(&failed(number, reason), &[]);
        }
    };
    run_both(daemon, |place| {
        let daemon = place.connect().unwrap();
        for (_, kind) in kinds {
            let error = daemon.open("/run/x").unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, "as the test wants"));
        }
        let daemon_less = Daemon::connect(&place.path.with_extension("other"), "test").unwrap_err();
        assert_eq!(daemon_less.kind(), ErrorKind::NotFound);
        assert!(daemon_less.to_string().contains("no daemon runs"), "{daemon_less}");
    });
}

#[test]
fn what_is_no_target_of_a_stream_is_not_asked_for() {
    let daemon = |place: &Place| assert_eq!(place.welcome().request(), None);
    run_both(daemon, |place| {
        let daemon = place.connect().unwrap();
        for target in ["", "host", "udp:host:53"] {
            assert_eq!(daemon.open(target).unwrap_err().kind(), ErrorKind::InvalidInput, "{target}");
        }
    });
}

#[test]
fn those_who_wait_learn_that_the_daemon_has_ended() {
    let daemon = |place: &Place| {
        let program = place.welcome();
        let rings = program.pass_rings(program.connect(SocketFrom::Rings));
        program.connect(SocketFrom::Rings);
        // The kernel closes everything, as when the daemon is killed.
        std::fs::remove_file(&place.path).unwrap();
        drop((program, rings));
    };
    let ((), errors) = run_both(daemon, |place| {
        let daemon = place.connect().unwrap();
        let mut stream = daemon.open("example:80").unwrap();
        let open = daemon.open("example:80").unwrap_err();
        let read = stream.read(&mut [0; 9]).unwrap_err();
        [open, read, stream.write_all(&vec![0; 1 << 20]).unwrap_err()]
    });
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
}

#[test]
fn a_program_that_has_broken_the_rules_is_told_so() {
    let daemon = |place: &Place| {
        let program = place.welcome();
        let number = program.connect(SocketFrom::Rings);
        let (mut end, passed) = rings::ends::create(rings::memory::RING_LEN_MIN).unwrap();
        program.reply(&Reply::Connected { number, local: None }, &passed);
        drop(passed);
        end.to_program.0.reset(Reset::Violated);
        drop(end);
        assert_eq!(program.request(), None, "the connection ends when the daemon is dropped");
    };
    let ((), read) = run_both(daemon, |place| place.connect().unwrap().open("example:80").unwrap().read(&mut [0; 9]));
    let error = read.unwrap_err();
    assert!(error.kind() == ErrorKind::ConnectionReset && error.to_string().contains("rules"), "{error}");
}
