//! Two connections over model links, one question a file. Every test that wants a fault proves by a counter that the fault
//! happened.

#[path = "../support/mod.rs"]
mod support;

mod amplification;
mod classes;
mod close;
mod datagrams;
mod determinism;
mod emission;
mod faults;
mod flow_control;
mod handshake;
mod keys;
mod leases;
mod placements;
mod streams;
mod timers;
mod version;
