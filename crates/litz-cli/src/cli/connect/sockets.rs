//! The options of a connection's sockets, and advice on their buffers.

use std::net::SocketAddr;

use litz::{UdpSocket, UdpSocketOptions};

/// The options of a socket.
pub(crate) fn socket(bind: SocketAddr, device: Option<&str>) -> UdpSocketOptions {
    UdpSocketOptions::new(bind).with_device(device.map(str::to_owned))
}

/// Advice for the user if the system grants this socket smaller buffers than requested: the most
/// frequent cause of loss on a fast link.
pub(crate) fn small_buffers(socket: &UdpSocket, asked: &UdpSocketOptions) -> Option<String> {
    let ((_, granted), asked) = (socket.granted_buffers(), asked.recv_buffer_bytes);
    (granted < asked).then(|| {
        format!(
            "the system limits receive buffers to {granted} bytes instead of {asked}, which causes packet loss on fast \
             links: run `sysctl -w net.core.rmem_max={asked}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_give_advice() {
        let mut asked = socket("127.0.0.1:0".parse().unwrap(), None);
        let opened = UdpSocket::open(&asked).unwrap();
        let (_, granted) = opened.granted_buffers();
        asked.recv_buffer_bytes = granted;
        assert_eq!(small_buffers(&opened, &asked), None);
        asked.recv_buffer_bytes = granted + 1;
        assert!(small_buffers(&opened, &asked).unwrap().contains("net.core.rmem_max"));
    }
}
