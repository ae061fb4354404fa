//! Workers: processors other than the driver that seal, open, receive and send for it.
//!
//! A worker runs **turns**. Its thread, if it has one, repeats turns and sleeps between them. A
//! simulation or a stepped engine runs the turns itself.
//!
//! ```text
//!   owner (driver)                                worker
//!   PathWorker, ReceiveWorker, CryptoWorker ◀───▶ WorkerLoop::turn ◀── a thread, a simulation
//!                       rings, wakers, turn count
//! ```
//!
//! | file | content |
//! |---|---|
//! | `turn` | [`WorkerLoop`]: a turn, the time of the next, recovery after a panic |
//! | `io` | [`IoWorker`]: the turn of a worker with sockets, with its [`IoRole`] |
//! | `rings` | the rings between an I/O worker and its owner |
//! | `liveness` | the count of turns, and the detection of a worker that hangs |
//!
//! The kinds of worker are [`path_worker`](crate::path_worker), [`receive_worker`](crate::receive_worker)
//! with its [`intake`](crate::intake), and [`crypto_pool`](crate::crypto_pool).

mod io;
mod liveness;
mod rings;
mod turn;

pub use self::io::{IoRole, IoWorker, WorkerIo, WorkerSocket};
pub use self::liveness::Progress;
pub(crate) use self::liveness::{HangLimit, TurnCheck};
pub(crate) use self::rings::{Arrived, OwnerEnd, RingSizes, link};
pub use self::turn::WorkerLoop;
