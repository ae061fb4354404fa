//! An address with its network.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use tunnel::Prefix;
use tunnel::host_address::refusal;

/// An address of a server with the length of its network, such as 10.76.0.1/24. The network has an address for a
/// client, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InterfaceAddress {
    pub(super) address: IpAddr,
    pub(super) network: Prefix,
}

/// Bits of a network without which it has no address for a client besides the server's.
const HOST_BITS_MIN: u8 = 1;

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network: Prefix = text.parse().map_err(|error: tunnel::prefix::NotAPrefix| error.to_string())?;
        let address: IpAddr = text.split('/').next().unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
        let (bits, example) = if address.is_ipv4() { (32, "10.76.0.1/24") } else { (128, "fd76::1/64") };
        if bits - network.bits() < HOST_BITS_MIN {
            return Err(format!(
                "the network {network} has no address for a client: write an address and the bits of its network, such as \
                 {example}"
            ));
        }
        match refusal(address, &network) {
            Some(why) => Err(format!("{address} {why}")),
            None => Ok(Self { address, network }),
        }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.network.bits())
    }
}

/// Refuses addresses of which two have a network in common: a client gets an address of each network.
///
/// # Errors
/// A message for the user.
pub(super) fn check_that_networks_differ(addresses: &[InterfaceAddress]) -> Result<(), String> {
    for (at, one) in addresses.iter().enumerate() {
        let overlaps = |other: &&InterfaceAddress| one.network.overlaps(&other.network);
        if let Some(other) = addresses[..at].iter().find(overlaps) {
            return Err(format!("--address {other} and --address {one} have addresses in common: leave one out"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_server_leaves_space_for_clients() {
        for text in [
            "10.76.0.1/24",
            "10.76.0.2/30",
            "10.76.0.2/31",
            "10.76.0.3/31",
            "fd76::1/64",
            "fd76::2/126",
            "fd76::/127",
            "fd76::1/127",
        ] {
            assert_eq!(text.parse().map(|address: InterfaceAddress| address.to_string()), Ok(text.to_owned()));
        }
        for (text, words) in [
            ("10.0.0.1", "no address for a client"),
            ("fd76::1", "no address for a client"),
            ("10.0.0.3/30", "the broadcast address"),
            ("0.0.0.0/31", "no address of a host"),
            ("10.0.0.0/24", "the address of the network"),
            ("fd76::/64", "the address of the network"),
            ("10.0.0.255/24", "the broadcast address"),
            ("127.0.0.1/8", "no address of a host"),
            ("ff02::1/64", "no address of a host"),
            ("10.0.0.1/33", "is no network"),
        ] {
            let why = text.parse::<InterfaceAddress>().unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn networks_of_a_server_have_no_address_in_common() {
        let check = |texts: &[&str]| {
            check_that_networks_differ(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(check(&["10.76.0.1/24", "10.77.0.1/24", "fd76::1/64"]), Ok(()));
        for texts in [["10.76.0.1/24", "10.76.0.1/24"], ["10.76.0.1/16", "10.76.3.1/24"]] {
            let why = check(&texts).unwrap_err();
            assert!(texts.iter().all(|text| why.contains(text)), "{why}");
        }
    }
}
