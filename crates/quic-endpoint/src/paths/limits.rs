//! Limits on the number of paths of a transfer.

/// Maximum number of simultaneous paths, even if the user requests more. QUIC allows more; each one
/// costs a socket, loss recovery state and probes.
pub const PATHS_MAX: usize = 32;

/// Default maximum number of paths.
pub const PATHS_DEFAULT: usize = 8;
