use std::sync::atomic::AtomicBool;

use super::*;
use crate::memory::{MemoryNetwork, MemorySocket};

fn bind(network: &MemoryNetwork) -> MemorySocket {
    network.bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn send(socket: &mut dyn DatagramSocket, destination: SocketAddr, contents: &[u8]) -> Result<(), SendError> {
    socket.send(&Transmit { destination, source_ip: None, ecn: None, contents, segment_size: None })
}

/// Returns the datagrams that have arrived: sources, destinations and contents.
fn received(socket: &mut dyn DatagramSocket) -> Vec<(RecvMeta, Vec<u8>)> {
    let mut memory = vec![vec![0; RECV_BUFFER_BYTES]; 8];
    let mut buffers: Vec<&mut [u8]> = memory.iter_mut().map(|buffer| &mut buffer[..]).collect();
    let mut metas = [RecvMeta::default(); 8];
    let count = socket.recv(&mut buffers, &mut metas).unwrap_or(0);
    metas[..count].iter().zip(&memory).map(|(meta, bytes)| (*meta, bytes[..meta.len].to_vec())).collect()
}

#[test]
fn faults_occur_when_a_test_sets_them_and_are_counted() {
    let network = MemoryNetwork::new();
    let faults = Arc::new(Faults::default());
    let mut socket = InterceptedSocket::new(bind(&network), Arc::clone(&faults));
    let to = bind(&network).local_addr().unwrap();
    let set = |flag: &AtomicBool, value| flag.store(value, Ordering::SeqCst);
    assert!(send(&mut socket, to, b"x").is_ok());
    set(&faults.is_full, true);
    assert!(matches!(send(&mut socket, to, b"x"), Err(SendError::WouldBlock)));
    set(&faults.is_full, false);
    set(&faults.no_buffers, true);
    assert!(matches!(send(&mut socket, to, b"x"), Err(SendError::NoBuffers)));
    set(&faults.no_buffers, false);
    faults.refusals_left.store(2, Ordering::SeqCst);
    let refused = (0..3).filter(|_| matches!(send(&mut socket, to, b"x"), Err(SendError::Other(_)))).count();
    assert_eq!(refused, 2);
    set(&faults.fail_recv, true);
    let error = socket.recv(&mut [], &mut []).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
    let counts = [&faults.sent, &faults.refused, &faults.recv_calls].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts, [2, 4, 1]);
}

#[test]
fn sends_are_refused_and_lost_by_their_number() {
    let network = MemoryNetwork::new();
    let mut peer = bind(&network);
    let to = peer.local_addr().unwrap();
    let (refused, lost) = (Arc::new(Refusals::default()), Arc::new(AtomicU64::new(0)));
    let choose = |number| (number == 2).then_some(SendError::NoBuffers);
    let mut refusing = InterceptedSocket::new(bind(&network), RefuseSends::new(choose, &refused));
    let results: Vec<bool> = (0..3).map(|_| send(&mut refusing, to, b"r").is_ok()).collect();
    assert_eq!(results, [true, false, true]);
    let mut lossy = InterceptedSocket::new(bind(&network), DropSends::one_of(3, &lost));
    for number in 1..=6 {
        send(&mut lossy, to, &[number]).unwrap();
    }
    let contents: Vec<_> = received(&mut peer).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(contents, [b"r".to_vec(), b"r".to_vec(), vec![1], vec![2], vec![4], vec![5]]);
    assert_eq!((refused.total(), refused.chosen.load(Ordering::SeqCst), lost.load(Ordering::SeqCst)), (1, 1, 2));
}

#[test]
fn datagrams_of_one_source_are_joined() {
    let network = MemoryNetwork::new();
    let (mut first, mut second) = (bind(&network), bind(&network));
    let coalesce = Coalesce::default();
    let joined = Arc::clone(&coalesce.joined);
    let mut socket = InterceptedSocket::new(bind(&network), coalesce);
    let to = socket.local_addr().unwrap();
    for (is_first, contents) in [(true, b"aa"), (true, b"bb"), (false, b"cc"), (true, b"dd")] {
        send(if is_first { &mut first } else { &mut second }, to, contents).unwrap();
    }
    let contents: Vec<_> = received(&mut socket).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(contents, [&b"aabb"[..], b"cc", b"dd", b""]);
    assert_eq!(joined.load(Ordering::SeqCst), 1);
}

#[test]
fn an_intercepted_socket_reports_its_alias_and_its_missing_segmentation() {
    let network = MemoryNetwork::new();
    let mut inner = bind(&network);
    let own = inner.local_addr().unwrap();
    send(&mut inner, own, b"x").unwrap();
    let other: SocketAddr = "127.0.0.9:9".parse().unwrap();
    let mut alias = InterceptedSocket::new(inner, Alias(other));
    assert_eq!(alias.local_addr().unwrap(), other);
    assert_eq!(received(&mut alias)[0].0.destination_ip, Some(other.ip()));
    let single = InterceptedSocket::new(bind(&network), OneByOne);
    assert_eq!((single.max_gso_segments(), single.inner.max_gso_segments() > 1), (1, true));
}
