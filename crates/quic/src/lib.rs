//! QUIC as a sans-IO state machine with three owners.
#![forbid(unsafe_code)]
