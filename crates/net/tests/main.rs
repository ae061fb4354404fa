//! Sockets and interfaces, of the kernel and in memory.

mod conformance;
mod interfaces;
