//! Real programs on the kernel's stack as peers of ours, over an emulated link that loses, reorders,
//! duplicates and delays. Data are compared byte by byte. Each test needs root and its programs, and
//! says so if it is skipped.
//!
//! ```text
//!   namespace "host"                                                      namespace "remote"
//!   stack 10.66.N.2 ── TUN ── 10.66.N.1, kernel forwards, 10.77.0.1 ── l0 ── 10.77.0.2, programs
//! ```
#![expect(clippy::disallowed_methods, reason = "stands for programs of the kernel's stack")]

mod forward;
mod http;
mod interface;
mod iperf;
mod ssh;
mod world;
