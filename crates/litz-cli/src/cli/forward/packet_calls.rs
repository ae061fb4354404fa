//! Calls that send or receive one packet, and where they have its parts in the memory of the caller.

use std::io;
use std::net::SocketAddr;

use intercept::{Call, Syscall, Thread, sockaddr};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::calls::write_address;

/// Places in a `struct msghdr` of 64 bits (recvmsg(2)).
const NAME_LEN_AT: u64 = 8;
const AREAS_AT: usize = 16;
const CONTROL_LEN_AT: u64 = 40;
const FLAGS_AT: u64 = 48;

/// Bytes of the longest address.
const NAME_LEN_MAX: u32 = 128;

/// The bytes of it that are read: an address, and the list of areas.
const HEADER_LEN: usize = 32;

/// The areas of memory that a packet may have (UIO_MAXIOV).
const AREAS_MAX: usize = 1024;

/// Bytes of a `struct iovec`.
const AREA_LEN: usize = 16;

/// The parts of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PacketCall {
    /// Where its address is, or is written; 0 if the program has none.
    name: u64,
    /// Where the length of an address that is written stands.
    name_len_place: u64,
    /// The areas of memory with the packet: where, and how long.
    areas: Vec<(u64, u64)>,
    /// The header of recvmsg and sendmsg.
    header: Option<u64>,
    flags: u32,
}

/// The address that the packet goes to; `None` if the call names none, or it is no address of IP. That is a
/// [glance](Call::glance).
pub(super) fn receiver(call: &Call) -> io::Result<Option<SocketAddr>> {
    let (name, len) = match call.syscall() {
        Syscall::SendTo => (call.argument(4), call.argument(5) as u32),
        Syscall::SendMessage => {
            let mut header = [0; 12];
            call.glance(call.argument(1), &mut header)?;
            (u64_at(&header, 0), u32_at(&header, NAME_LEN_AT as usize))
        }
        _ => return Ok(None),
    };
    // The kernel takes an int, and refuses longer ones (`struct sockaddr_storage`).
    if name == 0 || len > NAME_LEN_MAX {
        return Ok(None);
    }
    let len = (len as usize).min(sockaddr::LEN_MAX);
    let mut bytes = [0; sockaddr::LEN_MAX];
    call.glance(name, &mut bytes[..len])?;
    Ok(sockaddr::parse(&bytes[..len]))
}

/// Whether the program wants to know the sender of a packet. That is a [glance](Call::glance).
pub(super) fn wants_sender(call: &Call) -> io::Result<bool> {
    match call.syscall() {
        Syscall::ReceiveFrom => Ok(call.argument(4) != 0),
        Syscall::ReceiveMessage => {
            let mut name = [0; 8];
            call.glance(call.argument(1), &mut name)?;
            Ok(u64_at(&name, 0) != 0)
        }
        _ => Ok(false),
    }
}

impl PacketCall {
    /// The parts of this call.
    ///
    /// # Errors
    /// If its memory cannot be read, or it has too many areas.
    pub(super) fn of(call: &Call, caller: &Thread) -> io::Result<Self> {
        let arguments = [0, 1, 2, 3, 4, 5].map(|index| call.argument(index));
        Self::read(call.syscall(), arguments, &|at, buffer| caller.read(at, buffer))
    }

    fn read(
        syscall: Syscall,
        arguments: [u64; 6],
        read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let [_, first, second, third, fourth, fifth] = arguments;
        if let Syscall::SendTo | Syscall::ReceiveFrom = syscall {
            let (areas, flags) = (vec![(first, second)], third as u32);
            return Ok(Self { name: fourth, name_len_place: fifth, areas, header: None, flags });
        }
        let mut header = [0; HEADER_LEN];
        read(first, &mut header)?;
        let (place, count) = (u64_at(&header, AREAS_AT), u64_at(&header, AREAS_AT + 8));
        let count = usize::try_from(count).ok().filter(|count| *count <= AREAS_MAX).ok_or(Errno::MSGSIZE)?;
        let mut bytes = vec![0; count * AREA_LEN];
        read(place, &mut bytes)?;
        Ok(Self {
            name: u64_at(&header, 0),
            name_len_place: first.wrapping_add(NAME_LEN_AT),
            areas: bytes.chunks_exact(AREA_LEN).map(|area| (u64_at(area, 0), u64_at(area, 8))).collect(),
            header: Some(first),
            flags: second as u32,
        })
    }

    /// The flags of a call that receives.
    pub(super) const fn flags(&self) -> RecvFlags {
        RecvFlags::from_bits_retain(self.flags)
    }

