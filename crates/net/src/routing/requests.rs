//! Kernel requests and answers.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Maximum number of reads of a table that changes in the meantime.
const DUMPS_MAX: u32 = 5;

/// Length of a netlink header, and alignment of messages.
const HEADER_LEN: usize = 16;
const ALIGN: usize = 4;

/// Requests a change from the kernel.
pub(super) fn ask(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags).map(drop)
}

/// Reads a table.
pub(super) fn dump(message: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    for _ in 1..DUMPS_MAX {
        let (messages, is_whole) = exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
        if is_whole {
            return Ok(messages);
        }
    }
    // The table changes all the time: the next read sees what this one has missed.
    exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP).map(|(messages, _)| messages)
}

/// Sends a request and reads its answers; returns false if the table has changed in the meantime.
fn exchange(message: RouteNetlinkMessage, flags: u16) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = 1;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (mut answers, mut is_whole) = (Vec::new(), true);
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while rest.len() >= HEADER_LEN {
            let len = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let invalid =
                || io::Error::new(io::ErrorKind::InvalidData, "the kernel sent a netlink message of no length");
            let one = rest.get(..len).filter(|one| one.len() >= HEADER_LEN).ok_or_else(invalid)?;
            rest = rest.get(len.next_multiple_of(ALIGN)..).unwrap_or(&[]);
            is_whole &= u16::from_ne_bytes([one[6], one[7]]) & NLM_F_DUMP_INTR == 0;
            // A message that this version of the library cannot parse was not set by this module.
            let Ok(answer) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(one) else { continue };
            match answer.payload {
                NetlinkPayload::Done(_) => return Ok((answers, is_whole)),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok((answers, is_whole)),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                _ => {}
            }
        }
    }
}
