//! Routes, rules and name servers of this host, changed with the program `ip` (iproute2) so that they are undone in any
//! case: at the end of the command, by `litz tunnel down`, or when the next command starts.
//!
//! How to undo a change is written to a file before the change is made. A command that is killed leaves the
//! file; the next one that uses the device finds it.
//!
//! All devices would use the same rules and the same table, so one device has them at a time. The first rule
//! is made before all else and removed after all else: the kernel refuses it to another command.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use tunnel::Prefix;

use super::ipv6::Ipv6;
use super::name_service::NameService;

/// The number of the routing table with the tunnel's default route, and the mark of the tunnel's own
/// packets, which do not use it.
pub(super) const MARK: u32 = 0x6c69_747a;

/// The first rule, which is there as long as packets go through a tunnel, as `ip` shows it.
const FIRST_RULE: &str = "32100: from all lookup main suppress_prefixlength 0";

/// Priorities of the rules: before those of the main table (32766), the servers and the specific routes first.
const PRIORITY_SERVER: &str = "32099";
const PRIORITY_SPECIFIC: &str = "32100";
const PRIORITY_TUNNEL: &str = "32101";
const PRIORITY_BOUND: &str = "32102";

/// A route with a lower metric is preferred, so this one is used only when the device is gone.
const METRIC_LAST: &str = "4294967295";

/// What `ip` says of a rule or a route that is there already (EEXIST).
const EXISTS: &str = "File exists";

/// The end of the names of the files.
const EXTENSION: &str = "routes";

/// What was changed for one device.
pub(super) struct HostNetwork {
    file: PathBuf,
    changes: Changes,
    ipv6: Ipv6,
    /// Whether the changes outlive this.
    stays: bool,
}

/// The content of the file.
#[derive(Serialize, Deserialize, Default)]
struct Changes {
    /// The process that made the changes.
    process: u32,
    /// The arguments of `ip` that undo them, the last change first.
    undo: Vec<Vec<String>>,
    #[serde(default)]
    names: Option<NameService>,
    /// The addresses of the server. Their names cannot be looked up while packets are refused.
    #[serde(default)]
    servers: Vec<SocketAddr>,
}

impl Changes {
    /// Whether all packets are sent over the device.
    fn has_rules(&self) -> bool {
        self.undo.iter().any(|arguments| arguments.iter().any(|it| it == "rule"))
    }

    /// Whether packets are refused that would leave outside the tunnel, in all IP versions of the kernel.
    fn refuses(&self, ipv6: &Ipv6) -> bool {
        ipv6.families().iter().all(|(family, _)| self.refuses_in(family))
    }

    fn refuses_in(&self, family: &str) -> bool {
        let have = |word: &str| {
            let is_such = |undo: &Vec<String>| undo.iter().any(|it| it == family) && undo.iter().any(|it| it == word);
            self.undo.iter().any(is_such)
        };
        have("unreachable") && have("fwmark")
    }
}

