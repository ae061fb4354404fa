//! QUIC packet and frame formats: parse and emit, stateless.
#![forbid(unsafe_code)]
