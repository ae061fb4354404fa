//! Scenarios: links, faults, workload and checks in a file, read once and run in any world.
//!
//! ```text
//!   file ── parse ──▶ Scenario ── Suite ──▶ orders ── World ──▶ Outcome ── check ──▶ verdicts ── report ──▶ table, JSON
//! ```
//!
//! Sans-IO: nothing here reads a file, a clock or a socket. Time in the world of this crate, [`memory`], is virtual; the one
//! between network namespaces implements [`world::World`] in the `litz` command and shares everything else.
//!
//! | module | what it holds |
//! |---|---|
//! | [`model`] | what a file says: start there |
//! | [`mod@parse`] | the format, with errors that name file, line and key |
//! | [`faults`], [`capacity`] | what a scenario means in time: schedules of links, and what they could carry |
//! | [`world`], [`memory`], [`simulated`] | where runs are made |
//! | [`components`], [`tape`] | how busy links, sockets and processors were; a run written down as trace and packets |
//! | [`packets`] | the datagrams of a run, one by one |
//! | [`timeless`] | whether any time passes in virtual time |
//! | [`begin`] | how a run's connection behaves, and which paths it opens when |
//! | [`apps`], [`content`], [`recorder`] | the applications at both ends, the bytes they send, and what they measure |
//! | [`proof`] | that every fault was met by packets |
//! | [`outcome`], [`mod@check`], [`suite`] | what a run measured, what that says, and which runs it takes |
//! | [`report`] | tables and JSON |
//!
//! The format, the measures and the JSON stand in `docs/spec/scenario.md`.
#![forbid(unsafe_code)]

pub mod apps;
pub mod begin;
pub mod capacity;
pub mod check;
pub mod components;
pub mod content;
pub mod faults;
pub mod memory;
pub mod model;
pub mod outcome;
pub mod packets;
pub mod parse;
mod placement;
pub mod proof;
pub mod recorder;
pub mod report;
pub mod simulated;
pub mod suite;
pub mod tape;
#[cfg(test)]
mod testing;
pub mod timeless;
pub mod world;
