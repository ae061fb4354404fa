//! Experiments of five papers on parallel protocol processing, reproduced in the simulator, and
//! their claims.
//!
//! Each study reproduces a table, a figure or a statement of a paper and compares its results with
//! the printed ones cell by cell. Each claim is a statement of a paper that is decided by a model
//! or by the outcome of a study. The papers are listed in [`document`]; their numbers 000 to 004
//! are the prefixes of study and claim IDs.
//!
//! | module | contents |
//! |---|---|
//! | [`study`] | the [`Study`] trait and the options of a run |
//! | [`outcome`] | results of a study: tables, curves, assumptions, checks, notes |
//! | [`choices`] | parameters that a paper does not give, with alternatives |
//! | [`claims`] | claims of the papers and their decisions |
//! | [`document`] | the papers |
//! | [`render`] | outcomes as text, CSV, JSON and SVG |
//! | `packet_level` | 000: Nahum et al. 1996 |
//! | `gigabit_kits` | 001: the Gigabit Kits report 2000 |
//! | `process_network` | 002: Ruetsche and Kaiserswerth 1992 |
//! | `safenet` | 003: the SAFENET evaluation, University of Virginia |
//! | `workstation`, `touchstone` | 004: the Old Dominion University report |
//! | `replicate`, `warm_up`, `conserved` | replication, warm-up checks, conservation checks |
//!
//! The papers' numbers are in `data/`, one file per table; models contain none. A parameter that a
//! paper does not give is an [`outcome::Assumption`] with its reason and the effect of
//! alternatives. Start with [`Study`] and [`all`].
#![forbid(unsafe_code)]

pub mod choices;
pub mod claims;
mod conserved;
pub mod document;
mod gigabit_kits;
pub mod outcome;
mod packet_level;
mod process_network;
pub mod render;
mod replicate;
mod safenet;
pub mod study;
mod touchstone;
mod warm_up;
mod workstation;

pub use choices::Choice;
pub use document::Document;
pub use outcome::{Assumption, Cell, Check, Column, Outcome, Plot, Row, Sensitivity, Series, Table};
pub use packet_level::{PrintedStack, printed_stack};
pub use process_network::{PrintedProcess, printed_duplex_gain, printed_process};
pub use study::{Effort, Options, Study};

/// Returns all studies, in the order of the papers.
pub fn all() -> Vec<Box<dyn Study>> {
    [
        packet_level::studies(),
        gigabit_kits::studies(),
        process_network::studies(),
        safenet::studies(),
        workstation::studies(),
        touchstone::studies(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the study with this ID.
pub fn find(id: &str) -> Option<Box<dyn Study>> {
    all().into_iter().find(|study| study.id() == id)
}
