//! Hosts without IPv6: the kernel has none, or gives none to the tunnel's device. The tunnel is then one of IPv4.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use net::routing::Family;
use tunnel::Prefix;
use tunnel::control::Accepted;

use super::clients::Behind;
use super::offer::Offer;

/// The settings of the network of this process.
const SETTINGS: &str = "/proc/sys/net";

/// How many things a warning names, at most. A server may assign hundreds.
const NAMED_MAX: usize = 8;

/// Whether the device of a tunnel can have IPv6 addresses and routes on this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ipv6 {
    /// Why it cannot; none if it can, as far as is known.
    lack: Option<Lack>,
}

/// Why a device has no IPv6.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Lack {
    /// The kernel refuses it to this device, because of this setting. Other devices may have it.
    Disabled { setting: String },
    /// The kernel was built or started without IPv6.
    Missing,
}

/// What a tunnel does not have because its device has no IPv6, in words.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct LeftOut(Vec<String>);

impl Ipv6 {
    /// Where the kernel's devices do not matter.
    pub(super) const USABLE: Self = Self { lack: None };

    /// As it is now on this host, for a device of this name.
    pub(super) fn of_this_host(device: &str) -> Self {
        Self::read(Path::new(SETTINGS), device)
    }

    /// As the settings in this folder have it. IPv6 counts as missing only if that is sure: with a kill switch, its
    /// rules are left out then.
    fn read(settings: &Path, device: &str) -> Self {
        let [has_ipv4, has_ipv6] = ["ipv4", "ipv6"].map(|version| settings.join(version).try_exists());
        if matches!((has_ipv4, has_ipv6), (Ok(true), Ok(false))) {
            return Self { lack: Some(Lack::Missing) };
        }
        let value = |name: &str| fs::read_to_string(settings.join("ipv6/conf").join(name).join("disable_ipv6")).ok();
        // A device that is there has a setting of its own. A new one gets the default.
        let read = [device, "default"].into_iter().find_map(|name| Some((name, value(name)?)));
        let disabled = read.filter(|(_, value)| value.trim() != "0").map(|(name, _)| Lack::Disabled {
            // In the name of a setting, a slash stands for the dot of a device (sysctl.d(5)).
            setting: format!("net.ipv6.conf.{}.disable_ipv6", name.replace('.', "/")),
        });
        Self { lack: disabled }
    }

    /// Whether the device can have addresses and routes of the version of this address.
    pub(super) const fn takes(&self, address: IpAddr) -> bool {
        address.is_ipv4() || self.lack.is_none()
    }

