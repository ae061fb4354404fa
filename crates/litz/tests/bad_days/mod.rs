//! Faults on real sockets and threads: transfers continue or end with the right error, memory stays
//! bounded, and other connections are not affected. Every test proves by a counter that its fault
//! occurred.
//!
//! Faults of the protocol alone are in `crates/quic/tests/bad_days`. Memory use with exhausted
//! pools is in `bad_days_memory.rs`, a separate process.

mod flood;
mod full_queues;
mod no_buffers;
mod uncalled;
