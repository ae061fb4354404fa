//! Exact behaviour, by the RFC that requires it.

mod accurate_ecn;
mod classic;
mod cookies;
mod dscp;
mod handshake;
mod late;
mod md5;
mod options;
mod orphan;
mod recovery;
mod reduction;
mod replies;
mod timers;