impl HostNetwork {
    /// Begins to change routes for `device`. What a command that was killed has left is undone, or, with
    /// `keeps`, taken over if it refuses packets outside the tunnel: then none passes meanwhile, and the
    /// changes [stay](Self::stay). It may do so in IPv4 alone, if the kernel has got IPv6 since.
    ///
    /// # Errors
    /// A message for the user: the folder cannot be written.
    pub(super) fn begin(folder: &Path, device: &str, ipv6: &Ipv6, keeps: bool) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let file = file_of(folder, device);
        let (mut changes, mut stays) = (Changes::default(), false);
        match left(&file)? {
            Some(left) if keeps && left.refuses_in("-4") => (changes, stays) = (left, true),
            Some(left) => undo(&file, &left),
            None => {}
        }
        changes.process = std::process::id();
        let network = Self { file, changes, ipv6: ipv6.clone(), stays };
        if stays {
            network.write()?;
        }
        Ok(network)
    }

    /// Sends packets for `network` over the device. The kernel removes the route with the device.
    ///
    /// # Errors
    /// A message for the user. A route that this host has to the same network stays.
    pub(super) fn add_route(&mut self, network: &Prefix, device: &str) -> Result<(), String> {
        let family = family(network.address());
        match ip(&[family, "route", "add", &network.to_string(), "dev", device]) {
            Err(error) if error.contains(EXISTS) => Err(format!("this host has another route to {network}")),
            made => made.map(drop),
        }
    }

    /// Sends packets for `network` over the device no more.
    pub(super) fn remove_route(&mut self, network: &Prefix, device: &str) {
        let route = [family(network.address()), "route", "del", &network.to_string(), "dev", device];
        if let Err(error) = ip(&route) {
            tracing::debug!(error, "a route was removed before");
        }
    }

    /// Sends all packets over the device but those with the [`MARK`] and those to networks that this host
    /// has a route for besides its default route. With `is_strict`, packets that would use the default
    /// route are refused while the device is gone. Those of IPv6 are always refused if the kernel has it, but not for
    /// this device: others may have it. Packets of `servers` are [let in](Self::let_in).
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn send_all(&mut self, device: &str, is_strict: bool, servers: &[SocketAddr]) -> Result<(), String> {
        self.direct(Some(device), is_strict, servers)
    }

    /// Refuses these packets until there is a device, and lets in those of `servers`.
    ///
    /// # Errors
    /// As [`send_all`](Self::send_all).
    pub(super) fn refuse_all(&mut self, servers: &[SocketAddr]) -> Result<(), String> {
        self.direct(None, true, servers)
    }

    fn direct(&mut self, device: Option<&str>, is_strict: bool, servers: &[SocketAddr]) -> Result<(), String> {
        let (mark, table) = (format!("{MARK:#x}"), MARK.to_string());
        for &(family, is_usable) in self.ipv6.families() {
            let specific = |verb| {
                [family, "rule", verb, "priority", PRIORITY_SPECIFIC, "table", "main", "suppress_prefixlength", "0"]
            };
            self.change(&specific("add"), &specific("del"))?;
            if family == "-4" {
                // Before the rules that have the filter drop their packets, and so undone after these.
                self.let_in(servers)?;
            }
            if let Some(device) = device.filter(|_| is_usable) {
                let route = |verb| [family, "route", verb, "default", "dev", device, "table", &table];
                self.change(&route("replace"), &route("del"))?;
            }
            if is_strict || !is_usable {
                let refuse =
                    |verb| [family, "route", verb, "unreachable", "default", "metric", METRIC_LAST, "table", &table];
                self.change(&refuse("replace"), &refuse("del"))?;
            }
            let rule =
                |verb| [family, "rule", verb, "priority", PRIORITY_TUNNEL, "not", "fwmark", &mark, "table", &table];
            self.change(&rule("add"), &rule("del"))?;
            if (is_strict || !is_usable) && family == "-6" {
                // In IPv6, an unreachable route is none for a socket that its program has bound to a device.
                let refuse =
                    |verb| [family, "rule", verb, "priority", PRIORITY_BOUND, "not", "fwmark", &mark, "unreachable"];
                self.change(&refuse("add"), &refuse("del"))?;
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
        let rule = |verb: &str, server: &SocketAddr| {
            let (to, port) = (server.ip().to_string(), server.port().to_string());
            let of_port = ["ipproto", "udp", "dport", &port, "uidrange", "0-0", "table", "main"];
            let rule = ["-4", "rule", verb, "priority", PRIORITY_SERVER, "to", &to];
            rule.iter().chain(&of_port).map(|&word| word.to_owned()).collect::<Vec<_>>()
        };
        let filtered: Vec<_> = servers.iter().filter(|server| server.is_ipv4() && has_reverse_path_filter()).collect();
        let wanted: Vec<_> = filtered.iter().map(|server| rule("del", server)).collect();
        let is_outdated = |undo: &Vec<String>| undo.iter().any(|it| it == PRIORITY_SERVER) && !wanted.contains(undo);
        for outdated in self.changes.undo.iter().filter(|undo| is_outdated(undo)) {
            undo_one(outdated);
        }
        self.changes.undo.retain(|undo| !is_outdated(undo));
        self.changes.servers = servers.to_vec();
        self.write()?;
        for server in filtered {
            let [add, del] = ["add", "del"].map(|verb| rule(verb, server));
            let [add, del] = [&add, &del].map(|rule| rule.iter().map(String::as_str).collect::<Vec<_>>());
            self.change(&add, &del)?;
        }
        Ok(())
    }

    /// The servers of the command whose changes were taken over.
    pub(super) fn servers(&self) -> &[SocketAddr] {
        &self.changes.servers
    }

    /// Looks up names at these servers.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn use_name_servers(&mut self, device: &str, servers: &[IpAddr]) -> Result<(), String> {
        let names = NameService::plan(device, servers, self.changes.names.as_ref())?;
        self.changes.names = Some(names.clone());
        self.write()?;
        names.make(device, servers)
    }

    /// Looks up names as before [`use_name_servers`](Self::use_name_servers), if that was done.
    pub(super) fn undo_names(&mut self) {
        undo_names(self.changes.names.take().as_ref());
    }

    /// Whether the changes stay when this is dropped, until [`undo_device`] or the next
    /// [`begin`](Self::begin).
    pub(super) const fn stay(&mut self, stays: bool) {
        self.stays = stays;
    }

    fn change(&mut self, arguments: &[&str], undo: &[&str]) -> Result<(), String> {
        let undo: Vec<String> = undo.iter().map(|&word| word.to_owned()).collect();
        let was_kept = self.changes.undo.contains(&undo);
        if !was_kept {
            self.changes.undo.insert(0, undo);
            self.write()?;
        }
        match ip(arguments) {
            Ok(_) => Ok(()),
            // It was made for the device before this one.
            Err(error) if was_kept && error.contains(EXISTS) => Ok(()),
            Err(error) => {
                if !was_kept {
                    // It was not made. A rule that is there already is another command's.
                    self.changes.undo.remove(0);
                }
                Err(error)
            }
        }
    }

    /// Writes how to undo the changes.
    fn write(&self) -> Result<(), String> {
        write(&self.file, &self.changes)
            .map_err(|error| format!("cannot write {}, which says how to undo changes: {error}", self.file.display()))
    }
}

