//! What goes between the driver and the processor of receive halves.

use std::sync::Arc;

use net::RecvMeta;
use quic::{ConnectionKey, Findings, Orders};

use super::guest::Guest;
use crate::cells::{ConnectionCell, RecvCell, StreamCells};
use crate::receive::Arrived;

/// From the driver.
pub(super) enum Order {
    /// This receive half is here from now on.
    Take { key: ConnectionKey, guest: Box<Guest> },
    /// For a receive half that is here.
    Tell { key: ConnectionKey, word: Box<Word> },
    /// It is wanted back.
    GiveBack { key: ConnectionKey },
    /// Receive nothing, and say so.
    Pause,
    /// Receive again.
    Resume,
}

/// What the rest of a connection has for its receive half.
#[derive(Default)]
pub(crate) struct Word {
    pub(crate) orders: Orders,
    /// Streams of ours that the peer may answer on.
    pub(crate) readers: Vec<Arc<RecvCell>>,
    /// Streams whose readers want more, or no more.
    pub(crate) tasks: Vec<Arc<RecvCell>>,
    /// The application takes more of the rest.
    pub(crate) inbound: bool,
    /// To be filled again.
    pub(super) spent: Option<Box<Report>>,
}

/// A batch that has arrived at the engine's socket of number `port` and belongs to no receive half that is here.
pub(crate) struct Arrival {
    pub(crate) port: usize,
    pub(crate) meta: RecvMeta,
    pub(crate) batch: Arrived,
}

/// What a receive half has found out.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) findings: Findings,
    /// Streams the peer has opened.
    pub(crate) accepted: Vec<StreamCells>,
    /// To be filled again.
    pub(super) spent: Option<Box<Word>>,
}

/// From the processor, about the connection of this key and cell: the key may have passed on to another.
pub(crate) enum News {
    Report {
        key: ConnectionKey,
        cell: Arc<ConnectionCell>,
        report: Box<Report>,
    },
    /// This receive half has had nothing to do for a while: it may be wanted back.
    Quiet {
        key: ConnectionKey,
        cell: Arc<ConnectionCell>,
    },
    /// This receive half was wanted back.
    Returned {
        key: ConnectionKey,
        guest: Box<Guest>,
    },
    /// Nothing is received: all arrivals are in their ring.
    Paused,
    /// It has panicked.
    Broken {
        key: ConnectionKey,
        cell: Arc<ConnectionCell>,
    },
}
