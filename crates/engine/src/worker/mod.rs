//! Threads of workers. The crate `driver` defines the turns of workers; the threads here repeat
//! turns, sleep between them, and end when their driver is dropped. A stepped engine has no
//! threads: its owner runs the turns.
//!
//! | file | content |
//! |---|---|
//! | `thread` | the loop of turns, pinning, panic isolation, joining with a time limit |
//! | `idle` | sleeping between turns: in a poll, or parked |
//! | `thread_park` | parking and unparking a thread |
//! | `spawner` | starts threads, or collects the workers of a stepped engine |

mod idle;
mod spawner;
mod thread;
mod thread_park;

pub(crate) use self::idle::PollIdle;
pub(crate) use self::spawner::Spawner;
pub(crate) use self::thread::{WorkerSettings, WorkerThread, pin_to};
