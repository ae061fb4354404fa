//! What the commands of `litz tunnel` share: defaults and the transport.

use litz::TransportConfig;
use units::Duration;

use crate::cli::forward::session;
use crate::cli::recording::Recording;
use crate::cli::transport_options::TransportOptions;

/// Bytes of datagrams that wait in a connection, at most, if its paths are fast; four batches of what is
/// sent with one system call. Others wait in the queues of the tunnel, where flows are separate.
const DATAGRAM_SEND_BUFFER: u64 = 256 << 10;

/// Bytes of received datagrams that wait for the thread that writes them to the device.
const DATAGRAM_RECEIVE_BUFFER: u64 = 4 << 20;

/// Interval of PINGs. A server that was started again is noticed by the answer to the next one, and inner
/// connections stand still until then.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// The size of inner packets that fits a datagram of a path with Ethernet's MTU, with IPv6 and all headers.
pub(super) const MTU_DEFAULT: u16 = 1400;

/// The smallest MTU of IPv6 (RFC 8200, section 5).
pub(super) const MTU_MIN: u16 = 1280;

/// The name of the device, if the user gives none.
pub(super) const DEVICE_DEFAULT: &str = "litz0";

/// Tells systemd that the tunnel is there, which it waits for if the unit says Type=notify. Elsewhere nothing
/// is done.
pub(super) fn tell_ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "cannot tell the service manager that the tunnel is ready");
    }
}

/// The transport configuration of a tunnel.
///
/// # Errors
/// If the options do not fit together.
pub(super) fn transport(options: &TransportOptions, recording: &Recording) -> Result<TransportConfig, String> {
    let config = session::transport(recording.transport(options))
        .with_keep_alive(KEEP_ALIVE)
        .with_datagram_send_buffer(DATAGRAM_SEND_BUFFER)
        .with_datagram_receive_buffer(DATAGRAM_RECEIVE_BUFFER);
    config.validate()?;
    Ok(config)
}
