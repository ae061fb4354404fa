//! `litz run --publish` through a daemon: far programs reach servers of the near host.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::daemon::{Daemon, wait_for_output};
use super::run::{World, assert_prints, texts};
use super::*;

/// The port of the far host's loopback that programs publish.
pub(super) const PORT: &str = "8080";

/// A daemon of hosts with python3. None without root.
fn daemon() -> Option<Daemon> {
    World::new().map(Daemon::of)
}

/// Starts a program with a published port, and waits for a line that it prints.
pub(super) fn publish(daemon: &Daemon, place: &str, program: &[&str]) -> Child {
    let mut command = daemon.command_with(&["--publish", place], program);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    wait_for_output(&mut child, "ready\n".len());
    child
}

/// Ends a program: `litz run` passes the signal on.
pub(super) fn end(program: &mut Child) {
    let status = Command::new("kill").arg(program.id().to_string()).status().expect("kill runs");
    assert!(status.success());
    program.wait().expect("it was started");
}

/// A connection of a far program to the published port.
pub(super) fn dial(world: &World) -> std::io::Result<TcpStream> {
    let stream = world.far.inside(|| TcpStream::connect(("127.0.0.1", 8080)))?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    Ok(stream)
}

/// Tries again until there is a result.
fn until<T>(what: &str, attempt: impl Fn() -> Option<T>) -> T {
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 0..TEST_TIMEOUT.as_millis() / PAUSE.as_millis() {
        if let Some(result) = attempt() {
            return result;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{what}: not in time");
}

/// Sends back what it gets, after the address that it believes to be its client's.
pub(super) const ECHO: &str = "
import asyncio
async def serve(reader, writer):
    data = await reader.read()
    host, port = writer.get_extra_info('peername')[:2]
    writer.write(f'{host}:{port} '.encode() + data)
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '0.0.0.0', 8080, backlog=100)
    print('ready', flush=True)
    await server.serve_forever()
asyncio.run(main())";

/// Sends data, and expects them with the own address.
pub(super) fn assert_served(stream: TcpStream, len: usize, seed: u64) {
    let bytes = random(len, seed);
    let own = stream.local_addr().expect("a socket");
    let answer = exchange(stream, &bytes).expect("an answer");
    assert!(answer == [format!("{own} ").as_bytes(), &bytes].concat(), "{} bytes of {len}", answer.len());
}

#[test]
fn far_clients_reach_a_server_of_asyncio_and_its_end_frees_the_port() {
    let Some(daemon) = daemon() else { return };
    for round in 0..2 {
        let mut server = publish(&daemon, PORT, &["python3", "-c", ECHO]);
        let streams: Vec<TcpStream> = (0..80).map(|_| dial(&daemon.world).expect("the far host listens")).collect();
        let threads: Vec<_> = (round * 80..)
            .zip(streams)
            .map(|(seed, stream)| std::thread::spawn(move || assert_served(stream, 100_000, seed)))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("its data come back"));
        let status = daemon.status();
        assert_eq!(status["programs"][0]["published"], serde_json::json!(["localhost:8080"]), "{status:#}");
        // The next round publishes the same port at once.
        end(&mut server);
    }
    until("the port is closed", || dial(&daemon.world).err());
    assert!(daemon.ask("stop").status.success());
}

#[test]
fn what_a_program_does_not_accept_is_reset_and_other_ports_are_refused() {
    let Some(daemon) = daemon() else { return };
    let mut program = publish(&daemon, PORT, &["bash", "-c", "echo ready; read -r"]);
    let error = dial(&daemon.world).and_then(|mut stream| stream.read(&mut [0]));
    assert_eq!(error.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionReset));
    let _taken = daemon.world.far.inside(|| TcpListener::bind("127.0.0.1:8085")).expect("no program has it");
    // The far host allows 8080 to 8089, on its loopback.
    for (place, reason) in [
        ("9000", "--permit-listen"),
        ("*:8081", "--permit-listen"),
        ("8080", "publishes localhost:8080 already"),
        ("8085", "another program of the server's host has this port: choose another one)"),
    ] {
        let output = daemon.command_with(&["--publish", place], &["echo", "started"]).output().expect("it starts");
        let (status, output, errors) = texts(output);
        assert!(status == 125 && output.is_empty() && errors.contains(reason), "{status} {output} {errors}");
    }
    let output = daemon.command_with(&["--publish", "0"], &["true"]).output().expect("it starts");
    assert!(texts(output).2.contains("same port"));
    drop(program.stdin.take());
    program.wait().expect("it ends");
}

/// Sends back each byte, and says how the connection ends.
const BYTES: &str = "
import socket, sys
s = socket.create_server(('0.0.0.0', 8080))
print('ready', flush=True)
while True:
    c, peer = s.accept()
    try:
        while data := c.recv(1):
            c.sendall(data)
        print('ended', flush=True)
    except ConnectionResetError:
        print('reset', flush=True)
    c.close()";

/// Exchanges a byte.
fn ping(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])
}

/// A new connection that works.
fn connected(daemon: &Daemon) -> TcpStream {
    until("a far client is served", || {
        let mut stream = dial(&daemon.world).ok()?;
        ping(&mut stream).ok().map(|()| stream)
    })
}

