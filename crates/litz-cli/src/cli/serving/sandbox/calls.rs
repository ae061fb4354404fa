//! System calls that a server can make. A call that is not listed fails with ENOSYS, as on an older kernel:
//! libraries then do without it, as the C library does without clone3(2). What a server never does, with
//! a call that it needs otherwise, fails with EPERM.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The same number on every architecture; not every list of numbers has it.
const FCHMODAT2: libc::c_long = 452;

/// Files and directories.
const FILES: &[libc::c_long] = &[
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_syncfs,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Sockets.
const SOCKETS: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

/// Waiting, and the clocks.
const WAITING: &[libc::c_long] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_restart_syscall,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
];

/// Threads, their memory, and signals to this process.
const THREADS: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_clone,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_kill,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
];

/// Older forms of the calls above, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_chmod,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_sync_file_range,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(target_arch = "aarch64")]
const OLDER: &[libc::c_long] = &[
    // renameat and sync_file_range (asm-generic/unistd.h).
    38, 84,
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLDER: &[libc::c_long] = &[];

/// Refused whatever their arguments, and with EPERM: a program that cannot be started is an error that
/// users see.
const PROGRAMS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// The sockets that a server opens: its own, those that report links, and that of the service
/// manager.
const FAMILIES: [libc::c_int; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_UNIX];

/// What threads and the allocator set, and what precedes a filter.
const SETTINGS: [libc::c_int; 4] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA, libc::PR_SET_NO_NEW_PRIVS];

/// Requests about terminals, sockets and interfaces. Requests of devices are in none of them.
const REQUESTS: [u64; 13] = [
    libc::FIOCLEX,
    libc::FIONBIO,
    libc::FIONREAD,
    libc::FIONCLEX,
    libc::SIOCGIFFLAGS,
    libc::SIOCGIFINDEX,
    libc::SIOCGIFMTU,
    libc::SIOCGIFNAME,
    libc::TCGETS,
    libc::TIOCGPGRP,
    libc::TIOCGWINSZ,
    libc::TIOCOUTQ,
    // TCGETS2 (asm-generic/ioctls.h), with which newer C libraries ask whether a file is a terminal.
    0x802C_542A,
];

/// Limits this thread, and those that it starts, to the listed calls.
pub(super) fn restrict() -> Result<(), String> {
    let listed = [FILES, SOCKETS, WAITING, THREADS, OLDER].concat();
    let allowed = listed.iter().chain(&PROGRAMS).map(|call| (*call, Vec::new())).collect();
    // Of two filters that refuse the same call, the later one chooses the error. No call is refused by both:
    // programs pass the second filter, and not the first.
    apply(refusals()?, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))?;
    apply(allowed, SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Listed calls that are refused for some of their arguments.
fn refusals() -> Result<Rules, String> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let mut rules: Rules = PROGRAMS.iter().map(|call| (*call, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let none_of = |index, values: &[u64]| rule(&values.iter().map(|value| (index, Ne, *value)).collect::<Vec<_>>());
    let netlink = [(0, Eq, libc::AF_NETLINK as u64), (2, Ne, libc::NETLINK_ROUTE as u64)];
    let families = FAMILIES.map(|family| family as u64);
    rules.insert(libc::SYS_socket, vec![none_of(0, &families)?, rule(&netlink)?]);
    // A new process, or a thread in other namespaces.
    let thread = libc::CLONE_THREAD as u64;
    let spaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let mut clones = vec![rule(&[(0, MaskedEq(thread), 0)])?];
    for space in spaces.map(|space| space as u64) {
        clones.push(rule(&[(0, MaskedEq(space), space)])?);
    }
    rules.insert(libc::SYS_clone, clones);
    rules.insert(libc::SYS_prctl, vec![none_of(0, &SETTINGS.map(|setting| setting as u64))?]);
    rules.insert(libc::SYS_ioctl, vec![none_of(1, &REQUESTS)?]);
    // Of this process only.
    rules.insert(libc::SYS_kill, vec![none_of(0, &[own])?]);
    rules.insert(libc::SYS_tgkill, vec![none_of(0, &[own])?]);
    rules.insert(libc::SYS_prlimit64, vec![none_of(0, &[0, own])?]);
    Ok(rules)
}

/// Arguments, of which all must match.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, String> {
    let conditions = conditions.iter().map(|(index, operator, value)| {
        SeccompCondition::new(*index, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    let rule = conditions.collect::<Result<Vec<_>, _>>().and_then(SeccompRule::new);
    rule.map_err(|error| error.to_string())
}

fn apply(rules: Rules, otherwise: SeccompAction, matching: SeccompAction) -> Result<(), String> {
    let architecture =
        std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    let filter = SeccompFilter::new(rules, otherwise, matching, architecture).map_err(|error| error.to_string())?;
    let program: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}