impl Drop for HostNetwork {
    fn drop(&mut self) {
        if !self.stays {
            undo(&self.file, &self.changes);
        }
    }
}

/// Refuses to send all packets over `device` if they go over another one.
///
/// # Errors
/// A message for the user: all packets go through another tunnel, or would, had it not been killed.
pub(super) fn check_that_no_other_sends_all(folder: &Path, device: &str) -> Result<(), String> {
    let rules = ip(&["-4", "rule", "show"])?;
    let is_first_rule = |line: &str| line.split_whitespace().eq(FIRST_RULE.split(' '));
    if !rules.lines().any(is_first_rule) {
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

/// The devices that all packets are sent over, by the files in the folder.
fn holders(folder: &Path) -> Vec<String> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let device = |path: PathBuf| {
        let has_rules = path.extension().is_some_and(|extension| extension == EXTENSION)
            && changes_in(&path).is_some_and(|changes| changes.has_rules());
        has_rules.then(|| path.file_stem().and_then(OsStr::to_str).map(str::to_owned)).flatten()
    };
    files.filter_map(|file| device(file.ok()?.path())).collect()
}

/// The changes in a file, if it is there and whole.
fn changes_in(file: &Path) -> Option<Changes> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Changes the MTU of a device of this command.
///
/// # Errors
/// A message for the user.
pub(super) fn set_mtu(device: &str, mtu: u16) -> Result<(), String> {
    ip(&["link", "set", device, "mtu", &mtu.to_string()]).map(drop)
}

/// Undoes the changes for `device` of a command that was killed; false if there were none.
///
/// # Errors
/// A message for the user: the file cannot be read.
pub(super) fn undo_device(folder: &Path, device: &str) -> Result<bool, String> {
    undo_left(&file_of(folder, device))
}

fn file_of(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("{device}.{EXTENSION}"))
}

/// Whether a command that uses `device`, or was killed, has written how to undo changes.
pub(super) fn has_left(folder: &Path, device: &str) -> bool {
    file_of(folder, device).exists()
}

/// Whether packets that would leave outside the tunnel are refused, by a file that a command has left.
pub(super) fn refuses(folder: &Path, device: &str, ipv6: &Ipv6) -> bool {
    changes_in(&file_of(folder, device)).is_some_and(|changes| changes.refuses(ipv6))
}

fn undo_left(file: &Path) -> Result<bool, String> {
    let changes = left(file)?;
    changes.iter().for_each(|changes| undo(file, changes));
    Ok(changes.is_some())
}

/// The changes of a command that was killed, if there are any. That it runs no more is seen by its control socket, which
/// is open as long as there are changes: its process number may be another process's by now.
fn left(file: &Path) -> Result<Option<Changes>, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
    };
    let changes: Changes = serde_json::from_str(&text)
        .map_err(|error| format!("{} is damaged ({error}): undo the changes by hand and remove it", file.display()))?;
    Ok(Some(changes))
}

/// Undoes changes and removes the file. A change that was not made, or that the kernel has undone with the
/// device, cannot be undone, which is right.
fn undo(file: &Path, changes: &Changes) {
    changes.undo.iter().for_each(|arguments| undo_one(arguments));
    undo_names(changes.names.as_ref());
    // It may never have been written.
    let _none = fs::remove_file(file);
}

fn undo_one(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let Err(error) = ip(&arguments) {
        tracing::debug!(error, "a change of the routes was undone before");
    }
}

/// Whether the kernel compares where a packet comes from with the routes, on any device or on new ones.
fn has_reverse_path_filter() -> bool {
    let Ok(devices) = fs::read_dir("/proc/sys/net/ipv4/conf") else { return true };
    devices
        .flatten()
        .any(|device| fs::read_to_string(device.path().join("rp_filter")).is_ok_and(|setting| setting.trim() != "0"))
}

fn undo_names(names: Option<&NameService>) {
    if let Some(Err(error)) = names.map(NameService::undo) {
        tracing::error!(error, "names are still looked up through the tunnel");
    }
}

/// Replaces the file, so that it is whole in any case.
fn write(file: &Path, changes: &Changes) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut out = fs::File::create(&new)?;
    out.write_all(&serde_json::to_vec(changes)?)?;
    out.sync_all()?;
    fs::rename(new, file)
}

const fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "-4" } else { "-6" }
}

/// Runs `ip`, and returns what it prints.
fn ip(arguments: &[&str]) -> Result<String, String> {
    let shown = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("cannot run `{}`: {error} (install iproute2)", shown()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` failed: {}", shown(), why.trim()))
}
