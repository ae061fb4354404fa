//! An IP address with its prefix length: `10.1.0.1/24`.

use core::fmt;
use core::str::FromStr;
use std::net::IpAddr;

/// An IP address with the prefix length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits; at most 32 or 128.
    pub prefix_bits: u8,
}

/// The text is not an address with a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseCidrError;

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = text.split_once('/').ok_or(ParseCidrError)?;
        let address: IpAddr = address.parse().map_err(|_| ParseCidrError)?;
        let prefix_bits = prefix.parse().map_err(|_| ParseCidrError)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        if prefix_bits > bits_max || prefix.starts_with('+') {
            return Err(ParseCidrError);
        }
        Ok(Self { address, prefix_bits })
    }
}

impl Cidr {
    /// Returns whether `address` is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let ((ours, len), (theirs, other_len)) = (bits(self.address), bits(address));
        len == other_len && (ours ^ theirs).checked_shr(len - u32::from(self.prefix_bits)).unwrap_or(0) == 0
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl fmt::Display for ParseCidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an address with the length of its network, such as 10.1.0.1/24 or fd00::1/64")
    }
}

impl std::error::Error for ParseCidrError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        let contains =
            |network: &str, address: &str| network.parse::<Cidr>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.1.0.1/24", "10.1.0.255") && !contains("10.1.0.1/24", "10.1.1.0"));
        assert!(contains("0.0.0.0/0", "255.1.1.1") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("fd00::1/64", "fd00::ffff") && !contains("fd00::1/64", "fd00:1::1"));
        assert!(contains("::/0", "fd00::1") && contains("::1/128", "::1") && !contains("::1/128", "::2"));
    }

    #[test]
    fn addresses_round_trip_through_display_and_parse() {
        for good in ["10.1.0.1/24", "0.0.0.0/0", "192.0.2.1/32", "fd00::1/64", "::1/128"] {
            assert_eq!(good.parse::<Cidr>().unwrap().to_string(), good);
        }
        for bad in ["", "10.1.0.1", "10.1.0.1/33", "fd00::/129", "10.1/8", "10.1.0.1/", "/24", "10.1.0.1/+8", "a/b"] {
            assert_eq!(bad.parse::<Cidr>(), Err(ParseCidrError), "{bad:?}");
        }
    }
}
