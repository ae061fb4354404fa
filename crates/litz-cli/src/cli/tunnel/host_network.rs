//! Routes, rules, the packet filter and the name servers of this host, changed so that they are undone in any
//! case: at the end of the command, by `litz tunnel down`, or when the next command starts. Until then they are
//! [kept](super::keeper).
//!
//! How to undo a change is written to a file before the change is made. A command that is killed leaves the
//! file; the next one that uses the device finds it.
//!
//! All devices would use the same rules and the same table, so one device has them at a time. The first rule
//! is made before all else and removed after all else: the kernel refuses it to another command.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

use net::nftables;
use net::routing::{self, Family, Observed, Packets, Route, Rule, Setting, TABLE_MAIN, Target};
use tunnel::Prefix;
use tunnel::kill_switch::TABLE;

use super::changes::{Changes, file_of, holders};
use super::ipv6::Ipv6;
use super::keeper::{Keeper, Kept, State};
use super::upkeep_report::UpkeepReport;
use crate::cli::runtime_folder;

/// The number of the routing table with the tunnel's default route, and the mark of the tunnel's own
/// packets, which do not use it.
pub(super) const MARK: u32 = 0x6c69_747a;

/// Priorities of the rules: before those of the main table (32766), the servers and the specific routes first.
const PRIORITY_SERVER: u32 = 32_099;
const PRIORITY_SPECIFIC: u32 = 32_100;
const PRIORITY_TUNNEL: u32 = 32_101;
const PRIORITY_BOUND: u32 = 32_102;
pub(super) const PRIORITIES: RangeInclusive<u32> = PRIORITY_SERVER..=PRIORITY_BOUND;

/// The changes of this host for one device.
pub(super) struct HostNetwork {
    keeper: Keeper,
    ipv6: Ipv6,
    report: UpkeepReport,
    /// Whether the changes outlive this.
    stays: bool,
}

impl HostNetwork {
    /// Begins to change routes for `device`. What a command that was killed has left is undone, or,
    /// with `keeps`, taken over if it refuses packets outside the tunnel: then none passes
    /// meanwhile, and the changes [stay](Self::stay). It may do so in IPv4 alone, if the kernel has
    /// got IPv6 since, or with one of its two lines, if the other one was undone.
    ///
    /// # Errors
    /// A message for the user: another command uses the device, the folder cannot be written, or
    /// what was left cannot be undone.
    pub(super) fn begin(
        folder: &Path,
        device: &str,
        ipv6: &Ipv6,
        keeps: bool,
        report: &UpkeepReport,
    ) -> Result<Self, String> {
        runtime_folder::prepare(folder)?;
        let (mut changes, mut stays) = (Changes::default(), false);
        match left(folder, device)? {
            Some(left) if keeps && (left.filters || left.refuses_in(Family::V4)) => (changes, stays) = (left, true),
            Some(left) => undo(folder, device, &left)?,
            None => {}
        }
        changes.process = std::process::id();
        if stays {
            changes.write(folder, device)?;
        }
        let keeper = Keeper::start(folder.to_owned(), device, changes, report.clone())?;
        Ok(Self { keeper, ipv6: ipv6.clone(), report: report.clone(), stays })
    }

    /// Undoes the changes.
    ///
    /// # Errors
    /// A message for the user: what is left, which the file then has.
    pub(super) fn end(mut self) -> Result<(), String> {
        let outcome = self.undo();
        self.stays = true;
        outcome
    }

    fn undo(&mut self) -> Result<(), String> {
        self.keeper.end();
        let state = self.keeper.state();
        let State { folder, device, changes, .. } = &*state;
        undo(folder, device, changes)
    }

    /// Keeps a device that was made, with these addresses, instead of the one before.
    pub(super) fn keep_device(&mut self, addresses: &[(IpAddr, u8)], mtu: u16) {
        self.release_device();
        let mut state = self.keeper.state();
        let device = state.device.clone();
        for &(address, bits) in addresses {
            state.keep(Kept::Setting(Setting::Address { device: device.clone(), address, bits }));
        }
        state.keep(Kept::Setting(Setting::Link { device, mtu }));
        drop(state);
        self.keeper.wake();
    }

    /// Does not keep the device any more, nor what belongs to it, because another one is made.
    pub(super) fn release_device(&mut self) {
        let mut state = self.keeper.state();
        let device = state.device.clone();
        state.upkeep.retain(|kept| !matches!(kept, Kept::Setting(setting) if setting.device() == Some(&device)));
        self.keeper.wake();
    }

