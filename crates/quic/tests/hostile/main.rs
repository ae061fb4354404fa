//! A peer that breaks the rules: the connection closes with the code that RFC 9000 names, or goes on; it never panics, and
//! what the peer makes us remember is bounded.

#[path = "../support/mod.rs"]
mod support;

mod floods;
mod frames;
mod injection;
mod multipath;
mod packets;
mod parameters;
