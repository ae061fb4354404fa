#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

/// More datagrams in one call than any kernel segments (64, later 128), so that it fails with
/// `EINVAL`.
const TOO_MANY: usize = 300;

fn open_local() -> UdpSocket {
    UdpSocket::open(&UdpSocketOptions::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()
}

/// Each received datagram of one byte, with its ECN mark.
fn receive(socket: &mut UdpSocket, count: usize) -> Vec<(u8, Option<Ecn>)> {
    let mut buffer = vec![0; crate::RECV_BUFFER_BYTES];
    let mut received = Vec::new();
    let clock = crate::MonotonicClock::start();
    while received.len() < count && clock.now().since_start() < units::Duration::from_secs(10) {
        let mut metas = [RecvMeta::default()];
        if socket.recv(&mut [&mut buffer], &mut metas).is_ok() {
            received.extend(buffer[..metas[0].len].iter().map(|&byte| (byte, metas[0].ecn)));
        }
    }
    received
}

#[test]
fn a_batch_rejected_by_the_kernel_arrives_and_later_marks_are_kept() {
    let (mut sender, mut receiver) = (open_local(), open_local());
    if sender.max_gso_segments() == 1 {
        eprintln!("skipped: this kernel does not segment; the scripted device in `segmentation` covers the rest");
        return;
    }
    // Exceeds the limit that the socket otherwise observes, to provoke a real failure.
    sender.segmentation = Segmentation::new(TOO_MANY);
    let contents: Vec<u8> = (0..TOO_MANY).map(|index| index as u8).collect();
    let transmit = Transmit {
        destination: receiver.local_addr().unwrap(),
        source_ip: None,
        ecn: Some(Ecn::Ect1),
        contents: &contents,
        segment_size: Some(1),
    };
    sender.send(&transmit).unwrap();
    let expected: Vec<_> = contents.iter().map(|&byte| (byte, Some(Ecn::Ect1))).collect();
    assert_eq!(receive(&mut receiver, TOO_MANY), expected);
    assert_eq!((sender.max_gso_segments(), sender.counters().gso_fallbacks), (1, 1));
    assert_eq!(sender.counters().datagrams_sent, TOO_MANY as u64);

    sender.send(&Transmit { ecn: Some(Ecn::Ce), contents: b"x", segment_size: None, ..transmit }).unwrap();
    assert_eq!(receive(&mut receiver, 1), [(b'x', Some(Ecn::Ce))]);
}

#[test]
fn a_foreign_source_address_is_rejected_without_disabling_marks_or_segmentation() {
    let (mut sender, mut receiver) = (open_local(), open_local());
    let segments_max = sender.max_gso_segments();
    let good = Transmit {
        destination: receiver.local_addr().unwrap(),
        source_ip: None,
        ecn: Some(Ecn::Ect0),
        contents: b"abc",
        segment_size: Some(1),
    };
    let foreign = Ipv4Addr::new(192, 0, 2, 1);
    let result = sender.send(&Transmit { source_ip: Some(foreign.into()), ..good });
    assert!(matches!(result, Err(SendError::Other(_))), "{result:?}");
    assert_eq!((sender.max_gso_segments(), sender.counters().gso_fallbacks), (segments_max, 0));
    sender.send(&good).unwrap();
    assert_eq!(receive(&mut receiver, 3), [b'a', b'b', b'c'].map(|byte| (byte, Some(Ecn::Ect0))));
}

#[test]
#[cfg(target_os = "linux")]
fn a_socket_on_loopback_works_and_a_wrong_device_name_is_explained() {
    let bind = (Ipv4Addr::LOCALHOST, 0).into();
    let on_device = |name: &str| UdpSocketOptions { device: Some(name.into()), ..UdpSocketOptions::new(bind) };
    let mut sender = UdpSocket::open(&on_device("lo")).unwrap();
    assert_eq!(sender.kernel.socket.device().unwrap(), Some(b"lo".to_vec()));
    let mut receiver = open_local();
    let destination = receiver.local_addr().unwrap();
    sender.send(&Transmit { destination, source_ip: None, ecn: None, contents: b"z", segment_size: None }).unwrap();
    assert_eq!(receive(&mut receiver, 1), [(b'z', None)]);

    for name in ["nosuch0", "", "a-name-that-is-far-too-long"] {
        let shown = UdpSocket::open(&on_device(name)).unwrap_err().to_string();
        assert!(shown.contains("ip link") && shown.contains(name) && shown.contains("127.0.0.1"), "{shown}");
    }
}

#[test]
fn errors_for_used_and_foreign_addresses_say_what_to_do() {
    let first = open_local();
    let taken = UdpSocketOptions::new(first.local_addr().unwrap());
    let error = UdpSocket::open(&taken).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("choose another one"), "{error}");
    let foreign = UdpSocketOptions::new((Ipv4Addr::new(192, 0, 2, 1), 0).into());
    let shown = UdpSocket::open(&foreign).unwrap_err().to_string();
    assert!(shown.contains("192.0.2.1") && shown.contains("ip address"), "{shown}");
}

#[test]
fn a_port_can_be_shared_with_reuse_port() {
    let shared = |bind| UdpSocketOptions { reuse_port: true, ..UdpSocketOptions::new(bind) };
    let first = UdpSocket::open(&shared((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
    let second = UdpSocket::open(&shared(first.local_addr().unwrap())).unwrap();
    assert_eq!(first.local_addr().unwrap(), second.local_addr().unwrap());
}

#[test]
fn a_socket_that_gets_any_port_shares_it_with_no_stranger() {
    let shared = UdpSocketOptions { reuse_port: true, ..UdpSocketOptions::new((Ipv4Addr::LOCALHOST, 0).into()) };
    // There are 28,000 ports. If two sockets could get the same one, about six pairs of each round
    // would.
    for _ in 0..2 {
        let sockets: Vec<UdpSocket> = (0..600).map(|_| UdpSocket::open(&shared).unwrap()).collect();
        let mut ports: Vec<u16> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), sockets.len());
    }
}

#[test]
fn the_ipv6_wildcard_does_not_use_the_ipv4_port() {
    // Any one port may be in use by another process; eight in a row are not.
    let both = (0..8).any(|_| {
        let Ok(six) = UdpSocket::open(&UdpSocketOptions::new((Ipv6Addr::UNSPECIFIED, 0).into())) else {
            eprintln!("skipped: this host has no IPv6");
            return true;
        };
        let port = six.local_addr().unwrap().port();
        UdpSocket::open(&UdpSocketOptions::new((Ipv4Addr::UNSPECIFIED, port).into())).is_ok()
    });
    assert!(both);
}

#[test]
fn buffers_are_reported_as_granted() {
    let bind = (Ipv4Addr::LOCALHOST, 0).into();
    let modest =
        UdpSocketOptions { send_buffer_bytes: 100_000, recv_buffer_bytes: 150_000, ..UdpSocketOptions::new(bind) };
    assert_eq!(UdpSocket::open(&modest).unwrap().granted_buffers(), (100_000, 150_000));
    let greedy = UdpSocketOptions { recv_buffer_bytes: usize::MAX, ..modest };
    let (_, granted) = UdpSocket::open(&greedy).unwrap().granted_buffers();
    assert!((150_000..=1 << 30).contains(&granted), "{granted}");
}
