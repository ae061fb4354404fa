//! noq over several paths, as client and as server: another implementation of multipath draft-21.
//!
//! [`pair`] connects the two and opens paths, [`flow`] moves bytes in both directions at once while
//! a test acts on the paths. Each link has its own addresses in 127.0.0.0/8; Linux, unlike other
//! systems, treats all of these as loopback.
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
