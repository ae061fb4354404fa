//! Batches that a worker processes, with their connections.

pub use crate::protocol::{ConnectionRef, InFlightBatch, Receipt};
