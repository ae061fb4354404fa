//! Calls that send or receive packets, and where they have its parts in the memory of the caller.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

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

/// Bytes of a `struct mmsghdr` of 64 bits (recvmmsg(2)), and the place of a packet's length after its `msghdr`.
const ENTRY_LEN: u64 = 64;
const LEN_AT: u64 = 56;

/// Packets of one call that are sent or received. Its result says how many that were, and a program calls again for
/// further ones. More would hold up the answers to other calls.
const PACKETS_MAX: u64 = 64;

/// Receives what is there after a packet, and does not wait for more (MSG_WAITFORONE).
const WAIT_FOR_ONE: RecvFlags = RecvFlags::from_bits_retain(libc::MSG_WAITFORONE as u32);

/// The areas of memory that a packet may have (UIO_MAXIOV).
const AREAS_MAX: usize = 1024;

/// Bytes of a `struct iovec`.
const AREA_LEN: usize = 16;

/// Reads memory of the caller from an address on.
type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>;

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

/// Whether a call connects a socket of TCP by sending (TCP Fast Open). The kernel takes the flag from the
/// register.
pub(super) fn connects_by_sending(call: &Call) -> bool {
    matches!(call.syscall(), Syscall::SendTo | Syscall::SendMessage | Syscall::SendMessages)
        && flags_of(call.syscall(), |index| call.argument(index)) & libc::MSG_FASTOPEN as u32 != 0
}

/// The packets of a call that are sent or received.
pub(super) fn count(call: &Call) -> u64 {
    match call.syscall() {
        Syscall::SendMessages | Syscall::ReceiveMessages => u64::from(call.argument(2) as u32).min(PACKETS_MAX),
        _ => 1,
    }
}

/// The address that the first packet goes to; `None` if the call names none, or it is no address of IP. That is a
/// [glance](Call::glance).
pub(super) fn first_receiver(call: &Call) -> io::Result<Option<SocketAddr>> {
    if count(call) == 0 { Ok(None) } else { receiver(call, 0, &|at, buffer| call.glance(at, buffer)) }
}

