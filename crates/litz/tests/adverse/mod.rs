//! Faults on real sockets and threads: transfers continue or end with the right error, memory stays
//! bounded, and other connections are not affected. Every test proves by a counter that its fault
//! occurred.
//!
//! Faults of the protocol alone are in `crates/quic/tests/adverse`. Memory use with exhausted
//! pools is in `pool_memory.rs`, a separate process.

mod flood;
mod full_queues;
mod no_buffers;
mod uncalled;
