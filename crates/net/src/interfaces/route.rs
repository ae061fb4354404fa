//! Queries Linux for an IPv4 route over one device.
//!
//! A socket that is bound to a device can be connected to any IPv4 address: without a route the
//! kernel treats the destination as a neighbour on that device, and its packets end as unanswered
//! ARP requests. Only a query with `RTM_F_FIB_MATCH` (rtnetlink(7), since Linux 4.13) is answered
//! from the routes alone. IPv6 does not need this: there a socket bound to a device connects only
//! if that device has a route.
//!
//! The exchange is one request of 60 bytes and one answer with a single number of interest, so no
//! netlink library is used.

use std::io;
use std::net::Ipv4Addr;

use nix::net::if_::if_nametoindex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

// linux/netlink.h and linux/rtnetlink.h: constants of the kernel's user-space interface.
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_MARK: u16 = 16;
const AF_INET: u8 = 2;

/// Length of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;
const REQUEST_LEN: usize = HEADER_LEN + 12 + 4 * 8;

/// Size of the answer buffer. A longer answer would be truncated after the part of interest.
const ANSWER_LEN_MAX: usize = 4096;

/// Checks whether there is a route from `from` over `device` to `to` for packets with `mark`; 0 is none.
///
/// # Errors
/// `NetworkUnreachable` or `HostUnreachable` if there is none, `InvalidInput` if `from` is not an
/// address of this host, `NotFound` if there is no such device. If routes cannot be queried (in a
/// sandbox), the result is `Ok`.
pub(super) fn exists(from: Ipv4Addr, device: &str, to: Ipv4Addr, mark: u32) -> io::Result<()> {
    let index = if_nametoindex(device).map_err(|_| {
        io::Error::new(io::ErrorKind::NotFound, format!("there is no device {device}: `ip link` lists the devices"))
    })?;
    let Ok(socket) = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None) else {
        return Ok(());
    };
    send(&socket, &request(from, index, to, mark), SendFlags::empty())?;
    let mut answer = [0; ANSWER_LEN_MAX];
    // The kernel answers within the `send` call, so there is nothing to wait for.
    let (_, len) = recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    parse_answer(&answer[..len.min(ANSWER_LEN_MAX)])
}

fn request(from: Ipv4Addr, index: u32, to: Ipv4Addr, mark: u32) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    let mut rest = &mut bytes[..];
    let mut put = |field: &[u8]| {
        let (place, behind) = std::mem::take(&mut rest).split_at_mut(field.len());
        place.copy_from_slice(field);
        rest = behind;
    };
    put(&(REQUEST_LEN as u32).to_ne_bytes());
    put(&RTM_GETROUTE.to_ne_bytes());
    put(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port: there is one query per socket, so neither is checked.
    put(&[0; 8]);
    // `struct rtmsg`: full-length addresses, all tables.
    put(&[AF_INET, 32, 32, 0, 0, 0, 0, 0]);
    put(&RTM_F_FIB_MATCH.to_ne_bytes());
    for (kind, value) in [
        (RTA_DST, to.octets()),
        (RTA_SRC, from.octets()),
        (RTA_OIF, index.to_ne_bytes()),
        (RTA_MARK, mark.to_ne_bytes()),
    ] {
        put(&8_u16.to_ne_bytes());
        put(&kind.to_ne_bytes());
        put(&value);
    }
    bytes
}

fn parse_answer(answer: &[u8]) -> io::Result<()> {
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "unexpected answer of the kernel to a route query");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(RTM_NEWROUTE) => Ok(()),
        Some(NLMSG_ERROR) => {
            let code = answer.get(HEADER_LEN..HEADER_LEN + 4).and_then(|bytes| bytes.try_into().ok());
            let code = i32::from_ne_bytes(code.ok_or_else(unexpected)?);
            // The kernel sends negative error numbers; 0 would be an acknowledgement, which was not
            // requested.
            if code < 0 { Err(Errno::from_raw_os_error(-code).into()) } else { Err(unexpected()) }
        }
        _ => Err(unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_and_unexpected_answers_are_errors() {
        let mut refusal = [0; 36];
        refusal[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        refusal[16..20].copy_from_slice(&(-113_i32).to_ne_bytes());
        assert_eq!(parse_answer(&refusal).unwrap_err().raw_os_error(), Some(113));
        for len in 0..20 {
            assert_eq!(parse_answer(&refusal[..len]).unwrap_err().kind(), io::ErrorKind::InvalidData, "{len} bytes");
        }
        refusal[16..20].fill(0);
        assert!(parse_answer(&refusal).is_err(), "an acknowledgement is not a route");
        refusal[4..6].copy_from_slice(&RTM_NEWROUTE.to_ne_bytes());
        assert!(parse_answer(&refusal).is_ok());
    }

    #[test]
    fn loopback_has_a_route_only_to_itself() {
        exists(Ipv4Addr::LOCALHOST, "lo", Ipv4Addr::LOCALHOST, 0).unwrap();
        exists(Ipv4Addr::LOCALHOST, "lo", Ipv4Addr::new(192, 0, 2, 77), 0).unwrap_err();
        let error = exists(Ipv4Addr::LOCALHOST, "nosuch0", Ipv4Addr::LOCALHOST, 0).unwrap_err();
        assert!(error.kind() == io::ErrorKind::NotFound && error.to_string().contains("nosuch0"), "{error}");
    }
}
