//! The file of a tunnel with the changes that it has made to its host, so that they are undone in any case.
//!
//! It has values of the kinds that a tunnel makes, and nothing else is undone: a text that another program has put there
//! never reaches another one.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use credentials::private_file;
use net::routing::{Family, Packets, Route, Rule, Setting, Target};
use serde::{Deserialize, Serialize};

use super::control_socket::devices_with;
use super::host_network::{MARK, PRIORITIES};
use super::ipv6::Ipv6;
use super::name_service::NameService;
use crate::cli::runtime_folder;

/// The end of the names of the files.
const EXTENSION: &str = "routes";

/// The longest file: a name server file of a host, twice, and some rules.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The changes that were made for one device.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Changes {
    /// The process that made the changes.
    pub(super) process: u32,
    /// Whether a packet filter refuses what leaves outside the tunnel.
    pub(super) filters: bool,
    /// Rules and routes, the last one first.
    pub(super) settings: Vec<Setting>,
    pub(super) names: Option<NameService>,
    /// The addresses of the server. Their names cannot be looked up while packets are refused.
    pub(super) servers: Vec<SocketAddr>,
}

impl Changes {
    /// Reads the file of a device; none if there is none.
    ///
    /// # Errors
    /// A message for the user: the file cannot be read, is not one of this program, or could be another user's.
    pub(super) fn read(folder: &Path, device: &str) -> Result<Option<Self>, String> {
        let file = file_of(folder, device);
        let cannot = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", file.display());
        let text = match private_file::read_own(&file, FILE_BYTES_MAX) {
            Ok((text, _)) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot(&error)),
        };
        runtime_folder::check(folder)?;
        let metadata = std::fs::metadata(&file).map_err(|error| cannot(&error))?;
        if ![0, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
            return Err(cannot(&"other users may have written it: look at it and remove it"));
        }
        let damaged =
            |why: &str| format!("{} is damaged ({why}): undo the changes by hand and remove it", file.display());
        let changes: Self = serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        match changes.settings.iter().find(|setting| !is_ours(setting, device)) {
            Some(foreign) => Err(damaged(&format!("a tunnel does not make {foreign}"))),
            None => Ok(Some(changes)),
        }
    }

    /// Replaces the file, so that it is whole in any case.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn write(&self, folder: &Path, device: &str) -> Result<(), String> {
        let file = file_of(folder, device);
        let written = serde_json::to_vec(self).map_err(Into::into).and_then(|text| private_file::replace(&file, &text));
        written.map_err(|error| format!("cannot write {}, which says how to undo changes: {error}", file.display()))
    }

    /// Whether all packets are sent over the device.
    pub(super) fn has_rules(&self) -> bool {
        self.settings.iter().any(|setting| matches!(setting, Setting::Rule(_)))
    }

    /// Whether packets are refused that would leave outside the tunnel, in all IP versions of the kernel.
    pub(super) fn refuses(&self, ipv6: &Ipv6) -> bool {
        ipv6.families().iter().all(|(family, _)| self.refuses_in(*family))
    }

    /// The same for one IP version.
    pub(super) fn refuses_in(&self, family: Family) -> bool {
        let is_refusal = |setting: &Setting| {
            matches!(setting, Setting::Route(Route { network, target: Target::Unreachable, .. })
                if network.is_ipv4() == (family == Family::V4))
        };
        let leads_there = |setting: &Setting| {
            matches!(setting, Setting::Rule(Rule { family: of, packets: Packets::WithoutMark(_), table: Some(_), .. })
                if *of == family)
        };
        self.settings.iter().any(is_refusal) && self.settings.iter().any(leads_there)
    }
}

/// Whether a tunnel with this device makes such a setting, and so may remove it.
fn is_ours(setting: &Setting, device: &str) -> bool {
    match setting {
        Setting::Rule(rule) => PRIORITIES.contains(&rule.priority),
        Setting::Route(Route { table: MARK, network, bits: 0, target }) => {
            let is_there = match target {
                Target::Device(name) => name == device,
                Target::Unreachable => true,
            };
            network.is_unspecified() && is_there
        }
        Setting::Route(_) | Setting::Link { .. } | Setting::Address { .. } => false,
    }
}

pub(super) fn file_of(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("{device}.{EXTENSION}"))
}

/// The devices whose changes have a file in this folder.
pub(super) fn changed_devices(folder: &Path) -> Vec<String> {
    devices_with(folder, EXTENSION)
}

/// The devices that all packets are sent over, by the files in the folder.
pub(super) fn holders(folder: &Path) -> Vec<String> {
    let has_rules =
        |device: &String| Changes::read(folder, device).ok().flatten().is_some_and(|changes| changes.has_rules());
    changed_devices(folder).into_iter().filter(has_rules).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn default_route(table: u32, target: Target) -> Setting {
        Setting::Route(Route { table, network: Ipv4Addr::UNSPECIFIED.into(), bits: 0, target })
    }

    fn rule(priority: u32) -> Setting {
        Setting::Rule(Rule { family: Family::V4, priority, packets: Packets::WithoutMark(MARK), table: Some(MARK) })
    }

    #[test]
    fn only_the_kinds_of_changes_that_a_tunnel_makes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let read = |settings: &[Setting]| {
            Changes { settings: settings.to_vec(), ..Changes::default() }.write(folder.path(), "litz7").unwrap();
            Changes::read(folder.path(), "litz7").map(|changes| changes.expect("a file").settings)
        };
        let device = |name: &str| Target::Device(name.to_owned());
        let made = [rule(32_101), default_route(MARK, device("litz7")), default_route(MARK, Target::Unreachable)];
        assert_eq!(read(&made).as_deref(), Ok(&made[..]));
        let address: IpAddr = Ipv4Addr::LOCALHOST.into();
        let host = Route { table: MARK, network: address, bits: 32, target: Target::Unreachable };
        for foreign in [
            rule(32_766),
            rule(0),
            default_route(254, device("litz7")),
            default_route(MARK, device("eth0")),
            Setting::Route(host),
            Setting::Link { device: "litz7".to_owned(), mtu: 1400 },
            Setting::Address { device: "litz7".to_owned(), address, bits: 8 },
        ] {
            assert!(read(&[made[0].clone(), foreign.clone()]).is_err_and(|why| why.contains("damaged")), "{foreign}");
        }
        let file = file_of(folder.path(), "litz7");
        for text in [r#"{"process":1,"undo":[["netns","exec","x","sh"]]}"#, "{}", "[]", "", r#"{"process":1,"x":0}"#] {
            private_file::replace(&file, text.as_bytes()).unwrap();
            let read = Changes::read(folder.path(), "litz7").map(drop);
            assert!(read.is_err_and(|why| why.contains("damaged")), "{text}");
        }
    }

    #[test]
    fn a_file_that_others_could_have_written_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        Changes::default().write(folder.path(), "litz7").unwrap();
        let read = || Changes::read(folder.path(), "litz7").map(|changes| changes.is_some());
        assert_eq!(read(), Ok(true));
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(folder.path(), 0o777);
        assert!(read().is_err_and(|why| why.contains("chmod go-w")));
        set(folder.path(), 0o700);
        set(&file_of(folder.path(), "litz7"), 0o666);
        assert!(read().is_err_and(|why| why.contains("other users may have written it")));
        std::fs::remove_file(file_of(folder.path(), "litz7")).unwrap();
        assert_eq!(read(), Ok(false));
    }
}
