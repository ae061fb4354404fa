//! Two connections over model links, one subject per file. Every test that needs a fault proves by
//! a counter that the fault occurred.

mod address_tokens;
mod address_validation;
mod amplification;
mod classes;
mod close;
mod compatible_versions;
mod datagrams;
mod determinism;
mod ecn;
mod emission;
mod faults;
mod flow_control;
mod handshake;
mod incoming;
mod keys;
mod leases;
mod mtu;
mod placements;
mod preferred_address;
mod resets;
mod retry;
mod streams;
mod timers;
mod version;
