//! Connections over several model links, one question a file (draft-ietf-quic-multipath-21).

#[path = "../support/mod.rs"]
mod support;

mod capacity;
mod classes;
mod failover;
mod flow;
mod links;
mod migration;
mod negotiation;
mod paths;
mod policies;
mod troubles;