    /// Changes the MTU of the device.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn set_mtu(&mut self, mtu: u16) -> Result<(), String> {
        let mut state = self.keeper.state();
        let link = Setting::Link { device: state.device.clone(), mtu };
        state.upkeep.retain(|kept| !matches!(kept, Kept::Setting(Setting::Link { .. })));
        routing::set(&link).map_err(|error| format!("cannot give {} the MTU {mtu}: {error}", state.device))?;
        state.keep(Kept::Setting(link));
        Ok(())
    }

    /// Sends packets for `network` over the device. The kernel removes the route with the device.
    ///
    /// # Errors
    /// A message for the user. A route that this host has to the same network stays.
    pub(super) fn add_route(&mut self, network: &Prefix) -> Result<(), String> {
        let mut state = self.keeper.state();
        let target = Target::Device(state.device.clone());
        let route =
            Setting::Route(Route { table: TABLE_MAIN, network: network.address(), bits: network.bits(), target });
        match routing::set(&route) {
            Ok(()) => state.keep(Kept::Setting(route)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(format!("this host has another route to {network}"));
            }
            Err(error) => return Err(format!("cannot make {route}: {error}")),
        }
        Ok(())
    }

    /// Sends packets for `network` over the device no more.
    pub(super) fn remove_route(&mut self, network: &Prefix) {
        let mut state = self.keeper.state();
        let target = Target::Device(state.device.clone());
        let (network, bits) = (network.address(), network.bits());
        let route = Setting::Route(Route { table: TABLE_MAIN, network, bits, target });
        state.upkeep.retain(|kept| *kept != Kept::Setting(route.clone()));
        if let Err(error) = routing::remove(&route) {
            tracing::debug!(%error, "a route was removed before");
        }
    }

    /// Sends all packets over the device but those with the [`MARK`] and those to networks that this host
    /// has a route for besides its default route. With `is_strict`, packets that would use the default
    /// route are refused while the device is gone. Those of IPv6 are always refused if the kernel has it, but not for
    /// this device: others may have it. Packets of `servers` are [let in](Self::let_in).
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn send_all(&mut self, is_strict: bool, servers: &[SocketAddr]) -> Result<(), String> {
        let device = self.keeper.state().device.clone();
        self.direct(Some(&device), is_strict, servers)
    }

    /// Refuses these packets until there is a device, and lets in those of `servers`. A packet filter refuses what leaves
    /// outside the tunnel, also where rules and routes do not.
    ///
    /// # Errors
    /// As [`send_all`](Self::send_all).
    pub(super) fn refuse_all(&mut self, servers: &[SocketAddr]) -> Result<(), String> {
        let mut state = self.keeper.state();
        let observed = Observed::read(MARK).map_err(|error| format!("cannot read the routes of this host: {error}"))?;
        if !state.changes.filters {
            state.changes.filters = true;
            state.write()?;
        }
        state.filter_outside(&observed)?;
        state.keep(Kept::Filter);
        drop(state);
        self.direct(None, true, servers)
    }

    fn direct(&mut self, device: Option<&str>, is_strict: bool, servers: &[SocketAddr]) -> Result<(), String> {
        for &(family, is_usable) in self.ipv6.families() {
            let rule = |priority, packets, table| Setting::Rule(Rule { family, priority, packets, table });
            let route = |target| Setting::Route(Route { table: MARK, network: any(family), bits: 0, target });
            self.change(rule(PRIORITY_SPECIFIC, Packets::NotByDefaultRoute, Some(TABLE_MAIN)))?;
            if family == Family::V4 {
                // Before the rules that have the filter drop their packets, and so undone after these.
                self.let_in(servers)?;
            }
            if let Some(device) = device.filter(|_| is_usable) {
                self.change(route(Target::Device(device.to_owned())))?;
            }
            if is_strict || !is_usable {
                self.change(route(Target::Unreachable))?;
            }
            self.change(rule(PRIORITY_TUNNEL, Packets::WithoutMark(MARK), Some(MARK)))?;
            if (is_strict || !is_usable) && family == Family::V6 {
                // In IPv6, an unreachable route is none for a socket that its program has bound to a device.
                self.change(rule(PRIORITY_BOUND, Packets::WithoutMark(MARK), None))?;
            }
        }
        Ok(())
    }

    /// Lets packets of these servers in, and keeps their addresses for the next command. The kernel's reverse path
    /// filter (RFC 3704), where it is on, looks up the route back without a mark, finds the tunnel's device or
    /// none, and drops the packet. It does so as root, for the protocol and the ports of the packet: those
    /// of a server have the main table.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn let_in(&mut self, servers: &[SocketAddr]) -> Result<(), String> {
        let has_filter = has_reverse_path_filter();
        let rule = |server: &SocketAddr| {
            let IpAddr::V4(address) = server.ip() else { return None };
            let packets = Packets::OfRootTo { address, port: server.port() };
            Some(Setting::Rule(Rule {
                family: Family::V4,
                priority: PRIORITY_SERVER,
                packets,
                table: Some(TABLE_MAIN),
            }))
        };
        let wanted: Vec<Setting> = servers.iter().filter(|_| has_filter).filter_map(rule).collect();
        let is_outdated = |setting: &Setting| {
            matches!(setting, Setting::Rule(rule) if rule.priority == PRIORITY_SERVER) && !wanted.contains(setting)
        };
        let mut state = self.keeper.state();
        state.upkeep.retain(|kept| !matches!(kept, Kept::Setting(setting) if is_outdated(setting)));
        let undo_one = |setting: &Setting| {
            routing::remove(setting).inspect_err(|error| self.report.warn(&still_there(setting, error)))
        };
        state.changes.settings.retain(|setting| !is_outdated(setting) || undo_one(setting).is_err());
        state.changes.servers = servers.to_vec();
        state.write()?;
        drop(state);
        wanted.into_iter().try_for_each(|rule| self.change(rule))
    }

    /// The servers of the command whose changes were taken over.
    pub(super) fn servers(&self) -> Vec<SocketAddr> {
        self.keeper.state().changes.servers.clone()
    }

    /// Looks up names at these servers.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn use_name_servers(&mut self, servers: &[IpAddr]) -> Result<(), String> {
        let mut state = self.keeper.state();
        state.name_servers = servers.to_vec();
        state.use_name_servers()?;
        state.keep(Kept::Names);
        drop(state);
        self.keeper.wake();
        Ok(())
    }

    /// Looks up names as before [`use_name_servers`](Self::use_name_servers), if that was done.
    pub(super) fn undo_names(&mut self) {
        let mut state = self.keeper.state();
        state.upkeep.retain(|kept| *kept != Kept::Names);
        if let Some(names) = state.changes.names.take()
            && let Err(why) = names.undo()
        {
            state.changes.names = Some(names);
            self.report.warn(&why);
        }
        self.keeper.wake();
    }

    /// The changes stay when this is dropped, until [`undo_device`] or the next
    /// [`begin`](Self::begin).
    pub(super) const fn stay(&mut self) {
        self.stays = true;
    }

    /// Makes a change, which is kept from now on.
    fn change(&mut self, setting: Setting) -> Result<(), String> {
        let mut state = self.keeper.state();
        let was_kept = state.changes.settings.contains(&setting);
        if !was_kept {
            state.changes.settings.insert(0, setting.clone());
            state.write()?;
        }
        match routing::set(&setting) {
            Ok(()) => {}
            // It was made for the device before this one.
            Err(error) if was_kept && error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                if !was_kept {
                    // It was not made. A rule that is there already is another command's.
                    state.changes.settings.remove(0);
                }
                return Err(format!("cannot make {setting}: {error}"));
            }
        }
        state.keep(Kept::Setting(setting));
        Ok(())
    }
}

