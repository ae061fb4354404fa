#![expect(clippy::disallowed_methods, reason = "a sandbox is one thread's, and refuses sockets")]

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

/// What root can read, or change, of the host outside a server.
#[test]
fn secrets_of_the_host_cannot_be_opened() {
    let held = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("ssh_host_ed25519_key");
    std::fs::write(&key, "secret").expect("ours");
    let mut secrets: Vec<PathBuf> =
        ["/etc/shadow", "/etc/gshadow", "/proc/1/environ", "/proc/1/maps", "/proc/1/root/etc/shadow", "/proc/kcore"]
            .map(PathBuf::from)
            .into();
    secrets.extend(
        ["/dev/mem", "/dev/kmsg", "/dev/loop-control", "/dev/tty0", "/root/.ssh", "/proc/sys/net"].map(PathBuf::from),
    );
    secrets.extend(["/etc/ssh", "/dev", "/sys/firmware", "/sys/kernel/debug", "/var", "/boot", "/"].map(PathBuf::from));
    secrets.push(key);
    for folder in ["/etc/ssh", "/sys/class/block"] {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let place = if folder == "/etc/ssh" { folder } else { "/dev" };
        secrets.extend(names.map(|name| Path::new(place).join(name)));
    }
    // Those that this user could open: the modes protect others.
    secrets.retain(|path| std::fs::File::open(path).is_ok());
    let is_root = rustix::process::geteuid().is_root();
    assert!(!is_root || secrets.contains(&"/etc/shadow".into()), "root opens it outside");
    let readable = key_list::places(Path::new("/etc/hostname"));
    let sockets = vec!["/etc".into()];
    inside(Rights { names: is_root, tcp: true, readable, sockets, ..Rights::default() }, move |sandbox| {
        if !sandbox.0.contains(&"landlock") {
            return;
        }
        for path in secrets {
            let opened = std::fs::File::open(&path).map(drop).map_err(|error| error.kind());
            assert_eq!(opened, Err(ErrorKind::PermissionDenied), "{}", path.display());
        }
        std::fs::read("/proc/self/maps").expect("its own");
        assert!(std::fs::File::options().write(true).open("/proc/self/mem").is_err());
        drop(held);
    });
}

#[test]
fn a_server_looks_up_names_with_the_files_that_it_can_open() {
    use std::net::ToSocketAddrs as _;
    inside(Rights { names: true, ..Rights::default() }, |_| {
        for file in ["/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"].map(Path::new) {
            if file.exists() {
                std::fs::read(file).expect("name services read it");
            }
        }
        assert_eq!(unreadable_name_file(), None);
        let found = ("localhost", 1).to_socket_addrs().expect("every host has it");
        assert!(found.into_iter().all(|address| address.ip().is_loopback()));
    });
}

/// A file that replaces another one has no rule, like one that was not listed.
#[test]
fn a_name_file_that_the_sandbox_hides_is_named() {
    inside(Rights::default(), |sandbox| {
        let is_hidden = sandbox.0.contains(&"landlock") && Path::new("/etc/hosts").exists();
        assert_eq!(unreadable_name_file().is_some(), is_hidden);
    });
}

/// Arguments that are wrong would fail without a filter, but with other errors.
#[test]
#[expect(unsafe_code, reason = "the calls of an attacker have no safe interface")]
fn calls_that_attack_the_kernel_or_other_processes_fail() {
    let harmful: &[(&str, libc::c_long)] = &[
        ("acct", libc::SYS_acct),
        ("add_key", libc::SYS_add_key),
        ("bpf", libc::SYS_bpf),
        ("capset", libc::SYS_capset),
        ("chroot", libc::SYS_chroot),
        ("clock_settime", libc::SYS_clock_settime),
        ("clone3", libc::SYS_clone3),
        ("delete_module", libc::SYS_delete_module),
        ("execve", libc::SYS_execve),
        ("execveat", libc::SYS_execveat),
        ("finit_module", libc::SYS_finit_module),
        ("fsopen", libc::SYS_fsopen),
        ("init_module", libc::SYS_init_module),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("kcmp", libc::SYS_kcmp),
        ("kexec_load", libc::SYS_kexec_load),
        ("keyctl", libc::SYS_keyctl),
        ("mknodat", libc::SYS_mknodat),
        ("mount", libc::SYS_mount),
        ("move_pages", libc::SYS_move_pages),
        ("name_to_handle_at", libc::SYS_name_to_handle_at),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("personality", libc::SYS_personality),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("pidfd_open", libc::SYS_pidfd_open),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
        ("pivot_root", libc::SYS_pivot_root),
        ("process_madvise", libc::SYS_process_madvise),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("ptrace", libc::SYS_ptrace),
        ("quotactl", libc::SYS_quotactl),
        ("reboot", libc::SYS_reboot),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
        ("seccomp", libc::SYS_seccomp),
        ("sethostname", libc::SYS_sethostname),
        ("setns", libc::SYS_setns),
        ("setuid", libc::SYS_setuid),
        ("shmat", libc::SYS_shmat),
        ("swapon", libc::SYS_swapon),
        ("syslog", libc::SYS_syslog),
        ("umount2", libc::SYS_umount2),
        ("unshare", libc::SYS_unshare),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("vmsplice", libc::SYS_vmsplice),
        // Of a later kernel.
        ("a call of a later kernel", 1000),
    ];
    let refused = |name: &str, call, arguments: [libc::c_long; 3]| {
        let [first, second, third] = arguments;
        // SAFETY: no argument is the address of anything, and none asks for what has an effect on this process.
        let result = unsafe { libc::syscall(call, first, second, third, -1, -1, -1) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert!(result == -1 && matches!(error, Some(libc::EPERM | libc::ENOSYS)), "{name}: {result}, {error:?}");
    };
    inside(Rights::default(), move |_| {
        for (name, call) in harmful {
            refused(name, *call, [-1; 3]);
        }
        let parent = libc::c_long::from(std::os::unix::process::parent_id() as i32);
        let (thread, network) = (i64::from(libc::CLONE_THREAD), i64::from(libc::CLONE_NEWNET));
        // Allowed with other arguments.
        for (name, call, arguments) in [
            ("fork", libc::SYS_clone, [0, 0, 0]),
            ("a thread in another network namespace", libc::SYS_clone, [thread | network, 0, 0]),
            ("a signal to another process", libc::SYS_kill, [parent, 0, 0]),
            ("a signal to a thread of another process", libc::SYS_tgkill, [parent, parent, 0]),
            ("limits of another process", libc::SYS_prlimit64, [parent, 0, 0]),
            ("a terminal's input", libc::SYS_ioctl, [0, libc::TIOCSTI as libc::c_long, 0]),
            ("sight of others into its memory", libc::SYS_prctl, [libc::PR_SET_DUMPABLE.into(), 1, 0]),
            ("packets of devices", libc::SYS_socket, [libc::AF_PACKET.into(), libc::SOCK_RAW.into(), 0]),
            ("the packet filter", libc::SYS_socket, [libc::AF_NETLINK.into(), libc::SOCK_RAW.into(), 12]),
            ("virtual machines", libc::SYS_socket, [libc::AF_VSOCK.into(), libc::SOCK_STREAM.into(), 0]),
        ] {
            refused(name, call, arguments);
        }
        std::thread::spawn(|| ()).join().expect("threads start");
    });
}
