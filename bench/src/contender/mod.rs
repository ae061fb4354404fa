//! The contenders: the same tests with each library, set up alike.

mod litz;
mod quinn;

use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::work::{Figures, Test, Timing};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// Litz driven by the caller's thread: one thread a side
    LitzInline,
    /// Litz with its engine thread: two threads a side
    LitzThread,
    /// quinn on a current-thread runtime: one thread a side
    Quinn,
}

/// Whatever goes wrong in a contender, in its own words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server that runs in the background of this process.
pub trait Server {
    /// Where it listens.
    fn address(&self) -> SocketAddr;
    /// What it has measured so far.
    fn figures(&self) -> Figures;
}

/// Starts a server.
pub fn server(name: Name, test: Test, listen: SocketAddr, timing: Timing) -> Result<Box<dyn Server>, Failure> {
    match name {
        Name::LitzInline => litz::server(::litz::Placement::Inline, test, listen, timing),
        Name::LitzThread => litz::server(::litz::Placement::Thread, test, listen, timing),
        Name::Quinn => quinn::server(test, listen, timing),
    }
}

/// Does the test against a server of the same contender.
pub fn drive(name: Name, test: Test, remote: SocketAddr, timing: Timing) -> Result<Figures, Failure> {
    match name {
        Name::LitzInline => litz::drive(::litz::Placement::Inline, test, remote, timing),
        Name::LitzThread => litz::drive(::litz::Placement::Thread, test, remote, timing),
        Name::Quinn => quinn::drive(test, remote, timing),
    }
}