impl Drop for HostNetwork {
    fn drop(&mut self) {
        if !self.stays
            && let Err(why) = self.undo()
        {
            self.report.warn(&why);
        }
    }
}

/// Refuses to send all packets over `device` if they go over another one.
///
/// # Errors
/// A message for the user: all packets go through another tunnel, or would, had it not been killed.
pub(super) fn check_that_no_other_sends_all(folder: &Path, device: &str) -> Result<(), String> {
    let observed = Observed::read(MARK).map_err(|error| format!("cannot read the rules of this host: {error}"))?;
    let is_first = |setting: &Setting| matches!(setting, Setting::Rule(rule) if rule.priority == PRIORITY_SPECIFIC);
    if !observed.settings.iter().any(is_first) {
        return Ok(());
    }
    let holders = holders(folder);
    match holders.iter().find(|holder| *holder != device) {
        Some(other) => Err(format!(
            "all packets of this host go through the tunnel {other}: `litz tunnel down --tun {other}` ends that"
        )),
        // This command's, which was killed: they are undone or taken over once there is a connection.
        None if !holders.is_empty() => Ok(()),
        None => Err(format!(
            "all packets of this host go through another tunnel, which has no file in {}: end its command, or, if \
             there is none, remove the rules with the priorities {PRIORITY_SERVER} to {PRIORITY_BOUND} with \
             `ip -4 rule del` and `ip -6 rule del`",
            folder.display()
        )),
    }
}

