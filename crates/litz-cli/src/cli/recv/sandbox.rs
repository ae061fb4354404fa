//! Rights that a receiver gives up before it takes a packet: a fault in it must not become a fault of
//! the host. Landlock limits the files that it can open, and seccomp the system calls.
//!
//! Both apply to the thread that asks for them and to the threads that it starts afterwards, so the
//! receiver enters the sandbox before it starts any.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Whether the receiver gives up rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxMode {
    /// As far as the kernel allows it
    Auto,
    /// Or the receiver does not start
    Require,
    /// The receiver keeps all rights of its user
    Off,
}

/// The parts of the sandbox that are in force, as the event `listening` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sandbox(pub(super) Vec<&'static str>);

/// The files that a receiver uses after its start.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Directories that it changes.
    pub(super) writable: Vec<PathBuf>,
    /// Files and directories that it reads.
    pub(super) readable: Vec<PathBuf>,
}

impl Places {
    /// The folder of a file that is written, or replaced by its editor, under its own name.
    pub(super) fn folder_of(file: &Path) -> PathBuf {
        match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        }
    }
}

/// Read by every receiver: interfaces, limits, name services, and libraries that are loaded late.
const SYSTEM: [&str; 7] = ["/proc", "/sys", "/etc", "/dev", "/usr", "/lib", "/lib64"];

/// The version of Landlock whose rights are given up. Older kernels know fewer.
const LANDLOCK: ABI = ABI::V5;

/// Enters the sandbox.
///
/// # Errors
/// A message for the user, if the mode demands a sandbox that the kernel does not have, or if a place
/// cannot be opened.
pub(super) fn enter(mode: SandboxMode, places: &Places) -> Result<Sandbox, String> {
    let mut sandbox = Sandbox::default();
    if mode == SandboxMode::Off {
        return Ok(sandbox);
    }
    let files = restrict_files(places).map_err(|error| format!("cannot limit the receiver to its files: {error}"))?;
    let calls = restrict_calls();
    for (name, restricted) in
        [("landlock", files.then_some(()).ok_or("this kernel has no Landlock".to_owned())), ("seccomp", calls)]
    {
        match restricted {
            Ok(()) => sandbox.0.push(name),
            Err(error) if mode == SandboxMode::Require => {
                return Err(format!("cannot enter the sandbox: {error}; use --sandbox auto to receive without it"));
            }
            Err(error) => tracing::info!(%error, "the receiver runs without {name}"),
        }
    }
    Ok(sandbox)
}

/// What a receiver does in the directories that it changes: everything but to run programs and to
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

/// Files elsewhere than in the places, and TCP, are out of reach from now on; false if the kernel
/// cannot do that.
fn restrict_files(places: &Places) -> Result<bool, Box<dyn std::error::Error>> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .create()?;
    let system = SYSTEM.iter().map(Path::new).filter(|path| path.exists());
    let readable = system.chain(places.readable.iter().map(PathBuf::as_path)).map(|path| (path, read));
    let writable = places.writable.iter().map(|path| (path.as_path(), changes()));
    for (path, access) in readable.chain(writable) {
        // Rights of directories do not fit a file.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
        ruleset = ruleset.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// System calls that fail from now on, with EPERM. A receiver has no use for them; attacks on a kernel
/// or on other processes begin with them.
const CALLS: [libc::c_long; 49] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_capset,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    libc::SYS_name_to_handle_at,
];

/// The sockets that a receiver opens: its own, those that report links, and that of the service
/// manager.
const FAMILIES: [libc::c_int; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_UNIX];

fn restrict_calls() -> Result<(), String> {
    let other_family = FAMILIES
        .iter()
        .map(|family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *family as u64))
        .collect::<Result<Vec<_>, _>>()
        .and_then(SeccompRule::new)
        .map_err(|error| error.to_string())?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_socket, vec![other_family]);
    let (otherwise, refused) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32));
    let architecture =
        std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    let filter = SeccompFilter::new(rules, otherwise, refused, architecture).map_err(|error| error.to_string())?;
    let program: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a sandbox is one thread's, and refuses sockets")]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// Runs in a thread of its own: the sandbox is that thread's.
    fn inside(places: Places, act: impl FnOnce(Sandbox) + Send + 'static) {
        let entered = std::thread::spawn(move || act(enter(SandboxMode::Auto, &places).expect("the places exist")));
        entered.join().expect("the thread does not panic");
    }

    #[test]
    fn only_the_places_of_the_receiver_can_be_changed() {
        let [inner, outer] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let (mine, other) = (inner.path().to_owned(), outer.path().to_owned());
        std::fs::write(other.join("secret"), "x").expect("it is writable before");
        inside(Places { writable: vec![mine.clone()], readable: Vec::new() }, move |sandbox| {
            std::fs::create_dir(mine.join("folder")).expect("below a place");
            std::fs::write(mine.join("folder/file"), "data").expect("below a place");
            std::fs::rename(mine.join("folder/file"), mine.join("file")).expect("within a place");
            std::fs::read_to_string("/proc/self/status").expect("the system can be read");
            if !sandbox.0.contains(&"landlock") {
                // The kernel has none; the receiver says so in its first event.
                return;
            }
            let denied = |result: std::io::Result<()>| result.expect_err("it is refused").kind();
            let read = std::fs::read(other.join("secret")).map(drop);
            assert_eq!(denied(read), ErrorKind::PermissionDenied);
            assert_eq!(denied(std::fs::write(other.join("file"), "x")), ErrorKind::PermissionDenied);
            assert_eq!(denied(std::fs::remove_file(other.join("secret"))), ErrorKind::PermissionDenied);
            assert_eq!(denied(std::net::TcpListener::bind("127.0.0.1:0").map(drop)), ErrorKind::PermissionDenied);
            std::net::UdpSocket::bind("127.0.0.1:0").expect("UDP is what a receiver needs");
        });
        assert!(outer.path().join("secret").exists());
    }

    #[test]
    fn a_receiver_runs_no_program_and_opens_no_other_sockets() {
        inside(Places::default(), |sandbox| {
            assert!(sandbox.0.contains(&"seccomp"), "every kernel that runs these tests has it: {sandbox:?}");
            let spawned = std::process::Command::new("/bin/true").spawn();
            assert_eq!(spawned.expect_err("it is refused").kind(), ErrorKind::PermissionDenied);
            let packet = rustix::net::socket(rustix::net::AddressFamily::PACKET, rustix::net::SocketType::DGRAM, None);
            assert_eq!(packet.expect_err("it is refused"), rustix::io::Errno::PERM);
            std::os::unix::net::UnixDatagram::unbound().expect("the service manager is told by one");
        });
    }

    #[test]
    fn without_a_sandbox_nothing_changes() {
        let outside = tempfile::tempdir().expect("a folder");
        let entered = std::thread::spawn(move || {
            assert_eq!(enter(SandboxMode::Off, &Places::default()), Ok(Sandbox::default()));
            std::fs::write(outside.path().join("file"), "x").expect("nothing is refused");
        });
        entered.join().expect("the thread does not panic");
    }

    #[test]
    fn a_place_that_does_not_exist_is_an_error() {
        let places = Places { writable: vec!["/no/such/folder".into()], readable: Vec::new() };
        let entered = std::thread::spawn(move || enter(SandboxMode::Auto, &places));
        let error = entered.join().expect("the thread does not panic").expect_err("there is no such folder");
        assert!(error.contains("/no/such/folder"), "{error}");
    }
}