    /// The versions that the kernel has, each with whether the device can have it.
    pub(super) const fn families(&self) -> &'static [(Family, bool)] {
        match self.lack {
            None => &[(Family::V4, true), (Family::V6, true)],
            Some(Lack::Disabled { .. }) => &[(Family::V4, true), (Family::V6, false)],
            Some(Lack::Missing) => &[(Family::V4, true)],
        }
    }

    /// Keeps what the device of a client can have of what its server assigns.
    ///
    /// # Errors
    /// A message for the user: no address is left, or, if the client `wants_names`, no name server.
    pub(super) fn restrict(&self, accepted: &mut Accepted, wants_names: bool) -> Result<LeftOut, String> {
        let mut left_out = LeftOut::default();
        let Some(lack) = &self.lack else { return Ok(left_out) };
        let (assigned, named) = (accepted.addresses.len(), accepted.name_servers.len());
        left_out.take(&mut accepted.addresses, |(ip, _)| *ip, |(ip, bits)| format!("the address {ip}/{bits}"));
        left_out.take(&mut accepted.routes, Prefix::address, |route| format!("the route to {route}"));
        left_out.take(&mut accepted.name_servers, |ip| *ip, |ip| format!("the name server {ip}"));
        if assigned > 0 && accepted.addresses.is_empty() {
            let or = "give the server an IPv4 --address, or use --userspace";
            return Err(lack.refusal("the server assigns only IPv6 addresses", or));
        }
        if wants_names && named > 0 && accepted.name_servers.is_empty() {
            let or = "let the server name one with an IPv4 address, or leave --dns out";
            return Err(lack.refusal("the server names only name servers with IPv6 addresses", or));
        }
        Ok(left_out)
    }

    /// Keeps what a server can give its clients.
    ///
    /// # Errors
    /// A message for the user: no address is left.
    pub(super) fn restrict_offer(&self, offer: &mut Offer) -> Result<LeftOut, String> {
        let mut left_out = LeftOut::default();
        let Some(lack) = &self.lack else { return Ok(left_out) };
        left_out.take(&mut offer.addresses, |own| own.address, |own| format!("the address {own}"));
        left_out.take(&mut offer.routes, Prefix::address, |route| format!("the route to {route}"));
        left_out.take(&mut offer.name_servers, |ip| *ip, |ip| format!("the name server {ip}"));
        let network = |behind: &Behind| format!("the network {} behind a client", behind.network);
        left_out.take(&mut offer.behind, |behind| behind.network.address(), network);
        left_out.take(&mut offer.of_clients, |ip| *ip, |ip| format!("the address {ip} of a client"));
        if offer.addresses.is_empty() {
            return Err(lack.refusal("the tunnel has only IPv6 addresses", "add an IPv4 --address"));
        }
        Ok(left_out)
    }

    /// A warning of what is left out; none if nothing is. With `sends_all`, all packets go through the tunnel.
    pub(super) fn warning(&self, left_out: &LeftOut, sends_all: bool) -> Option<String> {
        let lack = self.lack.as_ref().filter(|_| !left_out.0.is_empty())?;
        let (named, others) = left_out.0.split_at(left_out.0.len().min(NAMED_MAX));
        let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let refused = match lack {
            Lack::Disabled { .. } if sends_all => ". Packets of IPv6 are refused",
            Lack::Disabled { .. } | Lack::Missing => "",
        };
        let (named, remedy) = (named.join(", "), lack.remedy());
        Some(format!(
            "the tunnel has no IPv6, because {lack}. Left out: {named}{others}{refused}. For IPv6 in the tunnel, {remedy} and \
             start the command again"
        ))
    }
}

impl LeftOut {
    /// Takes the entries of IPv6 out of the list.
    fn take<T>(&mut self, list: &mut Vec<T>, address: impl Fn(&T) -> IpAddr, words: impl Fn(&T) -> String) {
        list.retain(|entry| {
            let is_kept = address(entry).is_ipv4();
            self.0.extend((!is_kept).then(|| words(entry)));
            is_kept
        });
    }
}

impl Lack {
    /// An error, with what the user can do, and `or` otherwise.
    fn refusal(&self, what: &str, or: &str) -> String {
        format!("{what}, and {self}: {}, or {or}", self.remedy())
    }

