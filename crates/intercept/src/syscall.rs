//! The system calls that can be taken over.

/// A system call that can be taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syscall {
    /// connect(2).
    Connect,
    /// getpeername(2).
    GetPeerName,
}

impl Syscall {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Connect, Self::GetPeerName];

    pub(crate) const fn number(self) -> u32 {
        (match self {
            Self::Connect => libc::SYS_connect,
            Self::GetPeerName => libc::SYS_getpeername,
        }) as u32
    }

    pub(crate) fn of(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|syscall| u32::try_from(number) == Ok(syscall.number()))
    }
}