    /// The bytes that there are, or that have space.
    pub(super) fn len(&self) -> u64 {
        self.areas.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len))
    }

    /// The packet that is sent, which has at most `len_max` bytes.
    ///
    /// # Errors
    /// If it is longer, or cannot be read.
    pub(super) fn bytes(&self, caller: &Thread, len_max: usize) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len()).ok().filter(|len| *len <= len_max).ok_or(Errno::MSGSIZE)?;
        let mut bytes = vec![0; len];
        let mut rest = &mut bytes[..];
        for &(place, len) in &self.areas {
            let (part, others) = rest.split_at_mut(len as usize);
            caller.read(place, part)?;
            rest = others;
        }
        Ok(bytes)
    }

    /// Hands over a packet that was received, of which `len` bytes have come, and its sender. Returns what the call
    /// does.
    ///
    /// # Errors
    /// If the memory cannot be written.
    pub(super) fn hand_over(
        &self,
        caller: &Thread,
        bytes: &[u8],
        len: usize,
        sender: Option<SocketAddr>,
    ) -> io::Result<i64> {
        let mut rest = bytes;
        for &(place, space) in &self.areas {
            let (part, others) = rest.split_at(rest.len().min(usize::try_from(space).unwrap_or(usize::MAX)));
            if !part.is_empty() {
                caller.write(place, part)?;
            }
            rest = others;
        }
        if let Some(sender) = sender.filter(|_| self.name != 0) {
            write_address(caller, self.name, self.name_len_place, sender)?;
        }
        if let Some(header) = self.header {
            // There is no control data.
            caller.write(header.wrapping_add(CONTROL_LEN_AT), &[0; 8])?;
            let flags = if len > bytes.len() { RecvFlags::TRUNC.bits() } else { 0 };
            caller.write(header.wrapping_add(FLAGS_AT), &flags.to_ne_bytes())?;
        }
        let is_whole_len = self.flags().contains(RecvFlags::TRUNC);
        Ok(if is_whole_len { len } else { bytes.len() } as i64)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a caller that begins at address 1000.
    fn read_in(memory: &[u8]) -> impl Fn(u64, &mut [u8]) -> io::Result<()> {
        move |at: u64, buffer: &mut [u8]| {
            let at = usize::try_from(at.checked_sub(1000).ok_or(Errno::FAULT)?).map_err(|_| Errno::FAULT)?;
            let bytes = memory.get(at..).and_then(|bytes| bytes.get(..buffer.len())).ok_or(Errno::FAULT)?;
            buffer.copy_from_slice(bytes);
            Ok(())
        }
    }

    fn memory(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn the_parts_of_a_packet_are_found() {
        let nothing = read_in(&[]);
        let call = PacketCall::read(Syscall::ReceiveFrom, [3, 10, 20, 2, 30, 40], &nothing).expect("a call");
        let expected = PacketCall { name: 30, name_len_place: 40, areas: vec![(10, 20)], header: None, flags: 2 };
        assert_eq!(call, expected);
        assert_eq!(call.len(), 20);
        // A header with two areas after it.
        let header = memory(&[7, 16, 1032, 2, 0x11, 1, 5, 2000]);
        let call = PacketCall::read(Syscall::ReceiveMessage, [3, 1000, 0x22, 9, 9, 9], &read_in(&header));
        let areas = vec![(0x11, 1), (5, 2000)];
        let expected = PacketCall { name: 7, name_len_place: 1008, areas, header: Some(1000), flags: 0x22 };
        assert_eq!(call.expect("a call"), expected);
        assert_eq!(expected.len(), 2001);
    }

    #[test]
    fn headers_that_are_none_are_errors() {
        let errno = |arguments: [u64; 6], memory: &[u8]| {
            let error = PacketCall::read(Syscall::SendMessage, arguments, &read_in(memory)).expect_err("an error");
            Errno::from_io_error(&error)
        };
        let whole = memory(&[7, 16, 1032, 2, 1, 1, 2, 2]);
        for at in [0, 999, 1033, 1064, u64::MAX] {
            assert_eq!(errno([3, at, 0, 0, 0, 0], &whole), Some(Errno::FAULT), "{at}");
        }
        // Too many areas, and areas that are nowhere.
        for count in [1025, u64::MAX, 1 << 60] {
            assert_eq!(errno([3, 1000, 0, 0, 0, 0], &memory(&[0, 0, 1032, count])), Some(Errno::MSGSIZE), "{count}");
        }
        assert_eq!(errno([3, 1000, 0, 0, 0, 0], &memory(&[0, 0, 1032, 1024])), Some(Errno::FAULT));
        assert_eq!(errno([3, 1000, 0, 0, 0, 0], &memory(&[0, 0, 0, 1])), Some(Errno::FAULT));
        let endless = memory(&[0, 0, 1032, 2, 1, u64::MAX, 1, u64::MAX]);
        let call = PacketCall::read(Syscall::SendMessage, [3, 1000, 0, 0, 0, 0], &read_in(&endless)).expect("a call");
        assert_eq!(call.len(), u64::MAX);
    }
}
