//! Socket options.

use crate::socket::Errno;

/// The options that have been set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) is_nodelay: bool,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) send_buffer: Option<usize>,
    /// Bytes of data in a segment, at most.
    pub(crate) segment_max: Option<usize>,
    /// Seconds; zero resets at a close.
    pub(crate) linger: Option<i32>,
}

impl Options {
    /// Sets one. An option that our stack does not have is an error, so that no script passes because
    /// its option was ignored.
    pub(crate) fn set(&mut self, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let number = |at: usize| {
            let bytes = value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(i32::from_ne_bytes).ok_or(Errno(libc::EINVAL))
        };
        // The kernel doubles what is asked for, for its own needs.
        let size = |number: i32| usize::try_from(number).map_err(|_| Errno(libc::EINVAL));
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => Ok(()),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => Ok(self.receive_buffer = Some(size(number(0)?)?)),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => Ok(self.send_buffer = Some(size(number(0)?)?)),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                self.linger = (number(0)? != 0).then(|| number(4)).transpose()?;
                Ok(())
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Ok(self.segment_max = Some(size(number(0)?)?)),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Ok(self.is_nodelay = number(0)? != 0),
            _ => Err(Errno(libc::ENOPROTOOPT)),
        }
    }
}
