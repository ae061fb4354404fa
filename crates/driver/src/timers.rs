//! When which connection wants to be called.

mod wheel;

pub use wheel::Timers;

#[cfg(test)]
mod tests;
