//! Socket addresses as the kernel and programs write them (`struct sockaddr_in` and `sockaddr_in6`).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of the longest address here.
pub const LEN_MAX: usize = 28;

const V4_LEN: usize = 16;
/// Without the scope, which programs may leave out (RFC 2553).
const V6_LEN_MIN: usize = 24;

/// Reads an address of IP version 4 or 6; none of another family, or if it is too short.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = || Some(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?));
    match family {
        libc::AF_INET if bytes.len() >= V4_LEN => {
            let ip = Ipv4Addr::from(*bytes[4..].first_chunk::<4>()?);
            Some(SocketAddrV4::new(ip, port()?).into())
        }
        libc::AF_INET6 if bytes.len() >= V6_LEN_MIN => {
            let flow = u32::from_ne_bytes(*bytes[4..].first_chunk()?);
            let ip = Ipv6Addr::from(*bytes[8..].first_chunk::<16>()?);
            let scope = bytes[24..].first_chunk().map_or(0, |scope| u32::from_ne_bytes(*scope));
            Some(SocketAddrV6::new(ip, port()?, flow, scope).into())
        }
        _ => None,
    }
}

/// An address as bytes.
#[must_use]
pub fn emit(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LEN_MAX);
    match address {
        SocketAddr::V4(address) => {
            bytes.extend((libc::AF_INET as u16).to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend(address.ip().octets());
            bytes.resize(V4_LEN, 0);
        }
        SocketAddr::V6(address) => {
            bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend(address.flowinfo().to_ne_bytes());
            bytes.extend(address.ip().octets());
            bytes.extend(address.scope_id().to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["10.1.2.3:80", "[fd00::1%3]:65535", "[::ffff:10.0.0.1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = emit(address);
            assert_eq!(parse(&bytes), Some(address));
            for len in 0..bytes.len() {
                let is_whole = address.is_ipv6() && len >= V6_LEN_MIN;
                assert_eq!(parse(&bytes[..len]).is_some(), is_whole, "{text} {len}");
            }
        }
    }

    #[test]
    fn other_families_are_none_of_ours() {
        let mut unix = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        unix.extend(b"/run/socket-with-a-long-name\0");
        assert_eq!(parse(&unix), None);
        assert_eq!(parse(&[0; LEN_MAX]), None);
    }
}
