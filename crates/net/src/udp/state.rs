//! Socket configuration for `quinn-udp`.

use std::io;

use quinn_udp::UdpSocketState;
use socket2::Socket;

/// Configures `socket`: non-blocking, no fragmentation, both offloads, ECN marks and addresses of
/// received datagrams.
pub(super) fn set_up(socket: &Socket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    disable_timestamps(socket)?;
    Ok(state)
}

/// Disables receive timestamps. `quinn-udp` requests them for each datagram; they need 32 bytes in
/// a control buffer of 96 (0.6.3). Together with the segment size (24) and the address (32, on IPv6
/// 40) there is no space left for the ECN mark (24), and the kernel drops it from every batch that
/// receive offload has assembled, which is nearly all of them. Without timestamps everything fits,
/// and no clock is read per packet.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn disable_timestamps(socket: &Socket) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};

    setsockopt(socket, sockopt::ReceiveTimestampns, &false).map_err(io::Error::from)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn disable_timestamps(_socket: &Socket) -> io::Result<()> {
    Ok(())
}
