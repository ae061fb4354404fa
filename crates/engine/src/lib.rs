//! Processors and placements: runs the protocol on real threads and sockets.
#![forbid(unsafe_code)]
