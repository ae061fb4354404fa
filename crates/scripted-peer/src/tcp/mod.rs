//! One end of a TCP connection that costs almost no processor time. The measured end is a complete
//! stack with its layers, over a [`ScriptDevice`] in memory in place of a network card.
//!
//! | module | contents |
//! |---|---|
//! | [`script`] | [`TcpScript`]: answers the SYN, follows the sequence numbers, acknowledges |
//! | [`device`] | [`ScriptDevice`]: the script as a device of the engine |
//! | [`end`] | [`TcpEnd`]: the measured end, connected and idle |
//! | [`feed`] | [`Feeder`]: data of the script that were sealed in advance |
//! | [`check`] | [`StreamCheck`]: verifies every digest and record, and digests the stream |
//! | [`lock_step`] | the stream that a placement sends when its processors take turns |

pub mod check;
pub mod device;
pub mod end;
pub mod feed;
pub mod lock_step;
pub mod script;

pub use check::StreamCheck;
pub use device::ScriptDevice;
pub use end::{TcpEnd, TcpSetup};
pub use feed::{Fed, Feeder};
pub use script::TcpScript;
