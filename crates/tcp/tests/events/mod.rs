//! The events of RFC 9293, section 3.10, line by line: the effect of segments, calls and timeouts
//! in each state.

mod calls;
mod expected;
mod grid;
mod situation;
