//! Sends packets with few calls of the kernel: neighbours of one length leave as one super-packet, which the kernel
//! cuts apart (UDP_SEGMENT).

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Packets of one call (UDP_MAX_SEGMENTS of Linux up to 6.8).
const SEGMENTS_MAX: usize = 64;

/// Bytes of one call: those of the longest packet of UDP over IPv4.
const BYTES_MAX: usize = 65_507;

/// Packets that the kernel has taken.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Sends packets to `to`, or to the target of a connected socket. Never waits: what the kernel does not take now is
/// dropped, as on any link.
pub(crate) fn send_all(socket: &UdpSocket, to: Option<SocketAddr>, mut packets: &[&[u8]]) -> Taken {
    let mut taken = Taken::default();
    while !packets.is_empty() {
        let (run, others) = packets.split_at(run_len(packets));
        packets = others;
        let is_sent = run.len() > 1 && send_run(socket, to, run).is_ok();
        for packet in run {
            // A device or a path may take no super-packets.
            if is_sent || send(socket, to, packet).is_ok() {
                taken.packets += 1;
                taken.bytes += packet.len() as u64;
            }
        }
    }
    taken
}

/// How many packets from the first one on may leave together: all of one length, but for a shorter last one.
fn run_len(packets: &[&[u8]]) -> usize {
    let (segment, mut count, mut bytes) = (packets[0].len(), 0, 0);
    for packet in packets.iter().take(SEGMENTS_MAX) {
        bytes += packet.len();
        if packet.is_empty() || packet.len() > segment || bytes > BYTES_MAX {
            break;
        }
        count += 1;
        if packet.len() < segment {
            break;
        }
    }
    count.max(1)
}

fn send(socket: &UdpSocket, to: Option<SocketAddr>, packet: &[u8]) -> io::Result<usize> {
    match to {
        Some(to) => socket.try_send_to(packet, to),
        None => socket.try_send(packet),
    }
}

fn send_run(socket: &UdpSocket, to: Option<SocketAddr>, run: &[&[u8]]) -> io::Result<usize> {
    let slices: Vec<IoSlice<'_>> = run.iter().map(|packet| IoSlice::new(packet)).collect();
    let segment = u16::try_from(run[0].len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let control = [ControlMessage::UdpGsoSegments(&segment)];
    let to = to.map(SockaddrStorage::from);
    socket.try_io(Interest::WRITABLE, || {
        Ok(sendmsg(socket.as_raw_fd(), &slices, &control, MsgFlags::MSG_DONTWAIT, to.as_ref())?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_one_length_leave_together_within_the_bounds_of_the_kernel() {
        let (long, short, empty): (&[u8], &[u8], &[u8]) = (&[0; 1200], &[0; 100], &[]);
        let longest: &[u8] = &[0; 60_000];
        for (packets, expected) in [
            (vec![long], 1),
            (vec![long, long, long], 3),
            (vec![long, long, short, short], 3),
            (vec![short, long], 1),
            (vec![empty, empty], 1),
            (vec![long, empty], 1),
            (vec![long; 100], 54),
            (vec![short; 100], 64),
            (vec![longest; 2], 1),
        ] {
            assert_eq!(
                run_len(&packets),
                expected,
                "{:?}",
                packets.iter().map(|packet| packet.len()).collect::<Vec<_>>()
            );
        }
    }

    #[tokio::test]
    async fn packets_arrive_one_by_one_in_order() {
        let from = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let to = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = to.local_addr().expect("a socket");
        let lens = [1000, 1000, 1000, 7, 0, 1200, 1200, 9000, 1, 1];
        let packets: Vec<Vec<u8>> = lens.iter().zip(0..).map(|(len, number)| vec![number; *len]).collect();
        let slices: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        from.writable().await.expect("a socket");
        let expected = Taken { packets: 10, bytes: lens.iter().sum::<usize>() as u64 };
        assert_eq!(send_all(&from, Some(address), &slices), expected);
        from.connect(address).await.expect("an address");
        assert_eq!(send_all(&from, None, &slices), expected);
        for packet in packets.iter().chain(&packets) {
            let mut buffer = vec![0; 65_536];
            let len = to.recv(&mut buffer).await.expect("a packet");
            assert!(buffer[..len] == *packet, "{len} bytes of {}", packet.len());
        }
    }
}
