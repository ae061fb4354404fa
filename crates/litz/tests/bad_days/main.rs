//! Bad days on real sockets, threads and processes: whatever happens, transfers go on or end as a user would expect, memory
//! stays within its bounds, and nobody else suffers. Every test proves by a counter that its bad day came.
//!
//! What the protocol alone decides is in `crates/quic/tests/bad_days`; what is held in memory while pools are exhausted is in
//! `bad_days_memory.rs`, a process of its own.

#[path = "../support/mod.rs"]
mod support;
#[path = "../library/world.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod world;

// Tests begin in the order of their names: this one waits for most of a minute, while the others run.
mod asleep;
mod flood;
mod full_queues;
mod garbage;
mod no_buffers;
mod uncalled;
