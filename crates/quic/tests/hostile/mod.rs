//! A peer that violates the protocol: the connection closes with the code that RFC 9000 names, or
//! continues. It never panics, and the memory the peer can make it hold is bounded.

mod conformance;
mod floods;
mod frames;
mod injection;
mod migration;
mod multipath;
mod packets;
mod parameters;
mod probing;
