//! Control bits.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Control bits of a segment (RFC 9293, section 3.1). Only the lowest nine bits are used; the three
/// reserved ones are neither parsed nor written.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default)]
pub struct Flags(
    /// The bits, in wire order.
    pub u16,
);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset the connection.
    pub const RST: Self = Self(0x004);
    /// Push.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x020);
    /// ECN echo (RFC 3168, section 6.1).
    pub const ECE: Self = Self(0x040);
    /// Congestion window reduced (RFC 3168, section 6.1).
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN (RFC 9768), formerly NS.
    pub const AE: Self = Self(0x100);

    /// All flags.
    pub(super) const MASK: u16 = 0x1ff;

    const NAMES: [(Self, &'static str); 9] = [
        (Self::FIN, "FIN"),
        (Self::SYN, "SYN"),
        (Self::RST, "RST"),
        (Self::PSH, "PSH"),
        (Self::ACK, "ACK"),
        (Self::URG, "URG"),
        (Self::ECE, "ECE"),
        (Self::CWR, "CWR"),
        (Self::AE, "AE"),
    ];

    /// Returns no flags.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// Returns whether all flags of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns whether at least one flag of `flags` is set.
    #[inline]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// Returns the flags of `self` that are not in `flags`.
    #[inline]
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl BitOr for Flags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Formats the flags like `SYN|ACK`; `-` without flags.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name) in Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag)) {
            write!(f, "{separator}{name}")?;
            separator = "|";
        }
        if separator.is_empty() { f.write_str("-") } else { Ok(()) }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
