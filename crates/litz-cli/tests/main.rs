//! The command as a user runs it.

mod command;
mod crash;
mod credentials;
mod demo;
mod ecn;
mod emulate;
mod forward;
mod links;
#[path = "../../net/tests/support/namespaces.rs"]
mod namespaces;
mod packaging;
mod paths;
mod predict;
mod profile;
mod progress;
mod provenance;
mod qlog;
mod recorded;
mod replay;
mod resume;
mod scenario;
mod scenario_netns;
mod senders;
mod speedup;
mod strangers;
mod standard_streams;
mod streams;
mod study;
mod support;
mod suspended;
mod tcp;
mod tcp_programs;
mod tickets;
mod tunnel;
mod tunnel_terminated;
mod tunnel_userspace;
