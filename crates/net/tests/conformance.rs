//! Conformance tests of [`DatagramSocket`]: each test is one function that runs on both backends.
//! `udp` is the kernel's loopback, `memory` is the in-memory network.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

#[path = "conformance/backend.rs"]
mod backend;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use net::{BATCH_BYTES_MAX, DatagramSocket, Ecn, RecvMeta, SendError, Transmit};

use backend::{Backend, Received, memory, pattern, receive, udp};

/// Runs each named function on both backends.
macro_rules! on_both_implementations {
    ($($name:ident),* $(,)?) => {
        mod on_udp {
            $(#[test] fn $name() { super::$name(&super::udp()); })*
        }
        mod in_memory {
            $(#[test] fn $name() { super::$name(&super::memory()); })*
        }
    };
}

on_both_implementations! {
    a_datagram_arrives_with_its_addresses,
    an_empty_datagram_is_a_datagram,
    a_batch_arrives_in_order_with_its_stride,
    a_batch_above_the_segment_limit_arrives_completely,
    every_ecn_mark_is_carried,
    an_empty_socket_would_block,
    receiving_without_buffers_takes_nothing,
    several_buffers_are_filled_by_one_call,
    data_that_does_not_fit_is_truncated_and_counted,
    a_datagram_above_the_limit_is_too_large_and_the_socket_still_works,
    a_segment_size_of_zero_is_rejected,
    the_source_address_can_be_chosen,
    ipv6_carries_batches_marks_and_addresses,
    the_other_address_family_is_rejected,
    many_sockets_receive_only_their_own_datagrams,
}

fn localhost() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn plain(destination: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { destination, source_ip: None, ecn: None, contents, segment_size: None }
}

fn pair(backend: &Backend) -> (Box<dyn DatagramSocket>, Box<dyn DatagramSocket>, SocketAddr) {
    let (sender, receiver) = (backend.open(localhost()), backend.open(localhost()));
    let destination = receiver.local_addr().unwrap();
    (sender, receiver, destination)
}

fn a_datagram_arrives_with_its_addresses(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    sender.send(&plain(destination, b"hello")).unwrap();
    let received = receive(&mut *receiver, 1);
    let expected = Received {
        source: sender.local_addr().unwrap(),
        destination_ip: Some(destination.ip()),
        ecn: None,
        contents: b"hello".to_vec(),
    };
    assert_eq!(received, [expected]);
    let counters = sender.counters();
    assert_eq!((counters.datagrams_sent, counters.batches_sent, counters.bytes_sent), (1, 1, 5));
    let counters = receiver.counters();
    assert_eq!((counters.datagrams_received, counters.batches_received, counters.bytes_received), (1, 1, 5));
}

fn an_empty_datagram_is_a_datagram(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    sender.send(&plain(destination, b"")).unwrap();
    sender.send(&plain(destination, b"after")).unwrap();
    assert_eq!(receive(&mut *receiver, 2).pop().unwrap().contents, b"after");
    assert_eq!((sender.counters().datagrams_sent, receiver.counters().datagrams_received), (2, 2));
}

fn a_batch_arrives_in_order_with_its_stride(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    let contents = pattern(10 * 1200 + 77);
    let transmit = Transmit { segment_size: Some(1200), ecn: Some(Ecn::Ect0), ..plain(destination, &contents) };
    sender.send(&transmit).unwrap();
    let received = receive(&mut *receiver, 11);
    let lengths: Vec<usize> = received.iter().map(|datagram| datagram.contents.len()).collect();
    assert_eq!(lengths, [vec![1200; 10], vec![77]].concat());
    assert_eq!(received.iter().flat_map(|datagram| &datagram.contents).copied().collect::<Vec<_>>(), contents);
    assert!(received.iter().all(|datagram| datagram.ecn == Some(Ecn::Ect0)));
    assert_eq!((sender.counters().datagrams_sent, sender.counters().bytes_sent), (11, contents.len() as u64));
    assert_eq!(receiver.counters().datagrams_received, 11);
    if sender.max_gso_segments() >= 11 {
        assert_eq!(sender.counters().batches_sent, 1, "one call carries the batch");
    } else {
        eprintln!("not checked: this system does not segment");
    }
}

fn a_batch_above_the_segment_limit_arrives_completely(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    let segments_max = sender.max_gso_segments();
    let count = segments_max * 2 + 3;
    let contents = pattern(count * 20);
    sender.send(&Transmit { segment_size: Some(20), ..plain(destination, &contents) }).unwrap();
    let received = receive(&mut *receiver, count);
    assert_eq!(received.iter().flat_map(|datagram| &datagram.contents).copied().collect::<Vec<_>>(), contents);
    let counters = sender.counters();
    let calls = count.div_ceil(segments_max) as u64;
    assert_eq!((counters.datagrams_sent, counters.batches_sent, counters.gso_fallbacks), (count as u64, calls, 0));

    // A batch of the largest size is sent; with one more byte it is rejected and nothing is sent.
    let contents = pattern(BATCH_BYTES_MAX + 1);
    let batch = |bytes: usize| Transmit { segment_size: Some(1472), ..plain(destination, &contents[..bytes]) };
    sender.send(&batch(BATCH_BYTES_MAX)).unwrap();
    assert_eq!(receive(&mut *receiver, BATCH_BYTES_MAX.div_ceil(1472)).last().unwrap().contents.len(), 65_507 % 1472);
    assert!(matches!(sender.send(&batch(BATCH_BYTES_MAX + 1)), Err(SendError::TooLarge)));
    assert_nothing_more(&mut *receiver);
}

fn every_ecn_mark_is_carried(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    for ecn in [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce), None] {
        sender.send(&Transmit { ecn, ..plain(destination, b"marked") }).unwrap();
        assert_eq!(receive(&mut *receiver, 1)[0].ecn, ecn);
    }
}

fn an_empty_socket_would_block(backend: &Backend) {
    let mut socket = backend.open(localhost());
    assert_nothing_more(&mut *socket);
    assert_eq!(socket.counters().batches_received, 0);
}

fn receiving_without_buffers_takes_nothing(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    sender.send(&plain(destination, b"waits")).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(receiver.recv(&mut [], &mut [RecvMeta::default()]).unwrap(), 0);
    assert_eq!(receiver.recv(&mut [&mut buffer], &mut []).unwrap(), 0);
    assert_eq!(receive(&mut *receiver, 1)[0].contents, b"waits");
}

fn several_buffers_are_filled_by_one_call(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    // Of increasing length, so that receive offload cannot merge them.
    for length in 1..=4 {
        sender.send(&plain(destination, &[length; 9][..usize::from(length)])).unwrap();
    }
    backend.settle();
    let mut memory = [[0_u8; 64]; 5];
    let mut buffers: Vec<&mut [u8]> = memory.iter_mut().map(|buffer| &mut buffer[..]).collect();
    let mut metas = [RecvMeta::default(); 3];
    // The first call fills all metas, the second returns the rest.
    assert_eq!(receiver.recv(&mut buffers, &mut metas).unwrap(), 3);
    assert_eq!(metas.map(|meta| meta.len), [1, 2, 3]);
    assert_eq!(buffers[2][..3], [3; 3]);
    assert_eq!(receiver.recv(&mut buffers, &mut metas).unwrap(), 1);
    assert_eq!((metas[0].len, &buffers[0][..4]), (4, &[4; 4][..]));
    assert_nothing_more(&mut *receiver);
}

fn data_that_does_not_fit_is_truncated_and_counted(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    sender.send(&plain(destination, &[7; 100])).unwrap();
    sender.send(&plain(destination, &[8; 50])).unwrap();
    backend.settle();
    let (mut short, mut long) = ([0_u8; 99], [0_u8; 99]);
    let mut metas = [RecvMeta::default(); 2];
    assert_eq!(receiver.recv(&mut [&mut short, &mut long], &mut metas).unwrap(), 2);
    assert_eq!(metas.map(|meta| meta.len), [99, 50]);
    assert_eq!(short, [7; 99]);
    assert_eq!(receiver.counters().truncated, 1);
    assert_nothing_more(&mut *receiver);
}

fn a_datagram_above_the_limit_is_too_large_and_the_socket_still_works(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    let contents = pattern(BATCH_BYTES_MAX + 1);
    assert!(matches!(sender.send(&plain(destination, &contents)), Err(SendError::TooLarge)));
    assert_nothing_more(&mut *receiver);
    sender.send(&plain(destination, &contents[..BATCH_BYTES_MAX])).unwrap();
    assert_eq!(receive(&mut *receiver, 1)[0].contents, contents[..BATCH_BYTES_MAX]);
    assert_eq!((sender.counters().datagrams_sent, receiver.counters().truncated), (1, 0));
}

fn a_segment_size_of_zero_is_rejected(backend: &Backend) {
    let (mut sender, mut receiver, destination) = pair(backend);
    let result = sender.send(&Transmit { segment_size: Some(0), ..plain(destination, b"zero") });
    assert!(matches!(result, Err(SendError::Other(error)) if error.kind() == io::ErrorKind::InvalidInput));
    assert_nothing_more(&mut *receiver);
}

fn the_source_address_can_be_chosen(backend: &Backend) {
    let mut server = backend.open((Ipv4Addr::UNSPECIFIED, 0).into());
    let mut client = backend.open(localhost());
    let client_address = client.local_addr().unwrap();
    let server_port = server.local_addr().unwrap().port();
    for last in [1, 5, 9] {
        let ip = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
        client.send(&plain((ip, server_port).into(), b"to one of many")).unwrap();
        let request = receive(&mut *server, 1).remove(0);
        assert_eq!((request.source, request.destination_ip), (client_address, Some(ip)));
        server
            .send(&Transmit { source_ip: request.destination_ip, ..plain(request.source, b"from the same") })
            .unwrap();
        assert_eq!(receive(&mut *client, 1)[0].source, (ip, server_port).into());
    }
}

fn ipv6_carries_batches_marks_and_addresses(backend: &Backend) {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let localhost = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let (Some(mut sender), Some(mut receiver)) = (backend.try_open(localhost), backend.try_open(any)) else {
        eprintln!("skipped: this host has no IPv6 on loopback");
        return;
    };
    let port = receiver.local_addr().unwrap().port();
    let contents = pattern(5 * 1000);
    let batch = Transmit {
        destination: (Ipv6Addr::LOCALHOST, port).into(),
        source_ip: Some(Ipv6Addr::LOCALHOST.into()),
        ecn: Some(Ecn::Ce),
        contents: &contents,
        segment_size: Some(1000),
    };
    sender.send(&batch).unwrap();
    let received = receive(&mut *receiver, 5);
    for (datagram, sent) in received.iter().zip(contents.chunks(1000)) {
        assert_eq!(datagram.contents, sent);
        assert_eq!((datagram.ecn, datagram.destination_ip), (Some(Ecn::Ce), Some(Ipv6Addr::LOCALHOST.into())));
        assert_eq!(datagram.source, sender.local_addr().unwrap());
    }
}

fn the_other_address_family_is_rejected(backend: &Backend) {
    let mut socket = backend.open(localhost());
    let result = socket.send(&plain((Ipv6Addr::LOCALHOST, 9).into(), b"lost"));
    assert!(matches!(result, Err(SendError::Other(_))), "{result:?}");
    assert_eq!(socket.counters().datagrams_sent, 0);
}

fn many_sockets_receive_only_their_own_datagrams(backend: &Backend) {
    let mut sockets: Vec<_> = (0..60).map(|_| backend.open(localhost())).collect();
    let addresses: Vec<SocketAddr> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    for (index, socket) in sockets.iter_mut().enumerate() {
        for step in [1, 7, 13] {
            let number = [index as u8, step];
            socket.send(&plain(addresses[(index + usize::from(step)) % 60], &number)).unwrap();
        }
    }
    for (index, socket) in sockets.iter_mut().enumerate() {
        let mut received = receive(&mut **socket, 3);
        received.sort_by_key(|datagram| datagram.contents[1]);
        for (datagram, step) in received.iter().zip([1_u8, 7, 13]) {
            let from = (index + 60 - usize::from(step)) % 60;
            assert_eq!((datagram.source, &datagram.contents[..]), (addresses[from], &[from as u8, step][..]));
        }
        assert_nothing_more(&mut **socket);
    }
}

fn assert_nothing_more(socket: &mut dyn DatagramSocket) {
    let mut buffer = [0; 64];
    let result = socket.recv(&mut [&mut buffer], &mut [RecvMeta::default()]);
    assert!(matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock), "{result:?}");
}
