//! The deadlines of connections.

mod wheel;

pub use wheel::Timers;

#[cfg(test)]
mod tests;
