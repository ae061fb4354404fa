//! Whether this host forwards packets between its interfaces, as a server must for networks behind it or behind
//! clients, and for clients that reach each other.

use std::net::IpAddr;

use tunnel::control::Forwarding;

/// An IP version, and the setting without which the kernel forwards none of its packets.
const SETTINGS: [(&str, &str); 2] = [("IPv4", "net.ipv4.ip_forward"), ("IPv6", "net.ipv6.conf.all.forwarding")];

/// What this host forwards that comes from a device. A setting that cannot be read counts as if it were on, because
/// only what is known is told.
pub(super) fn of_this_host(device: &str) -> Forwarding {
    let is_on = |setting: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/{}", setting.replace('.', "/"))).ok()?;
        Some(text.trim() != "0")
    };
    // In IPv4 each device has a setting, which that for all devices has changed. A name with a dot has none that can be
    // written so.
    let ipv4 = is_on(&format!("net.ipv4.conf.{device}.forwarding")).or_else(|| is_on(SETTINGS[0].1));
    Forwarding { ipv4: ipv4.unwrap_or(true), ipv6: is_on(SETTINGS[1].1).unwrap_or(true) }
}

/// What must be forwarded so that packets reach these addresses.
pub(super) fn to(addresses: &[IpAddr]) -> Forwarding {
    Forwarding { ipv4: addresses.iter().any(IpAddr::is_ipv4), ipv6: addresses.iter().any(IpAddr::is_ipv6) }
}

/// Which of the `needed` IP versions are not forwarded, in words, and the command that changes it; none if all are.
pub(super) fn missing(needed: Forwarding, is: Forwarding) -> Option<(String, String)> {
    let lacks = [needed.ipv4 && !is.ipv4, needed.ipv6 && !is.ipv6];
    let lacking: Vec<_> = SETTINGS.iter().zip(lacks).filter(|(_, lacks)| *lacks).map(|(setting, _)| setting).collect();
    if lacking.is_empty() {
        return None;
    }
    let names: Vec<_> = lacking.iter().map(|(name, _)| *name).collect();
    let settings: Vec<_> = lacking.iter().map(|(_, setting)| format!("{setting}=1")).collect();
    Some((names.join(" and "), format!("sysctl -w {}", settings.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_command_that_changes_it() {
        let of = |ipv4, ipv6| Forwarding { ipv4, ipv6 };
        assert_eq!(missing(of(true, true), of(true, true)), None);
        assert_eq!(missing(of(false, true), of(false, true)), None);
        let told = |names: &str, command: &str| Some((names.to_owned(), command.to_owned()));
        assert_eq!(missing(of(true, false), of(false, false)), told("IPv4", "sysctl -w net.ipv4.ip_forward=1"));
        assert_eq!(
            missing(of(true, true), of(false, false)),
            told("IPv4 and IPv6", "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
        );
    }

    #[test]
    fn a_setting_that_cannot_be_read_counts_as_on() {
        // No device has a name that long, so it is the setting of the host.
        let host = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").ok();
        let is = of_this_host("a-name-that-no-device-has");
        assert_eq!(is.ipv4, host.is_none_or(|text| text.trim() != "0"));
    }
}
