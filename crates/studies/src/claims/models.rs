//! Small models for claims that no study covers: as much as the claim speaks of, and no more.
//!
//! | module | what |
//! |---|---|
//! | [`coding`] | parity packets across channels against go-back-N |
//! | [`memory`] | a memory between a line and a processor |
//! | [`node`] | replicated protocol processors before parallel channels, a closed network of queues |
//! | [`pacing`] | bursts and even spacing at a small buffer |
//! | [`small_writes`] | Nagle and delayed acknowledgements over a large MTU |

pub(super) mod coding;
pub(super) mod memory;
pub(super) mod node;
pub(super) mod pacing;
pub(super) mod small_writes;
