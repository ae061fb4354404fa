//! Rights that a server gives up before it takes a packet: a fault in it must not become a fault of
//! the host. Landlock limits the files that it can open, and seccomp the system calls.
//!
//! Both apply to the thread that asks for them and to the threads that it starts afterwards, so the
//! server enters the sandbox before it starts any.

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

use crate::cli::host;
use crate::cli::transport_options::TransportOptions;

/// Whether the server gives up rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxMode {
    /// As far as the kernel allows it
    Auto,
    /// All of it, or the command does not start
    Require,
    /// The command keeps all rights of its user
    Off,
}

/// The parts of the sandbox that are in force, as the event `listening` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sandbox(pub(crate) Vec<&'static str>);

/// What a server may still do after its start.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    /// Directories that it changes.
    pub(crate) writable: Vec<PathBuf>,
    /// Files and directories that it reads.
    pub(crate) readable: Vec<PathBuf>,
    /// Directories in which it makes UNIX sockets.
    pub(crate) sockets: Vec<PathBuf>,
    /// Whether it connects and listens by TCP.
    pub(crate) tcp: bool,
}

impl Rights {
    /// What every server uses: its state, what these options name, and the list of keys.
    ///
    /// # Errors
    /// If there is no directory for state.
    pub(crate) fn of_server(options: &TransportOptions, allow: Option<&Path>) -> Result<Self, String> {
        let state = host::state_directory(options.state_dir.as_deref())?;
        // What does not exist yet is created in its parent.
        let recorded = [&options.journal, &options.qlog].into_iter().flatten();
        let recorded = recorded.map(|folder| if folder.is_dir() { folder.clone() } else { folder_of(folder) });
        let key_log = std::env::var_os("SSLKEYLOGFILE").map(PathBuf::from);
        let files = [options.trace_scheduler.as_ref(), key_log.as_ref()].into_iter().flatten();
        let written = recorded.chain(files.map(|file| folder_of(file))).filter(|folder| folder.is_dir());
        // An editor replaces the list by another file of its name. It may be a link to one elsewhere.
        let named = allow.into_iter().map(Path::to_owned).chain(allow.and_then(|list| list.canonicalize().ok()));
        let readable = named.map(|list| folder_of(&list)).filter(|folder| folder.is_dir()).collect();
        let writable = std::iter::once(state).chain(written).collect();
        Ok(Self { writable, readable, sockets: Vec::new(), tcp: false })
    }
}

/// The folder of a file that is written, or replaced by its editor, under its own name.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The servers of names are often listed in another folder, to which this is a link.
const RESOLVER: &str = "/etc/resolv.conf";

/// Read by every server: interfaces, limits, name services, and libraries that are loaded late.
const SYSTEM: [&str; 7] = ["/proc", "/sys", "/etc", "/dev", "/usr", "/lib", "/lib64"];

/// The version of Landlock whose rights are given up. Older kernels know fewer.
const LANDLOCK: ABI = ABI::V5;