#[test]
fn a_daemon_that_is_killed_resets_arrivals_and_another_one_publishes_again() {
    let Some(mut daemon) = daemon() else { return };
    let mut server = publish(&daemon, PORT, &["python3", "-c", BYTES]);
    let mut stream = connected(&daemon);
    daemon.process.kill();
    wait_for_output(&mut server, "reset\n".len());
    // The far host learns of it after its idle timeout.
    let error = stream.read(&mut [0]).expect_err("a connection that was lost is reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    daemon.process = Daemon::start(&daemon.world, &daemon.socket);
    drop(connected(&daemon));
    end(&mut server);
}

#[test]
fn a_server_that_is_started_again_listens_again() {
    let Some(world) = World::with(&[], &["--listen=:4433"], |_, _| {}) else { return };
    let mut daemon = Daemon::of(world);
    let mut server = publish(&daemon, PORT, &["python3", "-c", BYTES]);
    let mut stream = connected(&daemon);
    let Daemon { world, process, .. } = &mut daemon;
    world.restart(|| drop(process.wait_for("retrying")));
    wait_for_output(&mut server, "reset\n".len());
    assert!(ping(&mut stream).is_err());
    drop(connected(&daemon));
    end(&mut server);
}

/// A program that asks the daemon itself, with the far host's answers from a far program that it does not see.
const ASKS: &str = "
import array, os, socket, sys
socket.setdefaulttimeout(60)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1])
def ask(message):
    s.send(b'\\x01' + message)
    return answer()
def answer():
    message, control, _, _ = s.recvmsg(1000, 100)
    fds = [fd for _, _, data in control for fd in array.array('i', data)]
    return message, [socket.socket(fileno=fd) for fd in fds]
def place(port, protocol=1):
    return bytes([protocol, 0]) + port.to_bytes(2, 'big')
assert ask(b'\\x01mine') == (b'\\x01\\x81', [])
# What is not published: UDP, a port that the far host does not allow.
assert ask(b'\\x08\\0\\0\\0\\1\\1' + place(8081, 2))[0][:7] == b'\\x01\\x84\\0\\0\\0\\1\\x09'
assert ask(b'\\x08\\0\\0\\0\\1\\1' + place(9000))[0][:7] == b'\\x01\\x84\\0\\0\\0\\1\\x02'
# A socket comes with each arrival.
assert ask(b'\\x08\\0\\0\\0\\1\\1' + place(8080)) == (b'\\x01\\x89\\0\\0\\0\\1' + place(8080), [])
print('ready', flush=True)
message, [c] = answer()
assert message[:6] == b'\\x01\\x8a\\0\\0\\0\\1' and message[6] >= 0x80 and len(message) == 17, message
data = b''.join(iter(lambda: c.recv(65536), b''))
c.sendall(data)
c.close()
number, count = message[6:10], len(data).to_bytes(8, 'big')
assert answer() == (b'\\x01\\x85' + number + count + count, [])
# A publication that is cancelled is gone when that is answered, so that it can be had again.
assert ask(b'\\x04\\0\\0\\0\\1')[0][:6] == b'\\x01\\x84\\0\\0\\0\\1'
assert ask(b'\\x08\\0\\0\\0\\1\\0' + place(8080)) == (b'\\x01\\x89\\0\\0\\0\\1' + place(8080), [])
print('ready', flush=True)
message, fds = answer()
assert message[1] == 0x8a and fds == []
number = message[6:10]
# It is declined; a second answer about it means nothing.
assert ask(b'\\x09' + number + b'\\x03no') == (b'\\x01\\x84' + number + b'\\x03no', [])
r, w = os.pipe()
s.sendmsg([b'\\x01\\x03' + number], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [w]))])
os.close(w)
assert os.read(r, 1) == b''
# A pipe is no socket.
message, _ = answer()
r, w = os.pipe()
s.sendmsg([b'\\x01\\x03' + message[6:10]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [w]))])
message, _ = answer()
assert message[1] == 0x84, message
# More than a program may publish.
taken = [ask(b'\\x08' + number.to_bytes(4, 'big') + b'\\1' + place(8070 + number))[0] for number in range(11, 20)]
assert all(message[1] == 0x89 for message in taken), taken
for number in range(20, 26):
    s.send(b'\\x01\\x08' + number.to_bytes(4, 'big') + b'\\1' + place(8080))
# Six of them wait for the place of the first one; with that one and nine others they are sixteen.
assert ask(b'\\x08\\0\\0\\0\\x63\\1' + place(8089))[0][:7] == b'\\x01\\x84\\0\\0\\0\\x63\\x08'
# A number of the daemon is none that a program may choose.
s.send(b'\\x01\\x08\\x80\\0\\0\\1\\1' + place(8081))
while s.recv(1000):
    pass
print('good')";

#[test]
fn a_program_may_publish_by_itself_within_bounds() {
    let Some(daemon) = daemon() else { return };
    let mut command = Command::new("python3");
    command.args(["-c", ASKS]).arg(&daemon.socket).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().expect("it starts");
    wait_for_output(&mut program, "ready\n".len());
    assert_echo(dial(&daemon.world).expect("the far host listens"), 300_000, 1);
    wait_for_output(&mut program, "ready\n".len());
    // One is declined, and the socket for the other one is no socket.
    for _ in 0..2 {
        let mut stream = dial(&daemon.world).expect("the far host listens");
        assert!(stream.read(&mut [0]).is_err());
    }
    assert_prints(texts(program.wait_with_output().expect("it ends")), "good\n");
    until("the port is closed", || dial(&daemon.world).err());
}
