//! Packet headers (RFC 9000 §17) and packet numbers (§17.1, appendix A).
//!
//! A packet is parsed in two steps, because header protection covers part of its first byte and its
//! packet number (RFC 9001 §5.4):
//!
//! ```text
//! datagram ── parse_packet ──▶ ProtectedHeader       (repeat at `end` for coalesced packets)
//!             caller samples and unmasks in place
//!          ── read_unprotected ──▶ Unprotected ── decode_number ──▶ packet number
//!             caller decrypts ──▶ frames
//! ```
//!
//! A packet is written in one step: `emit_long` or `emit_short`, then the frames; the caller then
//! encrypts and masks in place.
//!
//! The fixed bit is reported, not enforced: a peer that negotiated greasing may send it as 0 (RFC
//! 9287 §3).

mod emit;
mod number;
mod parse;
#[cfg(test)]
mod tests;
mod ty;
mod version;

pub use emit::{LongHeader, emit_long, emit_retry, emit_short, emit_version_negotiation, long_header_len};
pub use number::{decode_number, number_len};
pub use parse::{
    Destination, PacketError, Parsed, ProtectedHeader, Unprotected, destination, parse_packet, read_unprotected,
    sample_offset, versions,
};
pub use ty::PacketType;
pub use version::Version;

pub use super::id::MAX_CID_LEN;

/// Smallest UDP payload, in bytes, of a datagram with an Initial packet (RFC 9000 §14.1). Every
/// path must support this size.
pub const MIN_INITIAL_SIZE: usize = 1200;

/// Bytes of ciphertext sampled by header protection (RFC 9001 §5.4.2). The tag of every cipher has
/// the same length.
pub const SAMPLE_LEN: usize = 16;

/// Length in bytes of the integrity tag at the end of a Retry packet (RFC 9001 §5.8).
const RETRY_TAG_LEN: usize = 16;

/// Length in bytes of the longest packet number. The sample begins at this distance from the start
/// of the packet number (RFC 9001 §5.4.2).
const NUMBER_LEN_MAX: usize = 4;

/// First byte: long header form. Never protected.
const LONG_FORM: u8 = 0x80;
/// First byte: the fixed bit.
const FIXED_BIT: u8 = 0x40;
/// First byte of a long header: position of the two type bits.
const LONG_TYPE_SHIFT: u32 = 4;
/// The two type bits of a long header, after a shift to the lowest ones.
const LONG_TYPE_BITS: u8 = 0b11;
/// First byte of a long header, protected: reserved bits.
const LONG_RESERVED: u8 = 0x0c;
/// First byte of a short header: the spin bit (RFC 9000 §17.4), not protected.
const SPIN: u8 = 0x20;
/// First byte of a short header, protected: reserved bits.
const SHORT_RESERVED: u8 = 0x18;
/// First byte of a short header, protected: the key phase.
const KEY_PHASE: u8 = 0x04;
/// First byte, protected: length of the packet number in bytes, minus one.
const NUMBER_LEN_BITS: u8 = 0x03;