/// Enters the sandbox.
///
/// # Errors
/// A message for the user, if the mode demands a sandbox that the kernel does not have, or if a place
/// cannot be opened.
pub(crate) fn enter(mode: SandboxMode, rights: &Rights) -> Result<Sandbox, String> {
    let mut sandbox = Sandbox::default();
    if mode == SandboxMode::Off {
        return Ok(sandbox);
    }
    let files = restrict_files(rights).map_err(|error| format!("cannot limit this command to its files: {error}"))?;
    let calls = restrict_calls();
    for (name, restricted) in
        [("landlock", files.then_some(()).ok_or("this kernel has no Landlock".to_owned())), ("seccomp", calls)]
    {
        match restricted {
            Ok(()) => sandbox.0.push(name),
            Err(error) if mode == SandboxMode::Require => {
                return Err(format!("cannot enter the sandbox: {error}; use --sandbox auto to start without it"));
            }
            Err(error) => tracing::info!(%error, "the server runs without {name}"),
        }
    }
    Ok(sandbox)
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

/// Files elsewhere, and TCP unless it is kept, are out of reach from now on; false if the kernel cannot
/// do that.
fn restrict_files(rights: &Rights) -> Result<bool, Box<dyn std::error::Error>> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let make_sockets = read | AccessFs::MakeSock | AccessFs::RemoveFile;
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(LANDLOCK))?;
    if !rights.tcp {
        ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    let mut ruleset = ruleset.create()?;
    let resolver = Path::new(RESOLVER).canonicalize().ok();
    let system = SYSTEM.iter().map(Path::new).filter(|path| path.exists()).chain(resolver.as_deref());
    let readable = system.chain(rights.readable.iter().map(PathBuf::as_path)).map(|path| (path, read));
    let writable = rights.writable.iter().map(|path| (path.as_path(), changes()));
    let sockets = rights.sockets.iter().map(|path| (path.as_path(), make_sockets));
    for (path, access) in readable.chain(writable).chain(sockets) {
        // Rights of directories do not fit a file.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
        ruleset = ruleset.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// System calls that fail from now on, with EPERM. A server has no use for them; attacks on a kernel
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

/// The sockets that a server opens: its own, those that report links, and that of the service
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
    fn inside(rights: Rights, act: impl FnOnce(Sandbox) + Send + 'static) {
        let entered = std::thread::spawn(move || act(enter(SandboxMode::Auto, &rights).expect("the places exist")));
        entered.join().expect("the thread does not panic");
    }

    #[test]
    fn only_the_places_of_the_server_can_be_changed() {
        let [inner, outer] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let (mine, other) = (inner.path().to_owned(), outer.path().to_owned());
        std::fs::write(other.join("secret"), "x").expect("it is writable before");
        inside(Rights { writable: vec![mine.clone()], ..Rights::default() }, move |sandbox| {
            std::fs::create_dir(mine.join("folder")).expect("below a place");
            std::fs::write(mine.join("folder/file"), "data").expect("below a place");
            std::fs::rename(mine.join("folder/file"), mine.join("file")).expect("within a place");
            std::fs::read_to_string("/proc/self/status").expect("the system can be read");
            if !sandbox.0.contains(&"landlock") {
                // The kernel has none; the server says so in its first event.
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
    fn a_server_that_forwards_keeps_tcp_and_makes_sockets_but_no_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        inside(Rights { sockets: vec![path.clone()], tcp: true, ..Rights::default() }, move |sandbox| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("TCP is kept");
            let address = listener.local_addr().expect("an address");
            std::net::TcpStream::connect(address).expect("TCP is kept");
            let socket = path.join("socket");
            std::os::unix::net::UnixListener::bind(&socket).expect("below a place");
            std::os::unix::net::UnixStream::connect(&socket).expect_err("its listener was dropped");
            std::fs::remove_file(&socket).expect("below a place");
            if sandbox.0.contains(&"landlock") {
                let error = std::fs::write(path.join("file"), "x").expect_err("it is refused");
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            }
        });
    }

    #[test]
    fn a_server_runs_no_program_and_opens_no_other_sockets() {
        inside(Rights::default(), |sandbox| {
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
            assert_eq!(enter(SandboxMode::Off, &Rights::default()), Ok(Sandbox::default()));
            std::fs::write(outside.path().join("file"), "x").expect("nothing is refused");
        });
        entered.join().expect("the thread does not panic");
    }

    #[test]
    fn a_place_that_does_not_exist_is_an_error() {
        let rights = Rights { writable: vec!["/no/such/folder".into()], ..Rights::default() };
        let entered = std::thread::spawn(move || enter(SandboxMode::Auto, &rights));
        let error = entered.join().expect("the thread does not panic").expect_err("there is no such folder");
        assert!(error.contains("/no/such/folder"), "{error}");
    }
}
