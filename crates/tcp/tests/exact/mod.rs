//! Exact behaviour, by the RFC that asks for it.

mod classic;
mod cookies;
mod detach;
mod handshake;
mod late;
mod options;
mod recovery;
mod reduction;
mod replies;
mod timers;
