//! The counters of each test.

mod bins;
mod bulk;
mod connects;
mod exchanges;

#[cfg(test)]
pub use bins::BIN_NS;
pub use bins::{Bins, monotonic_ns};
pub use bulk::BulkMeter;
pub use connects::ConnectMeter;
pub use exchanges::{Exchanges, latencies};
