//! QUIC packet and frame formats, and TCP/IP headers: stateless parsing and encoding.
//!
//! Parsing turns bytes into values that satisfy the format; encoding turns values into bytes. This
//! crate keeps no state, reads no clock, draws no randomness and does not encrypt. QUIC packets are
//! parsed with their protection still on ([`quic::parse_packet`]). The caller removes the
//! protection and parses the frames ([`quic::Frame::parse`]).
//!
//! Three rules hold for every function:
//!
//! * Bytes from the network never cause a panic or an allocation: parsed values borrow from the
//!   datagram.
//! * Encoding appends to the caller's `Vec<u8>` and allocates only if the caller reserved too
//!   little.
//! * An invalid argument from the caller (a variable-length integer above 2^62-1, a packet number
//!   of five bytes, addresses of different IP versions) panics. Each function documents its
//!   requirements.
//!
//! | module | holds | source |
//! |---|---|---|
//! | [`quic`] | QUIC packets, frames and transport parameters | RFC 9000 and extensions |
//! | [`ip`] | IPv4 and IPv6 headers | RFC 791, RFC 8200 |
//! | [`tcp`] | TCP headers with options | RFC 9293, RFC 7323, RFC 2018, RFC 9768 |
//! | [`udp`] | UDP headers | RFC 768 |
//! | [`icmp`] | ICMP and ICMPv6 messages | RFC 792, RFC 4443 |
//! | [`ndp`] | neighbor discovery, a part of ICMPv6 | RFC 4861 |
//! | [`arp`] | address resolution of IPv4 on Ethernet | RFC 826 |
//! | [`ethernet`] | Ethernet headers and addresses | RFC 894, RFC 2464 |
//! | [`checksum`] | the checksum of all but QUIC and Ethernet | RFC 1071 |
//! | [`segmentation`] | headers of the packets of one super-packet | |
//!
//! Start with [`quic`], which has the map of its modules, or with [`ip`]: the module of each
//! protocol parses its payload.
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmp;
pub mod ip;
pub mod ndp;
pub mod quic;
pub mod segmentation;
pub mod tcp;
pub mod udp;

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
