//! Calls of a real program, bash, that a test answers.
#![expect(clippy::disallowed_methods, reason = "the tests are the kernel's sockets and threads")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use intercept::{Call, Listener, Syscall, sockaddr, spawn};
use rustix::io::Errno;

/// A program that connects to an address where no host is (RFC 5737), and copies what it receives.
const CONNECTS: &str = "exec 3<>/dev/tcp/192.0.2.1/80 && cat <&3";

fn start(script: &str) -> (Child, Listener) {
    let mut command = Command::new("bash");
    // Without this variable, the shell looks up the user, which makes a separate call of connect.
    command.env_remove("SHELL");
    command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command, &Syscall::ALL).expect("a filter")
}

/// Returns the next call that connects to an IP address, and the address; other calls are left to
/// the kernel, such as those to the UNIX socket of the name service daemon.
fn connects(listener: &Listener) -> Option<(Call, SocketAddr)> {
    loop {
        let call = listener.receive().expect("it works")?;
        let address = match call.syscall() {
            Syscall::Connect => address_of(&call),
            _ => None,
        };
        match address {
            Some(address) => return Some((call, address)),
            None => call.let_through(),
        }
    }
}

fn address_of(call: &Call) -> Option<SocketAddr> {
    let bytes = call.with_caller(|caller| {
        let mut bytes = vec![0; call.argument(2) as usize];
        caller.read(call.argument(1), &mut bytes)?;
        Ok(bytes)
    });
    sockaddr::parse(&bytes.expect("it waits"))
}

fn finish(child: Child, listener: &Listener) -> (String, String) {
    assert!(connects(listener).is_none(), "no other call");
    let output = child.wait_with_output().expect("it ends");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text")).into()
}

#[test]
fn a_socket_of_the_program_is_connected_to_another_address() {
    let (child, listener) = start(CONNECTS);
    let (call, address) = connects(&listener).expect("a call");
    assert_eq!(address, ([192, 0, 2, 1], 80).into());
    let mut bytes = [0; 16];
    call.read(call.argument(1), &mut bytes).expect("it waits");
    assert_eq!(sockaddr::parse(&bytes), Some(address));
    assert!(call.read(1, &mut bytes).is_err() && call.glance(1, &mut bytes).is_err(), "no memory is there");
    let mut same = [0; 16];
    call.glance(call.argument(1), &mut same).expect("it waits");
    assert_eq!(same, bytes);
    let here = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = here.local_addr().expect("an address");
    assert!(call.descriptor(u64::from(u32::MAX)).is_err(), "no descriptor has this number");
    let socket = call.descriptor(call.argument(0)).expect("it waits");
    call.answer(rustix::net::connect(&socket, &address).map(|()| 0));
    drop(socket);
    let (mut stream, _) = here.accept().expect("the program");
    stream.write_all(b"hello").expect("connected");
    drop(stream);
    assert_eq!(finish(child, &listener).0, "hello");
}

#[test]
fn the_program_gets_the_error_that_the_supervisor_gives() {
    let errors = [(Some(Errno::CONNREFUSED), "Connection refused"), (None, "Software caused connection abort")];
    for (error, text) in errors {
        let (child, listener) = start(CONNECTS);
        let (call, _) = connects(&listener).expect("a call");
        match error {
            Some(error) => call.answer(Err(error)),
            None => drop(call),
        }
        let (_, shown) = finish(child, &listener);
        assert!(shown.contains(text), "{shown}");
    }
}

#[test]
fn a_call_that_is_let_through_is_the_kernels_and_children_are_seen_too() {
    let here = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = here.local_addr().expect("an address").port();
    // A child of a child, which outlives its parents.
    let script = format!("(sleep 0.2; exec 3<>/dev/tcp/127.0.0.1/{port} && cat >&2 <&3) & disown");
    let (child, listener) = start(&script);
    let (call, address) = connects(&listener).expect("a call");
    assert_eq!(address.port(), port);
    call.let_through();
    let (mut stream, _) = here.accept().expect("the program");
    stream.write_all(b"through").expect("connected");
    drop(stream);
    assert_eq!(finish(child, &listener).1, "through");
}

#[test]
fn a_caller_that_was_killed_is_not_looked_at() {
    let (mut child, listener) = start(CONNECTS);
    let (call, _) = connects(&listener).expect("a call");
    child.kill().expect("it runs");
    let mut rest = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut rest).expect("the end");
    child.wait().expect("it ends");
    assert!(call.with_caller(|_| Ok(())).is_err());
    assert!(call.read(call.argument(1), &mut [0; 2]).is_err() && call.descriptor(call.argument(0)).is_err());
    call.answer(Ok(0));
    assert!(connects(&listener).is_none());
}

/// Returns the filters of this thread, and whether it may gain privileges.
fn state() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("the thread's state");
    let is_wanted = |line: &&str| ["Seccomp", "NoNewPrivs"].iter().any(|name| line.starts_with(name));
    status.lines().filter(is_wanted).map(str::to_owned).collect()
}

#[test]
fn the_filter_is_the_programs_and_the_listener_is_not() {
    let before = state();
    assert!(before.len() > 1, "{before:?}");
    let script = "for each in /proc/self/fd/*; do readlink \"$each\"; done; grep NoNewPrivs /proc/self/status";
    let (child, listener) = start(script);
    assert_eq!(state(), before);
    let (output, errors) = finish(child, &listener);
    assert!(output.contains("pipe:") && output.ends_with("NoNewPrivs:\t1\n"), "{output} {errors}");
    assert!(!output.contains("seccomp"), "{output}");
    // This thread connects as always.
    let here = TcpListener::bind("127.0.0.1:0").expect("a port");
    std::net::TcpStream::connect(here.local_addr().expect("an address")).expect("it listens");
}

#[test]
fn threads_of_a_program_have_their_descriptors() {
    // The first thread waits meanwhile.
    let script = "exec python3 -c '
import socket, threading
def connect():
    s = socket.socket()
    s.connect((\"192.0.2.1\", 80))
    print(s.recv(9).decode(), end=\"\")
thread = threading.Thread(target=connect)
thread.start()
thread.join()'";
    let (child, listener) = start(script);
    let (call, _) = connects(&listener).expect("a call");
    let here = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = here.local_addr().expect("an address");
    let sockets = [
        call.descriptor(call.argument(0)).expect("it waits"),
        call.with_caller(|caller| caller.descriptor(call.argument(0))).expect("it waits"),
    ];
    rustix::net::connect(&sockets[0], &address).expect("it listens");
    // Both are the same one.
    assert_eq!(rustix::net::connect(&sockets[1], &address), Err(Errno::ISCONN));
    call.answer(Ok(0));
    let (mut stream, _) = here.accept().expect("the program");
    stream.write_all(b"hello").expect("connected");
    drop((stream, sockets));
    assert_eq!(finish(child, &listener).0, "hello");
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let error = spawn(Command::new("/nonexistent/program"), &Syscall::ALL).expect_err("no program");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
