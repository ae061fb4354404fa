//! Bad days: whatever the network, the peer, the application or the clock does, a connection goes on or ends as the standard
//! says, holds no more than its bounds allow, and hurts nobody else. Every test proves by a counter that its bad day came.
//!
//! What needs real sockets, threads and processes is in `crates/litz/tests/bad_days`.

#[path = "../support/mod.rs"]
mod support;

mod acknowledgements;
mod clock;
mod flow;
mod held;
mod overload;
mod readers;
mod suspended;