/// Undoes the changes for `device` of a command that was killed; false if there were none.
///
/// # Errors
/// A message for the user: the file cannot be read, or a change cannot be undone. Then the file has
/// the changes that are left.
pub(super) fn undo_device(folder: &Path, device: &str) -> Result<bool, String> {
    let changes = left(folder, device)?;
    changes.iter().try_for_each(|changes| undo(folder, device, changes))?;
    Ok(changes.is_some())
}

/// Whether a command that uses `device`, or was killed, has written how to undo changes.
pub(super) fn has_left(folder: &Path, device: &str) -> bool {
    file_of(folder, device).exists()
}

/// Whether packets that would leave outside the tunnel are refused, by a file that a command has left.
pub(super) fn refuses(folder: &Path, device: &str, ipv6: &Ipv6) -> bool {
    Changes::read(folder, device).ok().flatten().is_some_and(|changes| changes.refuses(ipv6))
}

/// Says in words, with the remedy, which changes a command that was killed has left; none if there is nothing.
///
/// # Errors
/// A message for the user.
pub(super) fn left_in_words(folder: &Path, device: &str) -> Result<Option<String>, String> {
    let Some(changes) = Changes::read(folder, device)? else { return Ok(None) };
    let what = if changes.filters || changes.refuses_in(Family::V4) {
        "packets outside the tunnel are still refused (--kill-switch)"
    } else {
        "its routes and name servers are still changed"
    };
    let down = down_command(device);
    Ok(Some(format!("the command of the tunnel {device} was killed or has failed, and {what}: `{down}` ends that")))
}

/// The command that ends a tunnel.
pub(super) fn down_command(device: &str) -> String {
    match device {
        super::settings::DEVICE_DEFAULT => "litz tunnel down".to_owned(),
        name => format!("litz tunnel down --tun {name}"),
    }
}

/// The changes of a command that was killed, if there are any. That it runs no more is seen by its control socket, which
/// is open as long as there are changes: its process number may be another process's by now.
fn left(folder: &Path, device: &str) -> Result<Option<Changes>, String> {
    let Some(changes) = Changes::read(folder, device)? else { return Ok(None) };
    Ok(Some(changes))
}

/// Undoes changes, and removes the file. A change that was not made, or that the kernel has undone
/// with the device, cannot be undone, which is right.
///
/// # Errors
/// A message for the user: what is left, and why. The file has that then, for the next attempt.
fn undo(folder: &Path, device: &str, changes: &Changes) -> Result<(), String> {
    let mut left = Changes { process: changes.process, servers: changes.servers.clone(), ..Changes::default() };
    let mut errors = Vec::new();
    for setting in &changes.settings {
        if let Err(error) = routing::remove(setting) {
            left.settings.push(setting.clone());
            errors.push(still_there(setting, &error));
        }
    }
    if let Some(names) = &changes.names
        && let Err(why) = names.undo()
    {
        left.names = Some(names.clone());
        errors.push(format!("names are still looked up through the tunnel: {why}"));
    }
    if changes.filters
        && let Err(error) = nftables::remove(TABLE)
    {
        left.filters = true;
        errors.push(format!(
            "packets outside the tunnel are still refused (--kill-switch): {error}; `nft delete table inet {TABLE}` \
             removes the filter"
        ));
    }
    if !errors.is_empty() {
        errors.extend(left.write(folder, device).err());
        return Err(format!("{}. `{}` tries again", errors.join("; "), down_command(device)));
    }
    match fs::remove_file(file_of(folder, device)) {
        // It may never have been written.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", file_of(folder, device).display()))
        }
        _ => Ok(()),
    }
}

fn still_there(setting: &Setting, error: &io::Error) -> String {
    format!("{setting} is still there: {error}")
}

/// Whether the kernel compares where a packet comes from with the routes, on any device or on new ones.
fn has_reverse_path_filter() -> bool {
    let Ok(devices) = fs::read_dir("/proc/sys/net/ipv4/conf") else { return true };
    devices
        .flatten()
        .any(|device| fs::read_to_string(device.path().join("rp_filter")).is_ok_and(|setting| setting.trim() != "0"))
}

const fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
