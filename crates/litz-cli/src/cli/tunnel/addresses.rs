//! An address with its network.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use tunnel::Prefix;

/// An address with the length of its network, such as 10.76.0.1/24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InterfaceAddress {
    pub(super) address: IpAddr,
    pub(super) network: Prefix,
}

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network: Prefix = text.parse().map_err(|error: tunnel::prefix::NotAPrefix| error.to_string())?;
        let address = text.split('/').next().unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
        Ok(Self { address, network })
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.network.bits())
    }
}
