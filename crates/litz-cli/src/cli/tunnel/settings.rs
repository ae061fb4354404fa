//! What the commands of `litz tunnel` share: defaults and the transport.

use forwarding::session;
use litz::TransportConfig;
use tunnel::Prefix;
use tunnel::own_networks::local_kind;
use units::{Duration, Rate};

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

/// The name of the device, if the user gives none.
pub(super) const DEVICE_DEFAULT: &str = "litz0";

/// The longest name of a device: IFNAMSIZ of Linux, less its closing zero.
const DEVICE_NAME_BYTES_MAX: usize = 15;

/// Reads the name of a network device.
///
/// # Errors
/// A message for the user.
pub(super) fn device_name(text: &str) -> Result<String, String> {
    let is_part = |letter: char| !letter.is_whitespace() && !letter.is_control() && !['/', ':', '%'].contains(&letter);
    if text.len() > DEVICE_NAME_BYTES_MAX {
        return Err(format!("the name of a network device has at most {DEVICE_NAME_BYTES_MAX} bytes"));
    }
    if ["", ".", ".."].contains(&text) || !text.chars().all(is_part) {
        // The kernel replaces %d by a number, and `litz tunnel down` could not name the device then.
        return Err("it is no name of a network device: no spaces, slashes, colons or %".to_owned());
    }
    Ok(text.to_owned())
}

/// Reads a network whose packets a server may get.
///
/// # Errors
/// A message for the user.
pub(super) fn accepted_route(text: &str) -> Result<Prefix, String> {
    let prefix: Prefix = text.parse().map_err(|error: tunnel::prefix::NotAPrefix| error.to_string())?;
    if prefix.bits() == 0 {
        return Err("these are all addresses: --all sends all packets through the tunnel".to_owned());
    }
    if let Some(kind) = local_kind(&prefix) {
        return Err(format!("{prefix} is {kind}, which no tunnel takes"));
    }
    Ok(prefix)
}

/// Reads the largest rate of a client.
///
/// # Errors
/// A message for the user. The rate of 0 stands for no limit in the protocol.
pub(super) fn client_rate(text: &str) -> Result<Rate, String> {
    let rate = text.parse::<Rate>().map_err(|error| {
        let why = error.to_string();
        why.split_once(": ").map_or(why.clone(), |(_, expected)| expected.to_owned())
    })?;
    if rate.is_zero() {
        return Err("0 is no rate; leave it out for clients that are not limited".to_owned());
    }
    Ok(rate)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_those_that_linux_takes() {
        for name in ["litz0", "wg.home-1", "fifteen-letters"] {
            assert_eq!(device_name(name).as_deref(), Ok(name));
        }
        for (name, words) in [
            ("sixteen-letters-", "at most 15"),
            ("", "no name"),
            ("a b", "no name"),
            ("a/b", "no name"),
            ("litz%d", "colons or %"),
        ] {
            assert!(device_name(name).is_err_and(|error| error.contains(words)), "{name}");
        }
    }

    #[test]
    fn a_route_that_no_tunnel_takes_cannot_be_accepted() {
        assert_eq!(accepted_route("192.168.1.7"), Ok("192.168.1.7/32".parse().unwrap()));
        assert!(accepted_route("128.0.0.0/1").is_ok());
        for (text, words) in [
            ("::/0", "--all"),
            ("169.254.169.254", "addresses of the link alone, which no tunnel takes"),
            ("224.0.0.0/8", "multicast"),
            ("10.0.0.0/33", "is no network"),
        ] {
            assert!(accepted_route(text).is_err_and(|error| error.contains(words)), "{text}");
        }
    }

    #[test]
    fn a_rate_of_0_is_refused_because_it_would_be_no_limit() {
        assert_eq!(client_rate("20Mb/s"), Ok(Rate::from_mbps(20)));
        assert!(client_rate("0").is_err_and(|error| error.contains("not limited")));
        assert!(client_rate("0.4b/s").is_err_and(|error| error.contains("not limited")));
        assert!(client_rate("fast").is_err_and(|error| error.starts_with("expected a rate")));
    }
}
