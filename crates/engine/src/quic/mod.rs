//! QUIC as a protocol of the engine.
//!
//! | file | content |
//! |---|---|
//! | `engine` | [`Engine`](crate::Engine): starting, connecting, accepting |
//! | `config` | [`EngineConfig`](crate::EngineConfig) |
//! | `device`, `socket`, `replaceable` | datagram sockets that announce arrivals |
//! | `receive` | receive buffers |

pub(crate) mod config;
mod device;
pub(crate) mod engine;
mod receive;
pub(crate) mod replaceable;
pub(crate) mod socket;
