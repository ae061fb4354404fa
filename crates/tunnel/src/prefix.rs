//! Networks, and which peer has which address: longest match, as in routing tables. A packet is taken
//! from a peer only if its source belongs to that peer.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address prefix without bits after its length, such as 10.8.0.0/24.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// The text or the numbers are not a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAPrefix(String);

impl Prefix {
    /// All addresses of IPv4.
    pub const ALL_IPV4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 0 };

    /// All addresses of IPv6.
    pub const ALL_IPV6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 0 };

    /// The network of `address` with `bits` bits.
    ///
    /// # Errors
    /// If the address has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, NotAPrefix> {
        if bits > width(address) {
            return Err(NotAPrefix(format!("{address}/{bits}")));
        }
        Ok(Self { address: masked(address, bits), bits })
    }

    /// The network of `address`, which has no bits after `bits`.
    pub(crate) const fn masked_already(address: IpAddr, bits: u8) -> Self {
        Self { address, bits }
    }

    /// The prefix of this address alone.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, bits: width(address) }
    }

    /// The first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of bits.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// The number of bits of its addresses.
    #[must_use]
    pub const fn width(&self) -> u8 {
        width(self.address)
    }

    /// The last address.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(first) => {
                let rest = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                Ipv4Addr::from_bits(first.to_bits() | rest).into()
            }
            IpAddr::V6(first) => {
                let rest = u128::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                Ipv6Addr::from_bits(first.to_bits() | rest).into()
            }
        }
    }

    /// Whether `address` belongs to it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && masked(address, self.bits) == self.address
    }

    /// Whether an address belongs to both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// Whether all addresses of `other` belong to it.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    /// The addresses that do not belong to `other`, as the fewest prefixes: at most one for each bit.
    #[must_use]
    pub fn without(&self, other: &Self) -> Vec<Self> {
        if !self.overlaps(other) {
            return vec![*self];
        }
        // The sibling of each network between this one and the other, the largest first.
        let sibling = |bits: u8| {
            let flip = |address: IpAddr| match address {
                IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() ^ 1 << (32 - bits))),
                IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() ^ 1 << (128 - bits))),
            };
            Self { address: masked(flip(other.address), bits), bits }
        };
        (self.bits + 1..=other.bits).map(sibling).collect()
    }

    /// The address `index` places after the first; none if it is outside.
    #[must_use]
    pub fn nth(&self, index: u64) -> Option<IpAddr> {
        let address = match self.address {
            IpAddr::V4(first) => IpAddr::V4(u32::try_from(index).ok()?.checked_add(first.to_bits())?.into()),
            IpAddr::V6(first) => IpAddr::V6(first.to_bits().checked_add(index.into())?.into()),
        };
        self.contains(address).then_some(address)
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl FromStr for Prefix {
    type Err = NotAPrefix;

    /// Reads `ADDRESS/BITS`, or an address alone.
    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let wrong = || NotAPrefix(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        Self::new(address, bits.unwrap_or(width(address))).map_err(|_| wrong())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl fmt::Display for NotAPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no network: write an address and a number of bits, such as 10.8.0.0/24", self.0)
    }
}

impl std::error::Error for NotAPrefix {}

/// Values by prefix. A look-up finds that of the longest prefix that contains an address.
#[derive(Clone, Debug)]
pub struct PrefixMap<T> {
    values: BTreeMap<Prefix, T>,
    /// The lengths in use for each version, the longest first.
    bits: [Vec<u8>; 2],
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), bits: [Vec::new(), Vec::new()] }
    }
}

impl<T> PrefixMap<T> {
    /// Without values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of a prefix; returns the old one.
    pub fn insert(&mut self, prefix: Prefix, value: T) -> Option<T> {
        let bits = &mut self.bits[usize::from(prefix.address.is_ipv6())];
        if let Err(at) = bits.binary_search_by(|known| prefix.bits.cmp(known)) {
            bits.insert(at, prefix.bits);
        }
        self.values.insert(prefix, value)
    }