    fn remedy(&self) -> String {
        match self {
            Self::Disabled { setting } => format!("run `sysctl -w {setting}=0`"),
            Self::Missing => "boot a kernel that has it (without `ipv6.disable=1`)".to_owned(),
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled { setting } => {
                write!(f, "this host has IPv6 disabled for the tunnel's device ({setting} is 1)")
            }
            Self::Missing => f.write_str("the kernel of this host has no IPv6"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: &str = "net.ipv6.conf.default.disable_ipv6";

    /// What is read of a folder with these files.
    fn read(files: &[(&str, &str)], device: &str) -> Ipv6 {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        Ipv6::read(folder.path(), device)
    }

    fn disabled(setting: &str) -> Ipv6 {
        Ipv6 { lack: Some(Lack::Disabled { setting: setting.to_owned() }) }
    }

    fn missing() -> Ipv6 {
        Ipv6 { lack: Some(Lack::Missing) }
    }

    fn setting(device: &str) -> String {
        format!("ipv6/conf/{device}/disable_ipv6")
    }

    #[test]
    fn a_new_device_has_the_setting_for_new_ones_and_another_its_own() {
        let [default, own, all] = ["default", "litz.7", "all"].map(setting);
        let four = ("ipv4/ip_forward", "0\n");
        assert_eq!(read(&[four, (&default, "0\n"), (&all, "1\n")], "litz.7"), Ipv6::USABLE);
        assert_eq!(read(&[four, (&default, "1\n"), (&all, "0\n")], "litz.7"), disabled(DEFAULT));
        assert_eq!(read(&[four, (&default, "1\n"), (&own, "0\n")], "litz.7"), Ipv6::USABLE);
        let own_setting = "net.ipv6.conf.litz/7.disable_ipv6";
        assert_eq!(read(&[four, (&default, "0\n"), (&own, "1\n")], "litz.7"), disabled(own_setting));
    }

    #[test]
    fn ipv6_is_missing_only_where_the_settings_of_ipv4_are_seen() {
        assert_eq!(read(&[("ipv4/ip_forward", "0\n")], "litz0"), missing());
        assert_eq!(read(&[], "litz0"), Ipv6::USABLE);
        assert_eq!(read(&[("ipv4/ip_forward", "0\n"), ("ipv6/bindv6only", "0\n")], "litz0"), Ipv6::USABLE);
        assert_eq!(missing().families(), [(Family::V4, true)]);
        assert_eq!(disabled(DEFAULT).families(), [(Family::V4, true), (Family::V6, false)]);
    }

    fn accepted(addresses: &[(&str, u8)], routes: &[&str], name_servers: &[&str]) -> Accepted {
        Accepted {
            addresses: addresses.iter().map(|(ip, bits)| (ip.parse().unwrap(), *bits)).collect(),
            routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
            name_servers: name_servers.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..Accepted::default()
        }
    }

    #[test]
    fn what_a_client_leaves_out_is_told_in_one_warning() {
        let both =
            || accepted(&[("10.8.0.2", 24), ("fd08::2", 64)], &["fd09::/48", "10.9.0.0/16"], &["fd08::1", "10.8.0.1"]);
        let four = accepted(&[("10.8.0.2", 24)], &["10.9.0.0/16"], &["10.8.0.1"]);
        let told = "Left out: the address fd08::2/64, the route to fd09::/48, the name server fd08::1.";
        for (ipv6, words, refused) in [
            (disabled(DEFAULT), format!("`sysctl -w {DEFAULT}=0`"), true),
            (missing(), "boot a kernel".to_owned(), false),
        ] {
            let mut accepted = both();
            let left_out = ipv6.restrict(&mut accepted, true).unwrap();
            assert_eq!(accepted, four);
            let warning = |sends_all| ipv6.warning(&left_out, sends_all).unwrap();
            assert!(warning(false).contains(told) && warning(false).contains(&words), "{}", warning(false));
            assert_eq!(warning(true).contains("Packets of IPv6 are refused."), refused, "{}", warning(true));
            // Nothing is left out of a tunnel of IPv4.
            assert_eq!(ipv6.restrict(&mut accepted, true).map(|left_out| ipv6.warning(&left_out, true)), Ok(None));
        }
        let mut accepted = both();
        let left_out = Ipv6::USABLE.restrict(&mut accepted, true).unwrap();
        assert_eq!((accepted, Ipv6::USABLE.warning(&left_out, true)), (both(), None));
    }

    #[test]
    fn a_warning_is_short_however_much_is_left_out() {
        let routes: Vec<String> = (0..200).map(|number| format!("fd00:{number:x}::/32")).collect();
        let mut many = accepted(&[("10.8.0.2", 24)], &routes.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let left_out = missing().restrict(&mut many, false).unwrap();
        let warning = missing().warning(&left_out, false).unwrap();
        assert!(warning.len() < 600 && warning.contains("fd00:7::/32 and 192 more."), "{warning}");
    }

    #[test]
    fn a_tunnel_of_ipv6_alone_is_refused_with_what_to_do() {
        let six = || accepted(&[("fd08::2", 64)], &[], &[]);
        let why = disabled(DEFAULT).restrict(&mut six(), false).unwrap_err();
        assert!(why.contains("only IPv6 addresses") && why.contains("sysctl") && why.contains("--userspace"), "{why}");
        let mut offer = Offer { addresses: vec!["fd08::1/64".parse().unwrap()], ..Offer::default() };
        let why = missing().restrict_offer(&mut offer).unwrap_err();
        assert!(why.contains("only IPv6 addresses") && why.contains("add an IPv4 --address"), "{why}");
        // A client without any address is the server's business, and a name server only that of --dns.
        assert_eq!(missing().restrict(&mut accepted(&[], &[], &[]), true), Ok(LeftOut::default()));
        let names = || accepted(&[("10.8.0.2", 24)], &[], &["fd08::1"]);
        assert!(missing().restrict(&mut names(), false).is_ok());
        assert!(missing().restrict(&mut names(), true).is_err_and(|why| why.contains("leave --dns out")));
    }
}