/// The address that the packet with this index goes to, as [`first_receiver`].
pub(super) fn receiver(call: &Call, index: u64, read: Read<'_>) -> io::Result<Option<SocketAddr>> {
    let (name, len) = match call.syscall() {
        Syscall::SendTo => (call.argument(4), call.argument(5) as u32),
        Syscall::SendMessage | Syscall::SendMessages => {
            let mut header = [0; 12];
            read(header_of(call.syscall(), call.argument(1), index), &mut header)?;
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
    read(name, &mut bytes[..len])?;
    Ok(sockaddr::parse(&bytes[..len]))
}

/// Whether the program wants to know the sender of the first packet. That is a [glance](Call::glance).
pub(super) fn wants_sender(call: &Call) -> io::Result<bool> {
    match call.syscall() {
        Syscall::ReceiveFrom => Ok(call.argument(4) != 0),
        Syscall::ReceiveMessage | Syscall::ReceiveMessages if count(call) > 0 => {
            let mut name = [0; 8];
            call.glance(call.argument(1), &mut name)?;
            Ok(u64_at(&name, 0) != 0)
        }
        _ => Ok(false),
    }
}

/// The flags of a call that receives.
pub(super) fn receive_flags(call: &Call) -> RecvFlags {
    RecvFlags::from_bits_retain(flags_of(call.syscall(), |index| call.argument(index)))
}

/// Whether a call that receives waits for one packet at most.
pub(super) fn waits_for_one(call: &Call) -> bool {
    call.syscall() == Syscall::ReceiveMessages && receive_flags(call).contains(WAIT_FOR_ONE)
}

/// The time of a call of recvmmsg after which it receives no further packet.
///
/// # Errors
/// If it is no time.
pub(super) fn time_max(call: &Call) -> io::Result<Option<Duration>> {
    if call.syscall() != Syscall::ReceiveMessages || call.argument(4) == 0 {
        return Ok(None);
    }
    let mut bytes = [0; 16];
    call.read(call.argument(4), &mut bytes)?;
    let [seconds, nanos] = [0, 8].map(|at| u64_at(&bytes, at) as i64);
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Ok(Some(Duration::new(seconds, nanos))),
        _ => Err(Errno::INVAL.into()),
    }
}

/// Tells the program how much of that time is left.
///
/// # Errors
/// If the memory cannot be written.
pub(super) fn tell_time_left(call: &Call, left: Duration) -> io::Result<()> {
    let bytes = [left.as_secs(), left.subsec_nanos().into()].map(u64::to_ne_bytes).concat();
    call.with_caller(|caller| caller.write(call.argument(4), &bytes))
}

/// Tells the program the length of the packet with this index, where the call has several. Returns what the call
/// does if it is the last one.
///
/// # Errors
/// If the memory cannot be written.
pub(super) fn finish_packet(call: &Call, caller: &Thread, index: u64, len: i64) -> io::Result<i64> {
    let (Syscall::SendMessages | Syscall::ReceiveMessages) = call.syscall() else { return Ok(len) };
    let header = header_of(call.syscall(), call.argument(1), index);
    caller.write(header.wrapping_add(LEN_AT), &(len as u32).to_ne_bytes())?;
    Ok(index as i64 + 1)
}

/// Where the header of the packet with this index is, if those of the call begin at `first`.
const fn header_of(syscall: Syscall, first: u64, index: u64) -> u64 {
    match syscall {
        Syscall::SendMessages | Syscall::ReceiveMessages => first.wrapping_add(index.wrapping_mul(ENTRY_LEN)),
        _ => first,
    }
}

/// The flags among the arguments of a call.
fn flags_of(syscall: Syscall, argument: impl Fn(usize) -> u64) -> u32 {
    let index = match syscall {
        Syscall::SendMessage | Syscall::ReceiveMessage => 2,
        _ => 3,
    };
    argument(index) as u32
}

impl PacketCall {
    /// The parts of the packet with this index.
    ///
    /// # Errors
    /// If its memory cannot be read, or it has too many areas.
    pub(super) fn of(call: &Call, index: u64, read: Read<'_>) -> io::Result<Self> {
        let arguments = [0, 1, 2, 3, 4, 5].map(|index| call.argument(index));
        Self::read(call.syscall(), arguments, index, read)
    }

    fn read(syscall: Syscall, arguments: [u64; 6], index: u64, read: Read<'_>) -> io::Result<Self> {
        let flags = flags_of(syscall, |index| arguments[index]);
        let [_, first, second, _, fourth, fifth] = arguments;
        if let Syscall::SendTo | Syscall::ReceiveFrom = syscall {
            let areas = vec![(first, second)];
            return Ok(Self { name: fourth, name_len_place: fifth, areas, header: None, flags });
        }
        let at = header_of(syscall, first, index);
        let mut header = [0; HEADER_LEN];
        read(at, &mut header)?;
        let (place, count) = (u64_at(&header, AREAS_AT), u64_at(&header, AREAS_AT + 8));
        let count = usize::try_from(count).ok().filter(|count| *count <= AREAS_MAX).ok_or(Errno::MSGSIZE)?;
        let mut bytes = vec![0; count * AREA_LEN];
        read(place, &mut bytes)?;
        Ok(Self {
            name: u64_at(&header, 0),
            name_len_place: at.wrapping_add(NAME_LEN_AT),
            areas: bytes.chunks_exact(AREA_LEN).map(|area| (u64_at(area, 0), u64_at(area, 8))).collect(),
            header: Some(at),
            flags,
        })
    }

    /// The flags of a call that receives, for one packet.
    pub(super) const fn flags(&self) -> RecvFlags {
        RecvFlags::from_bits_retain(self.flags).difference(WAIT_FOR_ONE)
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
        let call = PacketCall::read(Syscall::ReceiveFrom, [3, 10, 20, 2, 30, 40], 0, &nothing).expect("a call");
        let expected = PacketCall { name: 30, name_len_place: 40, areas: vec![(10, 20)], header: None, flags: 2 };
        assert_eq!(call, expected);
        assert_eq!(call.len(), 20);
        // A header with two areas after it.
        let header = memory(&[7, 16, 1032, 2, 0x11, 1, 5, 2000]);
        let call = PacketCall::read(Syscall::ReceiveMessage, [3, 1000, 0x22, 9, 9, 9], 0, &read_in(&header));
        let areas = vec![(0x11, 1), (5, 2000)];
        let expected = PacketCall { name: 7, name_len_place: 1008, areas, header: Some(1000), flags: 0x22 };
        assert_eq!(call.expect("a call"), expected);
        assert_eq!(expected.len(), 2001);
    }

    #[test]
    fn the_packets_of_a_call_follow_each_other() {
        let first = [7, 16, 1128, 1, 0, 0, 0, 0];
        let second = [8, 28, 1136, 1, 0, 0, 0, 0];
        let memory = memory(&[&first[..], &second, &[5, 6]].concat());
        for syscall in [Syscall::SendMessages, Syscall::ReceiveMessages] {
            let arguments = [3, 1000, 2, 0x40, 0, 0];
            let call = PacketCall::read(syscall, arguments, 0, &read_in(&memory)).expect("a packet");
            let areas = vec![(5, 6)];
            assert_eq!(call, PacketCall { name: 7, name_len_place: 1008, areas, header: Some(1000), flags: 0x40 });
            // Its area is not there.
            assert!(PacketCall::read(syscall, arguments, 1, &read_in(&memory)).is_err());
            for index in [2, 3, u64::MAX, u64::MAX / ENTRY_LEN] {
                assert!(PacketCall::read(syscall, arguments, index, &read_in(&memory)).is_err(), "{index}");
            }
        }
    }

    #[test]
    fn headers_that_are_none_are_errors() {
        let errno = |arguments: [u64; 6], memory: &[u8]| {
            let error = PacketCall::read(Syscall::SendMessage, arguments, 0, &read_in(memory)).expect_err("an error");
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
        let call = PacketCall::read(Syscall::SendMessage, [3, 1000, 0, 0, 0, 0], 0, &read_in(&endless));
        assert_eq!(call.expect("a call").len(), u64::MAX);
    }
}
