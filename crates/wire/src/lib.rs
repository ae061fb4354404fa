//! QUIC packet and frame formats: parse and emit, stateless.
//!
//! Bytes become values that cannot be wrong, and values become bytes again. Nothing here keeps state, reads a clock,
//! draws randomness or encrypts: packets arrive with their protection still on ([`quic::parse_packet`]), the caller
//! removes it and reads the frames ([`quic::Frame::parse`]).
//!
//! Three promises hold for every function:
//!
//! * bytes from the network never panic and never allocate: parsed values borrow from the datagram;
//! * emission appends to the caller's `Vec<u8>` and allocates only if the caller reserved too little;
//! * an argument that our own side got wrong (a variable-length integer above 2^62-1, a packet number of five bytes)
//!   panics, and each function names what it demands.
//!
//! Start with [`quic`], which maps the modules.
#![forbid(unsafe_code)]

pub mod quic;
