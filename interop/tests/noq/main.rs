//! noq over several paths, as client and as server: multipath draft-21 as somebody else reads it.
//!
//! [`pair`] connects the two and opens paths, [`flow`] moves bytes both ways at once while a test does something to the
//! paths. Each link has addresses of its own in 127.0.0.0/8, all of which Linux, and Linux only, takes for loopback.
#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "these tests run on real sockets and wait by the clock"
)]

mod abandon;
mod flow;
mod keys;
mod limit;
mod pair;
mod single;
mod status;
mod transfer;
