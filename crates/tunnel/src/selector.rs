//! Which TCP connections are terminated: by the address and the port that they lead to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::prefix::Prefix;

/// Connections to a network, to ports, or both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    /// Without one, all addresses of both versions.
    network: Option<Prefix>,
    ports: RangeInclusive<u16>,
}

/// The text is no selector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotASelector(String);

impl Selector {
    /// All connections.
    pub const ALL: Self = Self { network: None, ports: 1..=u16::MAX };

    /// Whether a connection to this address and port is meant.
    #[must_use]
    pub fn selects(&self, destination: SocketAddr) -> bool {
        self.ports.contains(&destination.port())
            && self.network.is_none_or(|network| network.contains(destination.ip()))
    }
}

impl FromStr for Selector {
    type Err = NotASelector;

    /// Reads `all`, `PORTS`, `NETWORK` or `NETWORK:PORTS`. Ports are one or a range, `8000-9000`; a network
    /// of IPv6 before ports is in brackets.
    fn from_str(text: &str) -> Result<Self, NotASelector> {
        let wrong = || NotASelector(text.to_owned());
        if text == "all" {
            return Ok(Self::ALL);
        }
        if let Some(ports) = ports(text) {
            return Ok(Self { network: None, ports });
        }
        let (network, ports) = match text.strip_prefix('[') {
            Some(rest) => {
                let (network, rest) = rest.split_once(']').ok_or_else(wrong)?;
                let network: Prefix = network.parse().map_err(|_| wrong())?;
                if network.address().is_ipv4() {
                    return Err(wrong());
                }
                (network, Some(rest).filter(|rest| !rest.is_empty()).map(|rest| rest.strip_prefix(':').unwrap_or("")))
            }
            None => match text.parse::<Prefix>() {
                Ok(network) => (network, None),
                Err(_) => {
                    let (network, ports) = text.rsplit_once(':').ok_or_else(wrong)?;
                    (network.parse().map_err(|_| wrong())?, Some(ports))
                }
            },
        };
        let ports = match ports {
            Some(text) => self::ports(text).ok_or_else(wrong)?,
            None => 1..=u16::MAX,
        };
        Ok(Self { network: Some(network), ports })
    }
}

/// A port, or a range of ports.
fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (first, last): (u16, u16) = (port(first)?, port(last)?);
    (first > 0 && first <= last).then_some(first..=last)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        let has_all_ports = (first, last) == (1, u16::MAX);
        match self.network {
            None if has_all_ports => return f.write_str("all"),
            None => {}
            Some(network) if matches!(network.address(), IpAddr::V6(_)) && !has_all_ports => write!(f, "[{network}]:")?,
            Some(network) => write!(f, "{network}{}", if has_all_ports { "" } else { ":" })?,
        }
        match (has_all_ports, first == last) {
            (true, _) => Ok(()),
            (_, true) => write!(f, "{first}"),
            (_, false) => write!(f, "{first}-{last}"),
        }
    }
}

impl fmt::Display for NotASelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} selects no connections: write `all`, a port (443), ports (8000-9000), a network (10.0.0.0/8), or a \
             network and ports (10.0.0.0/8:443, [fd00::/8]:443)",
            self.0
        )
    }
}

impl std::error::Error for NotASelector {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_and_written_in_one_form() {
        for (text, written) in [
            ("all", "all"),
            ("1-65535", "all"),
            ("443", "443"),
            ("8000-9000", "8000-9000"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.9.9.9/8:8000-9000", "10.0.0.0/8:8000-9000"),
            ("fd00::/8", "fd00::/8"),
            ("[fd00::/8]", "fd00::/8"),
            ("[fd00::1]:22", "[fd00::1/128]:22"),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.to_string(), written);
            assert_eq!(written.parse(), Ok(selector));
        }
        for wrong in [
            "",
            "0",
            "65536",
            "9-8",
            "-1",
            "+1",
            "8000-",
            "10.0.0.0/8:",
            "10.0.0.0/33",
            "[10.0.0.0/8]:80",
            "[fd00::/8]80",
            "a",
        ] {
            assert!(wrong.parse::<Selector>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn network_and_ports_must_both_fit() {
        let selects = |selector: &str, to: &str| selector.parse::<Selector>().unwrap().selects(to.parse().unwrap());
        assert!(selects("all", "1.2.3.4:5") && selects("all", "[::1]:65535"));
        assert!(selects("443", "[::1]:443") && !selects("443", "1.2.3.4:444"));
        assert!(selects("10.0.0.0/8:8000-9000", "10.2.3.4:9000"));
        assert!(!selects("10.0.0.0/8:8000-9000", "10.2.3.4:9001"));
        assert!(!selects("10.0.0.0/8:8000-9000", "11.2.3.4:9000"));
        assert!(!selects("0.0.0.0/0", "[::1]:80"), "of one version");
    }
}
