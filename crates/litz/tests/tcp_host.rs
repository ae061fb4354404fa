//! Functions of a stack besides its connections, with the kernel as its peer. Skipped without root.
#![expect(clippy::disallowed_methods, reason = "stands for programs of the kernel's stack")]

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use litz::Placement;
use litz::tcp::{Connect, Count, Listen, Md5Key};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};
use wire::icmp::Message;

use crate::tcp_stack::{KERNEL, STACK, beside_kernel, beside_kernel_with, exchange};
use crate::world::pattern;

/// Sends an echo request from a raw socket of the kernel and returns the answer's data.
pub(crate) fn echo(to: IpAddr, from: IpAddr, data: &[u8]) -> Vec<u8> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = socket(family, SocketType::RAW, Some(protocol)).expect("root may");
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(60))).expect("a time");
    let mut request = Vec::new();
    Message::EchoRequest { id: 77, seq: 3, data }.emit(from, to, &mut request);
    sendto(&socket, &request, SendFlags::empty(), &SocketAddr::new(to, 0)).expect("sent");
    let mut buffer = vec![0; 65_536];
    loop {
        let (len, _) = recv(&socket, &mut buffer, RecvFlags::empty()).expect("an answer");
        // Over IPv4 with the IP header, over IPv6 without.
        let message = if to.is_ipv4() { &buffer[20..len] } else { &buffer[..len] };
        match Message::parse(to, from, message) {
            Ok(Message::EchoReply { id: 77, seq: 3, data }) => return data.to_vec(),
            // Neighbor discovery, and the request itself.
            _ => continue,
        }
    }
}

#[test]
fn the_kernel_and_the_stack_put_each_others_fragments_together() {
    beside_kernel(Placement::Thread, |stack| {
        for family in 0..2 {
            for len in [56, 1400, 3000, 20_000, 65_000] {
                let data = pattern(len, 1);
                assert!(echo(STACK[family], KERNEL[family], &data) == data, "{family} {len}");
            }
            // A datagram of six fragments for a port without a program.
            let socket = UdpSocket::bind((KERNEL[family], 0)).expect("bound");
            socket.connect((STACK[family], 9)).expect("a route");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
            socket.send(&pattern(8000, 2)).expect("sent");
            let refused = socket.recv(&mut [0; 10]).expect_err("the port is closed");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            // Three echo requests and the datagram.
            assert_eq!(stack.count_of(Count::Reassembled), 4 * (family as u64 + 1));
        }
    });
}

/// A program on the kernel's stack whose connections have digests, and which sends back received
/// data. Socket options that the standard library lacks need no unsafe code there.
const SIGNED_ECHO: &str = r#"
import socket, struct, sys
role, address, port, peer, key = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5].encode()
TCP_MD5SIG = 14
family = socket.AF_INET6 if ":" in address else socket.AF_INET
def sockaddr(ip):
    if family == socket.AF_INET:
        return struct.pack("=HH4s120x", family, 0, socket.inet_pton(family, ip))
    return struct.pack("=HHI16sI100x", family, 0, 0, socket.inet_pton(family, ip), 0)
s = socket.socket(family)
s.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, sockaddr(peer) + struct.pack("=BBHi80s", 0, 0, len(key), 0, key))
if role == "listen":
    s.bind((address, 0)); s.listen(); print(s.getsockname()[1], flush=True)
    s, _ = s.accept()
else:
    s.connect((peer, port))
while data := s.recv(65536):
    s.sendall(data)
"#;

/// Starts the program, in the namespace of this thread.
fn signed_echo(arguments: [&str; 5]) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", SIGNED_ECHO]).args(arguments).stdout(Stdio::piped());
    command.spawn().expect("python3 is installed")
}

#[test]
fn connections_with_md5_digests_reach_the_kernel_and_come_from_it() {
    let key = Md5Key::new(b"a shared secret").expect("a valid length");
    let listen = Listen::default().with_md5(key.clone());
    beside_kernel_with(listen, move |stack| {
        let bytes = pattern(1 << 20, 1);
        for family in 0..2 {
            let wrong = || stack.count_of(Count::WrongDigests);
            let before = wrong();
            let [kernel, ours] = [KERNEL[family], STACK[family]].map(|ip| ip.to_string());
            let mut program = signed_echo(["listen", &kernel, "0", &ours, "a shared secret"]);
            let mut line = String::new();
            BufReader::new(program.stdout.as_mut().expect("piped")).read_line(&mut line).expect("its port");
            let remote = SocketAddr::new(KERNEL[family], line.trim().parse().expect("a port"));
            let stream = stack.connect_with(remote, Connect::default().with_md5(key.clone())).expect("connected");
            assert!(exchange(&stream, &bytes) == bytes, "to the kernel, {family}");
            assert!(program.wait().expect("it ends").success());

            let mut program = signed_echo(["connect", &kernel, "80", &ours, "a shared secret"]);
            let stream = stack.accept().expect("a client");
            assert!(exchange(&stream, &bytes) == bytes, "from the kernel, {family}");
            assert!(program.wait().expect("it ends").success());
            assert_eq!(wrong(), before);

            // Neither a wrong key nor none gets an answer.
            let mut program = signed_echo(["connect", &kernel, "80", &ours, "another secret"]);
            while wrong() == before {
                std::thread::yield_now();
            }
            program.kill().expect("it waits");
            program.wait().expect("killed");
            let (before, address) = (wrong(), SocketAddr::new(STACK[family], 80));
            let refused = TcpStream::connect_timeout(&address, Duration::from_millis(500)).expect_err("no answer");
            assert_eq!(refused.kind(), ErrorKind::TimedOut);
            assert!(wrong() > before);
        }
    });
}

#[test]
fn datagrams_cross_between_the_kernel_and_a_bound_port() {
    for placement in [Placement::Thread, Placement::Inline] {
        beside_kernel(placement, move |stack| {
            let port = stack.bind_udp(7).expect("it is free");
            for family in 0..2 {
                let socket = UdpSocket::bind((KERNEL[family], 0)).expect("bound");
                socket.connect((STACK[family], 7)).expect("a route");
                socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
                // The last one in fragments.
                for len in [0, 1, 1400, 30_000] {
                    let data = pattern(len, 1);
                    socket.send(&data).expect("sent");
                    let datagram = port.receive(Some(Duration::from_secs(60))).expect("it has arrived");
                    assert_eq!(datagram.remote, socket.local_addr().expect("bound"));
                    assert!(datagram.local == STACK[family] && datagram.data == data, "{family} {len}");
                    port.answer(&datagram, &data).expect("there is space");
                    let mut answer = vec![0; 65_536];
                    let received = socket.recv(&mut answer).expect("an answer");
                    assert!(answer[..received] == data, "{family} {len}");
                }
                port.send_to(b"first", socket.local_addr().expect("bound")).expect("there is space");
                assert_eq!(socket.recv(&mut [0; 10]).expect("a datagram"), 5);
            }
            drop(port);
            if placement == Placement::Inline {
                // Only calls of the stack run its driver, and none follows.
                return;
            }
            let socket = UdpSocket::bind((KERNEL[0], 0)).expect("bound");
            socket.connect((STACK[0], 7)).expect("a route");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
            socket.send(b"late").expect("sent");
            let refused = socket.recv(&mut [0; 10]).expect_err("the port is free again");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        });
    }
}