    /// Removes the prefixes for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&Prefix, &T) -> bool) {
        self.values.retain(|prefix, value| keep(prefix, value));
    }

    /// The value of the longest prefix that contains `address`.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        let bits = &self.bits[usize::from(address.is_ipv6())];
        bits.iter().find_map(|bits| self.values.get(&Prefix { address: masked(address, *bits), bits: *bits }))
    }

    /// All prefixes with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&Prefix, &T)> {
        self.values.iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_read_and_bits_after_the_length_are_cleared() {
        let prefix = |text: &str| text.parse::<Prefix>().map(|prefix| prefix.to_string());
        assert_eq!(prefix("10.8.3.4/16").as_deref(), Ok("10.8.0.0/16"));
        assert_eq!(prefix("fd00::9/64").as_deref(), Ok("fd00::/64"));
        assert_eq!(prefix("0.0.0.0/0").as_deref(), Ok("0.0.0.0/0"));
        assert_eq!(prefix("::/0").as_deref(), Ok("::/0"));
        assert_eq!(prefix("10.8.3.4").as_deref(), Ok("10.8.3.4/32"));
        for wrong in ["", "10.8.0.0/33", "::/129", "10.8.0/8", "10.8.0.0/", "10.8.0.0/-1"] {
            assert!(prefix(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn prefixes_overlap_if_one_contains_the_other() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        for (one, other, expected) in [
            ("10.8.0.0/16", "10.8.3.0/24", true),
            ("10.8.0.0/16", "10.9.0.0/16", false),
            ("0.0.0.0/0", "::/0", false),
            ("fd76::/64", "fd76::/64", true),
        ] {
            assert_eq!([prefix(one).overlaps(&prefix(other)), prefix(other).overlaps(&prefix(one))], [expected; 2]);
        }
    }

    #[test]
    fn a_prefix_without_another_has_all_other_addresses() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let rest = |one: &str, other: &str| {
            prefix(one).without(&prefix(other)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(rest("10.8.0.0/30", "10.8.0.1"), ["10.8.0.2/31", "10.8.0.0/32"]);
        assert_eq!(rest("10.8.0.0/30", "10.8.0.0/29"), [""; 0]);
        assert_eq!(rest("10.8.0.0/30", "10.9.0.0/30"), ["10.8.0.0/30"]);
        assert_eq!(rest("::/0", "8000::/1"), ["::/1"]);
        assert_eq!(rest("0.0.0.0/0", "0.0.0.0").len(), 32);
        assert_eq!(
            [prefix("10.8.0.0/30"), prefix("0.0.0.0/0")].map(|prefix| prefix.last().to_string()),
            ["10.8.0.3", "255.255.255.255"]
        );
        assert_eq!(prefix("fd00::/127").last().to_string(), "fd00::1");
    }

    #[test]
    fn addresses_of_a_prefix_are_counted_from_its_first() {
        let prefix: Prefix = "10.8.0.0/30".parse().unwrap();
        let nth = |index| prefix.nth(index).map(|address| address.to_string());
        assert_eq!(
            [nth(0).as_deref(), nth(3).as_deref(), nth(4).as_deref()],
            [Some("10.8.0.0"), Some("10.8.0.3"), None]
        );
        assert_eq!(prefix.nth(u64::MAX), None);
        assert_eq!("ffff::/16".parse::<Prefix>().unwrap().nth(1), "ffff::1".parse().ok());
    }

    proptest! {
        #[test]
        fn the_longest_prefix_wins(
            entries in prop::collection::vec((any::<[u8; 4]>(), 0..=32_u8), 0..20),
            address in any::<[u8; 4]>(),
        ) {
            // Few distinct first bytes, so that prefixes overlap.
            let small = |[a, b, c, d]: [u8; 4]| IpAddr::from([a % 2, b % 2, c, d]);
            let mut map = PrefixMap::new();
            for (index, (address, bits)) in entries.iter().enumerate() {
                map.insert(Prefix::new(small(*address), *bits).unwrap(), index);
            }
            let address = small(address);
            let all = map.iter().filter(|(prefix, _)| prefix.contains(address));
            let expected = all.max_by_key(|(prefix, _)| prefix.bits()).map(|(_, value)| *value);
            prop_assert_eq!(map.get(address).copied(), expected);
            prop_assert_eq!(map.get("::1".parse().unwrap()), None);
        }
    }
}
