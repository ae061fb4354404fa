//! Connections in pairs over model links, and against peers that a test drives frame by frame. A
//! test that counts allocations of the whole process is a program of its own (`memory.rs`).

mod adverse;
mod early;
mod hostile;
mod lives;
mod multipath;
mod pair;
mod random_operations;
mod replay;
mod spins;
mod support;
mod tls;
mod tls_rules;
mod transfer;
mod unsealed;
