//! [`ReplicatedError`].

use std::fmt;

use super::limits::CHANNELS_MAX;
use crate::{Closed, TcpStream};

/// Reason why a replicated stream has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplicatedError {
    /// There is no channel, or there are more than 64.
    Channels(usize),
    /// The stack of a channel has a placement without a thread: calls on one channel would not move
    /// the data of the others.
    NeedsThread,
    /// All channels have ended. Holds the reason of the last one.
    Closed(Closed),
    /// The connections do not belong to one stream.
    Mixed,
    /// The peer has sent invalid data.
    Malformed,
    /// The system provides no random bytes.
    Random(String),
}

impl fmt::Display for ReplicatedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channels(count) => write!(f, "a stream has 1 to {CHANNELS_MAX} channels, not {count}"),
            Self::NeedsThread => f.write_str("the stacks of a replicated stream need a placement with a thread"),
            Self::Closed(closed) => write!(f, "all channels have ended, the last one because {closed}"),
            Self::Mixed => f.write_str("the connections are not those of one stream"),
            Self::Malformed => f.write_str("the peer does not follow the format of replicated streams"),
            Self::Random(error) => write!(f, "the system gives no random bytes: {error}"),
        }
    }
}

impl std::error::Error for ReplicatedError {}

/// Checks whether these connections can be the channels of a stream.
pub(super) fn check(streams: &[TcpStream]) -> Result<(), ReplicatedError> {
    if !(1..=CHANNELS_MAX).contains(&streams.len()) {
        return Err(ReplicatedError::Channels(streams.len()));
    }
    let has_threads = streams.iter().all(|stream| stream.handle.runtime().can_async().is_ok());
    if has_threads { Ok(()) } else { Err(ReplicatedError::NeedsThread) }
}
