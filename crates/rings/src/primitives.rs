//! The atomics in shared memory. Modules that use only these are also compiled into the loom
//! models, which replace them with loom's (`tests/models.rs`).

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
