//! How many paths a transfer uses.

/// The maximum number of paths at a time, also if the user asks for more. QUIC allows more; each
/// one costs a socket, loss recovery state and probes.
pub const PATHS_MAX: usize = 32;

/// The maximum number of paths that are used by default.
pub const PATHS_DEFAULT: usize = 8;
