//! QUIC packet and frame formats: stateless parsing and encoding.
//!
//! Parsing turns bytes into values that satisfy the format; encoding turns values into bytes. This
//! crate keeps no state, reads no clock, draws no randomness and does not encrypt. Packets are
//! parsed with their protection still on ([`quic::parse_packet`]). The caller removes the
//! protection and reads the frames ([`quic::Frame::parse`]).
//!
//! Three rules hold for every function:
//!
//! * Bytes from the network never cause a panic or an allocation: parsed values borrow from the
//!   datagram.
//! * Encoding appends to the caller's `Vec<u8>` and allocates only if the caller reserved too
//!   little.
//! * An invalid argument from the caller (a variable-length integer above 2^62-1, a packet number
//!   of five bytes) panics. Each function documents its requirements.
//!
//! Start with [`quic`], which has the map of the modules.
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmp;
pub mod ip;
pub mod ndp;
pub mod quic;
pub mod tcp;
pub mod udp;

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
