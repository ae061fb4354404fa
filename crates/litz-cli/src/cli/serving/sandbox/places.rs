//! Files that a server can open: its own ([`Rights`]), and those of the system that the libraries in it
//! read. No folder of the system is listed as a whole that holds a secret of root: a server that root
//! runs passes every check of modes, so it can read what Landlock lets it read.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::Rights;

/// The version of Landlock whose rights are given up. Older kernels know fewer.
const LANDLOCK: ABI = ABI::V6;

/// Libraries that are loaded late, such as those of name services, and data of the C library: time
/// zones and languages. The last two are where NixOS and Guix keep them.
const LIBRARIES: [&str; 10] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/share/locale",
    "/usr/share/zoneinfo",
    "/nix/store",
    "/gnu/store",
];

/// What libraries read when the process starts a thread, loads a library, or formats a time.
const FILES: [&str; 4] = ["/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/usr/local/lib"];

/// What name lookups read (nsswitch.conf(5), resolv.conf(5), hosts(5), gai.conf(5)).
pub(super) const NAMES: [&str; 9] = [
    RESOLVER,
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/networks",
    "/etc/protocols",
    "/etc/services",
    "/etc/mdns.allow",
];

/// The list of name servers. It is often a link into a folder of a service, which replaces the file there.
const RESOLVER: &str = "/etc/resolv.conf";

/// What describes the machine and this process: limits, descriptors, memory, processors, settings of
/// interfaces. Nothing of other processes: their environment and memory may hold secrets.
const MACHINE: [&str; 11] = [
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/net/core",
    "/proc/sys/net/ipv4/conf",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
];

/// Devices without a state that anybody could read or spoil.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// Limits this thread to the files of the server. Also gives up TCP, unless it is kept, and signals to
/// processes outside. Returns false if the kernel cannot do that.
pub(super) fn restrict(rights: &Rights) -> Result<bool, Box<dyn std::error::Error>> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let make_sockets = AccessFs::MakeSock | AccessFs::RemoveFile;
    let make_files = AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::Truncate;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .scope(Scope::Signal)?;
    if !rights.tcp {
        ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    let mut ruleset = ruleset.create()?;
    let system = system_places(rights.names);
    let devices = DEVICES.iter().map(Path::new).filter(|path| path.exists());
    let readable = system.iter().chain(&rights.readable).map(|path| (path.as_path(), read));
    let writable = rights.writable.iter().map(|path| (path.as_path(), changes()));
    let sockets = rights.sockets.iter().map(|path| (path.as_path(), make_sockets));
    let recorded = rights.recorded.iter().map(|path| (path.as_path(), make_files));
    let devices = devices.map(|path| (path, AccessFs::ReadFile | AccessFs::WriteFile));
    for (path, access) in readable.chain(writable).chain(sockets).chain(recorded).chain(devices) {
        // Rights of directories do not fit a file.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
        let place = PathFd::new(path)?;
        ruleset = ruleset.add_rule(PathBeneath::new(&place, access))?;
        if is_of_kernel(path) {
            // A rule is one of an inode. The kernel forgets those of procfs and sysfs when it needs
            // memory, and makes others for the same files, which would have no rule. An open descriptor
            // keeps them, as long as the process lives.
            std::mem::forget(place);
        }
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// What a server does in the directories that it changes: everything but to run programs and to
/// make devices, pipes and sockets.
fn changes() -> BitFlags<AccessFs> {
    let never = AccessFs::Execute
        | AccessFs::MakeChar
        | AccessFs::MakeBlock
        | AccessFs::MakeFifo
        | AccessFs::MakeSock
        | AccessFs::IoctlDev;
    AccessFs::from_all(LANDLOCK) & !never
}

fn is_of_kernel(path: &Path) -> bool {
    path.starts_with("/proc") || path.starts_with("/sys")
}

/// Places of the system that the server reads, as far as they exist.
fn system_places(names: bool) -> Vec<PathBuf> {
    let listed = LIBRARIES.iter().chain(&FILES).chain(&MACHINE).map(PathBuf::from);
    let mut places: Vec<PathBuf> = listed.filter(|path| path.exists()).collect();
    if names {
        places.extend(NAMES.iter().map(PathBuf::from).filter(|path| path.exists()));
        let linked = Path::new(RESOLVER).canonicalize().ok();
        if rustix::process::geteuid().is_root() {
            // A rule of a file does not hold for the one that replaces it; one of its folder does.
            let folder = linked.as_deref().and_then(Path::parent);
            places.extend(folder.filter(|folder| is_for_lists_of_servers(folder)).map(Path::to_owned));
        } else {
            // Secrets of root are protected from others by their modes, and editors and DHCP clients replace the
            // files of names.
            places.push("/etc".into());
            places.extend(
                linked.as_deref().and_then(Path::parent).filter(|it| it.starts_with("/run")).map(Path::to_owned),
            );
        }
    }
    places
}

/// Whether a folder is one in which a service of this name keeps nothing but lists of name servers. That of
/// NetworkManager, for instance, holds passwords of networks, too.
fn is_for_lists_of_servers(folder: &Path) -> bool {
    ["/run/systemd/resolve", "/run/resolvconf", "/run/connman"].iter().any(|known| folder == Path::new(known))
}
