//! Attributes that Linux stores with a device, in addition to the results of `getifaddrs`: its
//! kind, such as `dummy`, and its alias, a text shown by `ip link`.
//!
//! Every user can read the attributes in the network namespace of the device; only a process with
//! `CAP_NET_ADMIN` can set the alias. The alias follows the device, even to another namespace.
//!
//! The exchange is one request and one answer with a single attribute of interest, so no netlink
//! library is used.

use std::io;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

// linux/netlink.h, linux/rtnetlink.h and linux/if_link.h: constants of the kernel's user-space interface.
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_INFO_KIND: u16 = 1;

/// Mask of the kind of an attribute; the upper bits are flags, for example for nested attributes.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Length of `struct nlmsghdr` and `struct ifinfomsg`.
const HEADER_LEN: usize = 16;
const LINK_LEN: usize = 16;

/// Length of `struct rtattr`.
const ATTRIBUTE_LEN: usize = 4;

/// Maximum length of an answer: the kernel's buffer for a message (NLMSG_GOODSIZE) is smaller.
const ANSWER_LEN_MAX: usize = 32 << 10;

/// Returns the alias of the device with this index; `None` if it has none or is gone, or if the
/// system refuses the query (in a sandbox).
pub(super) fn alias(index: u32) -> Option<String> {
    let answer = exchange(&message(RTM_GETLINK, NLM_F_REQUEST, index, None)).ok()?;
    text(attribute(attributes(&answer)?, IFLA_IFALIAS)?)
}

/// Returns the kind of the device with this index, such as `dummy` or `veth`; `None` for network
/// cards, for loopback, and where [`alias`] returns `None`.
pub(super) fn kind(index: u32) -> Option<String> {
    kind_in(&exchange(&message(RTM_GETLINK, NLM_F_REQUEST, index, None)).ok()?)
}

/// Sets the alias of the device with this index.
///
/// # Errors
/// The system's error: `PermissionDenied` without `CAP_NET_ADMIN`.
pub(crate) fn set_alias(index: u32, alias: &str) -> io::Result<()> {
    let answer = exchange(&message(RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, index, Some(alias)))?;
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "unexpected answer of the kernel to a new alias");
    if u16_at(&answer, 4) != Some(NLMSG_ERROR) {
        return Err(unexpected());
    }
    let code = answer.get(HEADER_LEN..HEADER_LEN + 4).and_then(|bytes| bytes.try_into().ok());
    match code.map(i32::from_ne_bytes).ok_or_else(unexpected)? {
        0 => Ok(()),
        // The kernel sends negative error numbers.
        code if code < 0 => Err(Errno::from_raw_os_error(code.saturating_neg()).into()),
        _ => Err(unexpected()),
    }
}

fn exchange(request: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, request, SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_LEN_MAX];
    // The kernel answers within the `send` call, so there is nothing to wait for.
    let (_, len) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    answer.truncate(len);
    Ok(answer)
}

fn message(kind: u16, flags: u16, index: u32, alias: Option<&str>) -> Vec<u8> {
    let attribute_len = alias.map_or(0, |alias| ATTRIBUTE_LEN + alias.len());
    let mut bytes = Vec::with_capacity(HEADER_LEN + LINK_LEN + attribute_len.next_multiple_of(4));
    bytes.extend([0; 4]);
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and port: there is one request per socket, so neither is checked. The family
    // and the type of the device follow: any.
    bytes.extend([0; 8 + 4]);
    bytes.extend(index.to_ne_bytes());
    // Flags and their change mask: none.
    bytes.extend([0; 8]);
    if let Some(alias) = alias {
        bytes.extend((attribute_len as u16).to_ne_bytes());
        bytes.extend(IFLA_IFALIAS.to_ne_bytes());
        bytes.extend(alias.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// Returns the attributes of a message about a device.
fn attributes(message: &[u8]) -> Option<&[u8]> {
    if u16_at(message, 4) != Some(RTM_NEWLINK) {
        return None;
    }
    message.get(HEADER_LEN + LINK_LEN..)
}

fn kind_in(message: &[u8]) -> Option<String> {
    text(attribute(attribute(attributes(message)?, IFLA_LINKINFO)?, IFLA_INFO_KIND)?)
}

/// Returns the value of the first attribute of this kind. Attributes follow each other, each with
/// its length and kind.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (len, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)? & NLA_TYPE_MASK);
        let value = rest.get(ATTRIBUTE_LEN..len)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// Returns a text, which the kernel terminates with a zero byte.
fn text(value: &[u8]) -> Option<String> {
    String::from_utf8(value.strip_suffix(&[0]).unwrap_or(value).to_vec()).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_no_bytes_panic() {
        let alias_in = |answer: &[u8]| text(attribute(attributes(answer)?, IFLA_IFALIAS)?);
        let mut answer = message(RTM_NEWLINK, 0, 7, None);
        // A name of five bytes, which is padded, then the alias.
        answer.extend([9_u16.to_ne_bytes(), 3_u16.to_ne_bytes()].concat());
        answer.extend(*b"eth0\0\0\0\0");
        let before = answer.len();
        answer.extend([7_u16.to_ne_bytes(), IFLA_IFALIAS.to_ne_bytes()].concat());
        answer.extend(*b"up\0");
        assert_eq!((alias_in(&answer).as_deref(), kind_in(&answer)), (Some("up"), None));
        for len in 0..answer.len() {
            assert_eq!(alias_in(&answer[..len]), None, "{len} bytes");
        }
        // This length leads nowhere.
        answer[before..before + 2].fill(0);
        assert_eq!(alias_in(&answer), None);
        // The kind lies in another attribute.
        answer.truncate(before);
        answer.extend([16_u16.to_ne_bytes(), (IFLA_LINKINFO | 0x8000).to_ne_bytes()].concat());
        answer.extend([10_u16.to_ne_bytes(), IFLA_INFO_KIND.to_ne_bytes()].concat());
        answer.extend(*b"dummy\0\0\0");
        assert_eq!(kind_in(&answer).as_deref(), Some("dummy"));
        for len in 0..answer.len() {
            assert_eq!(kind_in(&answer[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn loopback_has_neither_and_no_device_has_index_0() {
        let loopback = nix::net::if_::if_nametoindex("lo").expect("loopback");
        assert_eq!((alias(loopback), kind(loopback)), (None, None));
        assert_eq!((alias(0), kind(0)), (None, None));
        assert!(set_alias(0, "x").is_err());
    }
}
