use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

use super::*;

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn plain(destination: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { destination, source_ip: None, ecn: None, contents, segment_size: None }
}

fn drain(socket: &mut MemorySocket) -> u64 {
    let mut buffer = vec![0; crate::RECV_BUFFER_BYTES];
    let mut metas = [RecvMeta::default()];
    while socket.recv(&mut [&mut buffer], &mut metas).is_ok() {}
    socket.counters().datagrams_received
}

#[test]
fn every_arrival_wakes_and_a_late_waker_is_called_at_once() {
    let network = MemoryNetwork::new();
    let (mut sender, mut receiver) = (network.bind(at(1)).unwrap(), network.bind(at(2)).unwrap());
    let count = Arc::new(Count::default());
    receiver.set_waker(Arc::clone(&count).into());
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    sender.send(&plain(at(2), b"one")).unwrap();
    sender.send(&plain(at(2), b"two")).unwrap();
    sender.send(&plain(at(1), b"to itself")).unwrap();
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    receiver.set_waker(Arc::clone(&count).into());
    assert_eq!(count.0.load(Ordering::Relaxed), 3);
    assert_eq!(drain(&mut receiver), 2);
    receiver.set_waker(Arc::clone(&count).into());
    assert_eq!(count.0.load(Ordering::Relaxed), 3);
}

#[test]
fn a_full_inbox_drops_and_counts_until_drained() {
    let network = MemoryNetwork::new();
    let (mut sender, mut receiver) = (network.bind(at(1)).unwrap(), network.bind(at(2)).unwrap());
    let contents = vec![0; 64 * 1000];
    let batch = Transmit { segment_size: Some(1000), ..plain(at(2), &contents) };
    let fit = INBOX_BYTES_MAX / contents.len();
    for _ in 0..fit + 3 {
        sender.send(&batch).unwrap();
    }
    assert_eq!(receiver.overflowed(), 3 * 64);
    assert_eq!(drain(&mut receiver), fit as u64 * 64);
    sender.send(&batch).unwrap();
    assert_eq!(drain(&mut receiver), (fit as u64 + 1) * 64);

    for _ in 0..=INBOX_BATCHES_MAX {
        sender.send(&plain(at(2), b"")).unwrap();
    }
    assert_eq!(receiver.overflowed(), 3 * 64 + 1);
}

#[test]
fn an_address_is_in_use_until_its_socket_is_dropped() {
    let network = MemoryNetwork::new();
    let first = network.bind(at(7)).unwrap();
    assert_eq!(network.bind(at(7)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(first);
    let mut sender = network.bind(at(8)).unwrap();
    sender.send(&plain(at(7), b"absent")).unwrap();
    sender.send(&Transmit { segment_size: Some(2), ..plain(at(7), b"absent") }).unwrap();
    assert_eq!(network.unreachable(), 1 + 3);
    network.bind(at(7)).unwrap();
}

#[test]
fn exhausted_ports_are_an_error_until_one_is_freed() {
    let network = MemoryNetwork::new();
    let mut sockets: Vec<_> = (DYNAMIC_PORT_FIRST..=u16::MAX).map(|_| network.bind(at(0)).unwrap()).collect();
    assert_eq!(network.bind(at(0)).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let freed = sockets.remove(100).local_addr().unwrap();
    assert_eq!(network.bind(at(0)).unwrap().local_addr().unwrap(), freed);
}

#[test]
fn the_exact_address_has_precedence_over_the_wildcard() {
    let network = MemoryNetwork::new();
    let mut any = network.bind((Ipv4Addr::UNSPECIFIED, 5).into()).unwrap();
    let mut exact = network.bind(at(5)).unwrap();
    let mut sender = network.bind(at(6)).unwrap();
    sender.send(&plain(at(5), b"exact")).unwrap();
    sender.send(&plain((Ipv4Addr::new(10, 0, 0, 1), 5).into(), b"any")).unwrap();
    assert_eq!((drain(&mut exact), drain(&mut any)), (1, 1));
}

#[test]
fn a_small_mtu_rejects_large_datagrams_but_not_large_batches() {
    let network = MemoryNetwork::with_datagram_bytes_max(1472);
    let (mut sender, mut receiver) = (network.bind(at(1)).unwrap(), network.bind(at(2)).unwrap());
    let contents = [0; 3000];
    assert!(matches!(sender.send(&plain(at(2), &contents[..1473])), Err(SendError::TooLarge)));
    sender.send(&Transmit { segment_size: Some(1472), ..plain(at(2), &contents) }).unwrap();
    assert_eq!(drain(&mut receiver), 3);
}
