//! Exact behaviour, by the RFC that asks for it.

mod detach;
mod handshake;
mod options;
mod recovery;
mod replies;
mod timers;
