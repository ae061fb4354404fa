//! What a stack does beside its connections, with the kernel as its peer. Skipped without root.
#![expect(clippy::disallowed_methods, reason = "stands for programs of the kernel's stack")]

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use litz::Placement;
use litz::tcp::Count;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};
use wire::icmp::Message;

use crate::tcp_stack::{KERNEL, STACK, beside_kernel};
use crate::world::pattern;

/// Sends an echo request from a raw socket of the kernel and returns the answer's data.
fn echo(to: IpAddr, from: IpAddr, data: &[u8]) -> Vec<u8> {
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
