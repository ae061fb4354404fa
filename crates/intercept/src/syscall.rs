//! System calls that can be intercepted.

/// A system call that can be intercepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Syscall {
    /// connect(2).
    Connect,
    /// getpeername(2).
    GetPeerName,
    /// getsockname(2).
    GetSockName,
    /// getsockopt(2), only for the error of a socket (SO_ERROR).
    SocketError,
    /// accept(2), only where it names the peer.
    Accept,
    /// accept4(2), only where it names the peer.
    Accept4,
    /// recvfrom(2), only where it names the sender.
    ReceiveFrom,
    /// recvmsg(2). Memory determines whether it names the sender, and no filter can read memory.
    ReceiveMessage,
    /// recvmmsg(2), like [`ReceiveMessage`](Self::ReceiveMessage).
    ReceiveMessages,
    /// sendto(2), only where it names the receiver.
    SendTo,
    /// sendmsg(2), like [`ReceiveMessage`](Self::ReceiveMessage).
    SendMessage,
    /// sendmmsg(2), like [`ReceiveMessage`](Self::ReceiveMessage).
    SendMessages,
    /// sendto(2), only where it connects (MSG_FASTOPEN). Received calls are reported as
    /// [`SendTo`](Self::SendTo).
    FastOpenTo,
    /// sendmsg(2), like [`FastOpenTo`](Self::FastOpenTo).
    FastOpenMessage,
    /// sendmmsg(2), like [`FastOpenTo`](Self::FastOpenTo).
    FastOpenMessages,
}

/// Conditions under which a system call is intercepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    None,
    /// The arguments with these indices equal these 32-bit numbers.
    Are([(usize, u32); 2]),
    /// The pointer with this index is not null.
    IsPointer(usize),
    /// The argument with this index has this flag.
    HasFlag(usize, u32),
}

impl Syscall {
    /// All calls.
    pub const ALL: [Self; 15] = [
        Self::Connect,
        Self::GetPeerName,
        Self::GetSockName,
        Self::SocketError,
        Self::Accept,
        Self::Accept4,
        Self::ReceiveFrom,
        Self::ReceiveMessage,
        Self::ReceiveMessages,
        Self::SendTo,
        Self::SendMessage,
        Self::SendMessages,
        Self::FastOpenTo,
        Self::FastOpenMessage,
        Self::FastOpenMessages,
    ];

    pub(crate) const fn number(self) -> u32 {
        (match self {
            Self::Connect => libc::SYS_connect,
            Self::GetPeerName => libc::SYS_getpeername,
            Self::GetSockName => libc::SYS_getsockname,
            Self::SocketError => libc::SYS_getsockopt,
            Self::Accept => libc::SYS_accept,
            Self::Accept4 => libc::SYS_accept4,
            Self::ReceiveFrom => libc::SYS_recvfrom,
            Self::ReceiveMessage => libc::SYS_recvmsg,
            Self::ReceiveMessages => libc::SYS_recvmmsg,
            Self::SendTo | Self::FastOpenTo => libc::SYS_sendto,
            Self::SendMessage | Self::FastOpenMessage => libc::SYS_sendmsg,
            Self::SendMessages | Self::FastOpenMessages => libc::SYS_sendmmsg,
        }) as u32
    }

    pub(crate) const fn condition(self) -> Condition {
        match self {
            Self::Connect
            | Self::GetPeerName
            | Self::GetSockName
            | Self::ReceiveMessage
            | Self::ReceiveMessages
            | Self::SendMessage
            | Self::SendMessages => Condition::None,
            Self::SocketError => Condition::Are([(1, libc::SOL_SOCKET as u32), (2, libc::SO_ERROR as u32)]),
            Self::Accept | Self::Accept4 => Condition::IsPointer(1),
            Self::ReceiveFrom | Self::SendTo => Condition::IsPointer(4),
            Self::FastOpenMessage => Condition::HasFlag(2, libc::MSG_FASTOPEN as u32),
            Self::FastOpenTo | Self::FastOpenMessages => Condition::HasFlag(3, libc::MSG_FASTOPEN as u32),
        }
    }

    pub(crate) fn of(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|syscall| u32::try_from(number) == Ok(syscall.number()))
    }
}
