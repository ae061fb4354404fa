//! Setting up a socket for `quinn-udp`, less what breaks it.

use std::io;

use quinn_udp::UdpSocketState;
use socket2::Socket;

/// Sets `socket` up: non-blocking, no fragmentation, both offloads, ECN marks and addresses of what arrives.
pub(super) fn set_up(socket: &Socket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    without_timestamps(socket)?;
    Ok(state)
}

/// `quinn-udp` asks for the time of arrival of each datagram, which needs 32 bytes in a control buffer that has 96 (0.6.3).
/// Together with the segment size (24) and the address (32, on IPv6 40) that leaves no room for the ECN mark (24), and
/// the kernel drops it: from every batch that receive offload has put together, so from nearly all. Without the time
/// everything fits, and each packet is spared a look at the clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn without_timestamps(socket: &Socket) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};

    setsockopt(socket, sockopt::ReceiveTimestampns, &false).map_err(io::Error::from)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn without_timestamps(_socket: &Socket) -> io::Result<()> {
    Ok(())
}
