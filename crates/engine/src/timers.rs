//! When which connection wants to be called.

mod wheel;

pub(crate) use wheel::Timers;

#[cfg(test)]
mod tests;
