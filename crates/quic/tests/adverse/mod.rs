//! Adverse conditions: whatever the network, the peer, the application or the clock does, a
//! connection continues or ends as the standard requires, stays within its memory bounds, and harms
//! no other connection. Every test proves by a counter that its condition occurred.
//!
//! Tests that need real sockets, threads and processes are in `crates/litz/tests/adverse`.

mod acknowledgements;
mod clock;
mod flow;
mod heap_meter;
mod overload;
mod readers;
mod suspended;
