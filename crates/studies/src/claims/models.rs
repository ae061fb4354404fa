//! Minimal models for claims that no study covers.
//!
//! | module | contents |
//! |---|---|
//! | [`node`] | processors in front of channels, a closed queueing network |
//! | [`pacing`] | bursts and paced cells at a small buffer |

pub(super) mod node;
pub(super) mod pacing;
