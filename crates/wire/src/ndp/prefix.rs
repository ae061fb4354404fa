//! Prefixes that a router advertises (RFC 4861, section 4.6.2).

use std::fmt;
use std::net::Ipv6Addr;

/// Maximum number of prefixes kept of one advertisement. Links have one or two; further prefixes
/// are ignored.
pub const PREFIXES_MAX: usize = 4;

/// A prefix of a link.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct Prefix {
    /// An address with the prefix. Bits after the prefix are meaningless.
    pub address: Ipv6Addr,
    /// Number of bits of the prefix, at most 128.
    pub len: u8,
    /// Whether addresses with the prefix are on the link.
    pub is_on_link: bool,
    /// Whether hosts may form addresses with the prefix (RFC 4862).
    pub is_autonomous: bool,
    /// Seconds for which the prefix is valid; `u32::MAX` is forever.
    pub valid_s: u32,
    /// Seconds for which addresses with the prefix are preferred; `u32::MAX` is forever.
    pub preferred_s: u32,
}

impl Prefix {
    const NONE: Self = Self {
        address: Ipv6Addr::UNSPECIFIED,
        len: 0,
        is_on_link: false,
        is_autonomous: false,
        valid_s: 0,
        preferred_s: 0,
    };
}

/// A list of at most [`PREFIXES_MAX`] prefixes.
#[derive(Copy, Clone)]
pub struct Prefixes {
    prefixes: [Prefix; PREFIXES_MAX],
    /// Number of prefixes, at most [`PREFIXES_MAX`].
    count: u8,
}

impl Prefixes {
    /// Appends a prefix. Returns false, without a change, if there is no space for it.
    pub fn push(&mut self, prefix: Prefix) -> bool {
        let Some(free) = self.prefixes.get_mut(usize::from(self.count)) else { return false };
        *free = prefix;
        self.count += 1;
        true
    }

    /// Returns the prefixes, in wire order.
    pub fn as_slice(&self) -> &[Prefix] {
        &self.prefixes[..usize::from(self.count)]
    }

    /// Returns the prefixes, in wire order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Prefix> + '_ {
        self.as_slice().iter().copied()
    }

    /// Returns the number of prefixes.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns whether there is no prefix.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Self { prefixes: [Prefix::NONE; PREFIXES_MAX], count: 0 }
    }
}

impl PartialEq for Prefixes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Prefixes {}

impl fmt::Debug for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}
