//! Socket addresses in the format of the kernel and programs (`struct sockaddr_in`, `sockaddr_in6`
//! and `sockaddr_un`).

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

/// Length of the longest address here: a family, and a path of a UNIX socket (unix(7)).
pub const LEN_MAX: usize = 110;

const V4_LEN: usize = 16;
const V6_LEN: usize = 28;
/// Length without the scope, which programs may leave out (RFC 2553).
const V6_LEN_MIN: usize = 24;

/// Parses an address of IP version 4 or 6; returns `None` for other families, or if it is too
/// short.
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

/// Parses the path of a UNIX socket; returns `None` for other families, or if the socket has no
/// path.
#[must_use]
pub fn unix_path(bytes: &[u8]) -> Option<&Path> {
    let (family, path) = bytes.split_first_chunk()?;
    // The path may end with a zero, or with the address.
    let path = path.split(|byte| *byte == 0).next().filter(|path| !path.is_empty())?;
    (i32::from(u16::from_ne_bytes(*family)) == libc::AF_UNIX).then(|| Path::new(OsStr::from_bytes(path)))
}

/// Encodes an address.
#[must_use]
pub fn emit(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(V6_LEN);
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

/// Connects a socket to the encoded address that a program passed: connect(2).
///
/// # Errors
/// Returns the errors of connect(2).
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(address.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `len` bytes of `address`, which is borrowed until it returns, whatever they mean.
    match unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
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

    #[test]
    fn the_path_of_a_unix_socket_is_read_with_and_without_its_end() {
        let address = |path: &[u8]| [&(libc::AF_UNIX as u16).to_ne_bytes(), path].concat();
        for path in [&b"/run/x"[..], b"/run/x\0", b"/run/x\0rest"] {
            assert_eq!(unix_path(&address(path)), Some(Path::new("/run/x")));
        }
        // No name, and an abstract one.
        for path in [&b""[..], b"\0abstract"] {
            assert_eq!(unix_path(&address(path)), None);
        }
        assert_eq!(unix_path(&emit("10.1.2.3:80".parse().unwrap())), None);
        assert_eq!(unix_path(b""), None);
        assert_eq!(unix_path(b"\x01"), None);
    }
}
