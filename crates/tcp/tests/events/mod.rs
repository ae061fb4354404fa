//! The events of RFC 9293, section 3.10, line by line: for each state, what segments, calls and
//! timeouts do.

mod calls;
mod expected;
mod grid;
mod situation;
