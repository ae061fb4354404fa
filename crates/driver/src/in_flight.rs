//! Batches in process at a worker, with their connections.

pub use crate::protocol::{ConnectionRef, InFlightBatch, Receipt};
