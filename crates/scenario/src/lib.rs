//! Scenarios: links, faults, workload and checks in a TOML file, parsed once and run in any world.
//!
//! ```text
//! file ── parse ──▶ Scenario ── Suite ──▶ RunPlans ── World ──▶ Outcomes
//!                                                                  │
//!                        table, JSON ◀── report ── verdicts ◀── check
//! ```
//!
//! The crate is sans-I/O: it reads no file, no clock and no socket. Its worlds, [`memory`] and
//! [`simulated`], run in virtual time and are deterministic. The `litz` command implements
//! [`world::World`] between network namespaces in real time and shares everything else.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | the contents of a scenario file: start here |
//! | [`mod@parse`] | the file format, with errors that name file, line and key |
//! | [`faults`], [`capacity`] | fault schedules of the links; their capacity |
//! | [`world`], [`memory`], [`simulated`] | the interface of a world, and the two in virtual time |
//! | [`connection_setup`] | transport settings, and the paths that a connection opens |
//! | [`apps`], [`content`], [`measurements`] | applications, payload, measured deliveries |
//! | [`components`], [`recording`], [`packets`] | utilisation; traces and captures; each datagram |
//! | `seeds` | the random generators of a run |
//! | [`zero_time`] | refuses scenarios in which virtual time would not advance |
//! | [`outcome`], [`timeline`] | the measurements of a run; bytes over time |
//! | [`proof`] | the packets that each fault affected |
//! | [`mod@check`], [`suite`] | verdicts on outcomes, and the runs that the checks need |
//! | [`report`] | tables and JSON |
//! | [`shipped`] | the scenarios that programs ship with |
//!
//! The format, the measures and the JSON are defined in `docs/spec/scenario.md`.
#![forbid(unsafe_code)]

pub mod apps;
pub mod capacity;
pub mod check;
pub mod components;
pub mod connection_setup;
pub mod content;
pub mod faults;
pub mod measurements;
pub mod memory;
pub mod model;
pub mod outcome;
pub mod packets;
pub mod parse;
mod placement;
pub mod proof;
pub mod recording;
pub mod report;
mod seeds;
mod sent_datagram;
pub mod shipped;
pub mod simulated;
pub mod suite;
#[cfg(test)]
mod testing;
pub mod timeline;
pub mod world;
pub mod zero_time;
