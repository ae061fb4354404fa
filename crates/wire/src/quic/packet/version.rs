//! QUIC versions, which differ in a few constants (RFC 9369 §3).

use std::fmt;

use super::ty::PacketType;

/// A version of QUIC.
#[derive(Debug, Default, Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Version {
    /// Version 1 (RFC 9000).
    #[default]
    V1,
    /// Version 2 (RFC 9369): version 1 with other constants, so that networks cannot rely on the
    /// constants of version 1.
    V2,
}

impl Version {
    /// All versions, in ascending order.
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// Returns the version field of a long header.
    #[inline]
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            // RFC 9369 §3.1.
            Self::V2 => 0x6b33_43cf,
        }
    }

    /// Returns the version with this number, if it is known.
    #[inline]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// Returns the other version: the two versions can be exchanged during the handshake.
    #[inline]
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::V1 => Self::V2,
            Self::V2 => Self::V1,
        }
    }

    /// Returns the two type bits in a long header (RFC 9000 §17.2, RFC 9369 §3.2); `None` for
    /// [`PacketType::OneRtt`].
    #[inline]
    pub const fn long_type_bits(self, ty: PacketType) -> Option<u8> {
        match (self, ty) {
            (_, PacketType::OneRtt) => None,
            (Self::V1, PacketType::Initial) => Some(0b00),
            (Self::V1, PacketType::ZeroRtt) | (Self::V2, PacketType::Initial) => Some(0b01),
            (Self::V1, PacketType::Handshake) | (Self::V2, PacketType::ZeroRtt) => Some(0b10),
            (Self::V2, PacketType::Handshake) => Some(0b11),
        }
    }

    /// Returns the two type bits of a Retry packet, which is not a [`PacketType`], because it has
    /// no packet number and no frames.
    #[inline]
    pub const fn retry_type_bits(self) -> u8 {
        match self {
            Self::V1 => 0b11,
            Self::V2 => 0b00,
        }
    }

    /// Returns the packet type for two type bits; `None` for a Retry packet.
    #[inline]
    pub(super) fn packet_type(self, bits: u8) -> Option<PacketType> {
        [PacketType::Initial, PacketType::ZeroRtt, PacketType::Handshake]
            .into_iter()
            .find(|ty| self.long_type_bits(*ty) == Some(bits))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "1",
            Self::V2 => "2",
        })
    }
}
