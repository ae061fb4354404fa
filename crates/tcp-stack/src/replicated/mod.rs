//! One stream over several complete TCP connections, each with a separate stack, device and
//! processor: replicated stacks, as in the workstation of the studies.
//!
//! The sender cuts the stream into numbered chunks, and each channel carries some of them. The
//! receiver restores their order and reports the chunks that its application has taken. The other
//! channels take over the chunks of a channel that dies: only its share of the rate is lost. A
//! channel dies when its connection ends, so
//! [`TcpConfig::timeouts_max`](super::TcpConfig::timeouts_max) determines when a silent one does;
//! the default takes a quarter of an hour.
//!
//! | module | content |
//! |---|---|
//! | `sender` | [`ReplicatedSender`]: the channels of a sender |
//! | `receiver` | [`ReplicatedReceiver`]: the channels of a receiver |
//! | `dispatcher` | assignment of chunks to channels, including resent chunks |
//! | `schedule` | [`Scheduling`] |
//! | `resequencer` | restores the order of chunks |
//! | `frame`, `limits` | the format on a channel, and its limits |
//! | `ends` | closing the channels |
//! | `error` | [`ReplicatedError`] |

mod dispatcher;
mod ends;
mod error;
mod frame;
mod limits;
mod receiver;
mod resequencer;
mod schedule;
mod sender;

pub use self::error::ReplicatedError;
pub use self::receiver::ReplicatedReceiver;
pub use self::schedule::Scheduling;
pub use self::sender::ReplicatedSender;
