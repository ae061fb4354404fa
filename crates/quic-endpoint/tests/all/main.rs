//! Integration tests of the engine, in one binary.
//!
//! `tests/models.rs` is a binary of its own because loom replaces its synchronization primitives.

mod crypto_pool;
mod driver_faults;
mod event_handler;
mod fairness;
#[expect(dead_code, reason = "the benchmark of degradation uses more of it")]
mod faulty_keys;
mod journals;
mod path_sockets;
mod path_workers;
mod receive_worker;
