//! Small models for claims that no study covers: as much as the claim speaks of, and no more.
//!
//! | module | what |
//! |---|---|
//! | [`node`] | processors before channels, a closed network of queues |
//! | [`pacing`] | bursts and even spacing at a small buffer |
//! | [`small_writes`] | Nagle and delayed acknowledgements over a large MTU |

pub(super) mod node;
pub(super) mod pacing;
pub(super) mod small_writes;
