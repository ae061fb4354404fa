//! The papers' experiments, run again in the simulator.
//!
//! | module | what |
//! |---|---|
//! | [`choices`] | what the papers do not say: what was taken, and what else is tried |
//! | [`claims`] | what the papers say, decided |
//! | [`document`] | the papers |
//! | [`outcome`] | what a study says: paper, ours, difference, assumptions, checks, curves |
//! | [`render`] | outcomes as text, CSV, JSON and SVG |
//! | [`study`] | what a study is, and how it is asked to run |
//!
//! Facts of the papers are in `data/`, one file a table; models hold none. What a paper does not say is an [`outcome::Assumption`]
//! with its reason and with what happens if it is chosen otherwise.
#![forbid(unsafe_code)]

pub mod choices;
pub mod claims;
mod conserved;
pub mod document;
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
pub use study::{Effort, Options, Study};

/// Every study, in the order of the documents.
pub fn all() -> Vec<Box<dyn Study>> {
    [
        packet_level::studies(),
        process_network::studies(),
        safenet::studies(),
        workstation::studies(),
        touchstone::studies(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The study of this name.
pub fn find(id: &str) -> Option<Box<dyn Study>> {
    all().into_iter().find(|study| study.id() == id)
}
