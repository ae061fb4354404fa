//! Kernel requests for addresses and routes (rtnetlink(7)).

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Buffer size: the kernel fills buffers of up to 32 KiB with the messages of a dump (netlink(7)).
const BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of reads of a table: the kernel marks a dump during which the table has changed,
/// which is then read again. A later change is reported anyway.
const READS_MAX: u32 = 4;

/// Value of NLM_F_DUMP_INTR (linux/netlink.h).
const INTERRUPTED: u16 = 0x10;

/// Length of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

/// Requests a change, with further flags of the request.
///
/// # Errors
/// The system's error.
pub(crate) fn change(request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    exchange(&bytes_of(request, NLM_F_REQUEST | NLM_F_ACK | flags)).map(drop)
}

/// Reads a table of the kernel.
pub(crate) fn dump(request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let bytes = bytes_of(request, NLM_F_REQUEST | NLM_F_DUMP);
    for read in 1.. {
        let (found, is_whole) = exchange(&bytes)?;
        if is_whole || read == READS_MAX {
            return Ok(found);
        }
    }
    unreachable!("the loop returns")
}

fn bytes_of(request: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(request));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

/// Sends a request. Returns the messages of the answer, and whether the table remained unchanged in
/// the meantime.
fn exchange(request: &[u8]) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, request, SendFlags::empty())?;
    let (mut buffer, mut found, mut is_whole) = (vec![0; BUFFER_BYTES], Vec::new(), true);
    loop {
        let len = match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, len)) => len.min(BUFFER_BYTES),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            // A message that this version of the crate cannot parse does not matter, except for its
            // length.
            let len = rest.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len) as usize);
            let Some(one) = rest.get(..len).filter(|one| one.len() >= HEADER_BYTES) else { break };
            is_whole &= u16::from_ne_bytes([one[6], one[7]]) & INTERRUPTED == 0;
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one).map(|message| message.payload) {
                Ok(NetlinkPayload::Done(_)) => return Ok((found, is_whole)),
                Ok(NetlinkPayload::Error(error)) if error.code.is_none() => return Ok((found, is_whole)),
                Ok(NetlinkPayload::Error(error)) => return Err(error.to_io()),
                Ok(NetlinkPayload::InnerMessage(message)) => found.push(message),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "a message of the kernel about addresses or routes was not read"),
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}
