//! The functions that packetdrill calls, in the order of its `struct packetdrill_interface`.
//!
//! Safety: packetdrill passes the pointer that it was given at the beginning, and valid buffers, as the
//! system calls of the same names require.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use bytes::Bytes;
use libc::{iovec, msghdr, pollfd, sockaddr, socklen_t, ssize_t, timeval};
use units::{Duration, Instant};

use crate::settings::Settings;
use crate::shared::Shared;
use crate::socket::{Errno, Outcome};

/// The result of `read` and `write` for the system: a count, or -1 and the error's number.
fn result(result: Result<usize, Errno>) -> ssize_t {
    match result {
        Ok(count) => count as ssize_t,
        Err(errno) => {
            // SAFETY: the system gives each thread a place for the number.
            unsafe { *libc::__errno_location() = errno.0 };
            -1
        }
    }
}

fn status(outcome: Result<(), Errno>) -> c_int {
    result(outcome.map(|()| 0)) as c_int
}

/// The host.
unsafe fn host<'a>(userdata: *mut c_void) -> &'a Shared {
    unsafe { &*userdata.cast::<Shared>() }
}

unsafe fn address(address: *const sockaddr) -> Option<SocketAddr> {
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let address = &*address.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                Some((ip, u16::from_be(address.sin_port)).into())
            }
            libc::AF_INET6 => {
                let address = &*address.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
                Some((ip, u16::from_be(address.sin6_port)).into())
            }
            _ => None,
        }
    }
}

/// Writes an address for the caller, who may not want it.
unsafe fn put_address(from: SocketAddr, out: *mut sockaddr, len: *mut socklen_t) {
    if out.is_null() || len.is_null() {
        return;
    }
    unsafe {
        match from {
            SocketAddr::V4(from) => {
                let mut address: libc::sockaddr_in = std::mem::zeroed();
                address.sin_family = libc::AF_INET as u16;
                address.sin_port = from.port().to_be();
                address.sin_addr.s_addr = u32::from(*from.ip()).to_be();
                put(&address, out, len);
            }
            SocketAddr::V6(from) => {
                let mut address: libc::sockaddr_in6 = std::mem::zeroed();
                address.sin6_family = libc::AF_INET6 as u16;
                address.sin6_port = from.port().to_be();
                address.sin6_addr.s6_addr = from.ip().octets();
                put(&address, out, len);
            }
        }
    }
}

unsafe fn put<T>(address: &T, out: *mut sockaddr, len: *mut socklen_t) {
    unsafe {
        let size = size_of::<T>().min(*len as usize);
        ptr::copy_nonoverlapping(ptr::from_ref(address).cast::<u8>(), out.cast::<u8>(), size);
        *len = size_of::<T>() as socklen_t;
    }
}

/// A call on a descriptor that waits unless the descriptor, or a flag, forbids it.
fn wait<T>(
    shared: &Shared,
    fd: c_int,
    never: bool,
    would_block: i32,
    call: impl FnMut(&mut crate::host::Host) -> Outcome<T>,
) -> Result<T, Errno> {
    let is_nonblocking = never || shared.call(|host| host.get(fd).is_ok_and(|socket| socket.is_nonblocking));
    let deadline = is_nonblocking.then_some(Instant::ZERO);
    shared.wait(deadline, call).unwrap_or(Err(Errno(would_block)))
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    drop(unsafe { Box::from_raw(userdata.cast::<Shared>()) });
}

unsafe extern "C" fn socket(userdata: *mut c_void, _domain: c_int, kind: c_int, _protocol: c_int) -> c_int {
    let is_stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
    if !is_stream {
        return status(Err(Errno(libc::EPROTONOSUPPORT)));
    }
    unsafe { host(userdata) }.call(|host| {
        let fd = host.socket();
        host.get(fd).expect("it was made").is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        fd
    })
}

unsafe extern "C" fn bind(userdata: *mut c_void, fd: c_int, to: *const sockaddr, _len: socklen_t) -> c_int {
    let Some(to) = (unsafe { address(to) }) else { return status(Err(Errno(libc::EAFNOSUPPORT))) };
    status(unsafe { host(userdata) }.call(|host| host.bind(fd, to)))
}

unsafe extern "C" fn listen(userdata: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    status(unsafe { host(userdata) }.call(|host| host.listen(fd, backlog)))
}

unsafe extern "C" fn accept(userdata: *mut c_void, fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let shared = unsafe { host(userdata) };
    match wait(shared, fd, false, libc::EAGAIN, |host| host.accept(fd)) {
        Ok((accepted, remote)) => {
            unsafe { put_address(remote, from, len) };
            accepted
        }
        Err(errno) => status(Err(errno)),
    }
}

unsafe extern "C" fn connect(userdata: *mut c_void, fd: c_int, to: *const sockaddr, _len: socklen_t) -> c_int {
    let Some(to) = (unsafe { address(to) }) else { return status(Err(Errno(libc::EAFNOSUPPORT))) };
    let shared = unsafe { host(userdata) };
    let is_repeated = shared.call(|host| host.entry(fd).is_ok());
    let would_block = if is_repeated { libc::EALREADY } else { libc::EINPROGRESS };
    status(wait(shared, fd, false, would_block, |host| host.connect(fd, to)))
}

unsafe extern "C" fn read(userdata: *mut c_void, fd: c_int, buffer: *mut c_void, count: usize) -> ssize_t {
    unsafe { recv(userdata, fd, buffer, count, 0) }
}

unsafe extern "C" fn recv(userdata: *mut c_void, fd: c_int, out: *mut c_void, count: usize, flags: c_int) -> ssize_t {
    let parts = [iovec { iov_base: out, iov_len: count }];
    unsafe { receive(userdata, fd, &parts, flags) }
}

unsafe fn receive(userdata: *mut c_void, fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    if flags & !libc::MSG_DONTWAIT != 0 {
        return result(Err(Errno(libc::EOPNOTSUPP)));
    }
    if parts.iter().any(|part| part.iov_base.is_null() && part.iov_len > 0) {
        return result(Err(Errno(libc::EFAULT)));
    }
    let count = parts.iter().map(|part| part.iov_len).sum();
    let shared = unsafe { host(userdata) };
    let read = wait(shared, fd, flags & libc::MSG_DONTWAIT != 0, libc::EAGAIN, |host| host.read(fd, count));
    result(read.map(|bytes| {
        let mut rest = &bytes[..];
        for part in parts {
            let (now, later) = rest.split_at(rest.len().min(part.iov_len));
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), now.len()) };
            rest = later;
        }
        bytes.len()
    }))
}

unsafe fn parts<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(parts, count) } }
}

unsafe extern "C" fn readv(userdata: *mut c_void, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    let Ok(count) = usize::try_from(count) else { return result(Err(Errno(libc::EINVAL))) };
    unsafe { receive(userdata, fd, parts(iov, count), 0) }
}

unsafe extern "C" fn recvfrom(
    userdata: *mut c_void,
    fd: c_int,
    buffer: *mut c_void,
    count: usize,
    flags: c_int,
    _from: *mut sockaddr,
    _len: *mut socklen_t,
) -> ssize_t {
    unsafe { recv(userdata, fd, buffer, count, flags) }
}

unsafe extern "C" fn recvmsg(userdata: *mut c_void, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    unsafe {
        (*message).msg_controllen = 0;
        receive(userdata, fd, parts((*message).msg_iov, (*message).msg_iovlen), flags)
    }
}

unsafe extern "C" fn write(userdata: *mut c_void, fd: c_int, buffer: *const c_void, count: usize) -> ssize_t {
    unsafe { send(userdata, fd, buffer, count, 0) }
}

unsafe extern "C" fn send(
    userdata: *mut c_void,
    fd: c_int,
    buffer: *const c_void,
    count: usize,
    flags: c_int,
) -> ssize_t {
    let parts = [iovec { iov_base: buffer.cast_mut(), iov_len: count }];
    unsafe { transmit(userdata, fd, &parts, flags) }
}

/// Waits until all of it is taken, unless the descriptor forbids it.
unsafe fn transmit(userdata: *mut c_void, fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    if flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) != 0 {
        return result(Err(Errno(libc::EOPNOTSUPP)));
    }
    let mut all = Vec::new();
    if parts.iter().any(|part| part.iov_base.is_null() && part.iov_len > 0) {
        return result(Err(Errno(libc::EFAULT)));
    }
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) });
    }
    let (mut bytes, mut taken) = (Bytes::from(all), 0);
    let never = flags & libc::MSG_DONTWAIT != 0;
    let shared = unsafe { host(userdata) };
    let sent = wait(shared, fd, never, libc::EAGAIN, |host| match host.write(fd, &mut bytes) {
        Outcome::Done(count) => {
            taken += count;
            if bytes.is_empty() { Outcome::Done(taken) } else { Outcome::Waits }
        }
        other => other,
    });
    match sent {
        Err(_) if taken > 0 => taken as ssize_t,
        sent => result(sent),
    }
}

unsafe extern "C" fn writev(userdata: *mut c_void, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    let Ok(count) = usize::try_from(count) else { return result(Err(Errno(libc::EINVAL))) };
    unsafe { transmit(userdata, fd, parts(iov, count), 0) }
}

unsafe extern "C" fn sendto(
    userdata: *mut c_void,
    fd: c_int,
    buffer: *const c_void,
    count: usize,
    flags: c_int,
    _to: *const sockaddr,
    _len: socklen_t,
) -> ssize_t {
    unsafe { send(userdata, fd, buffer, count, flags) }
}

unsafe extern "C" fn sendmsg(userdata: *mut c_void, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    unsafe {
        if (*message).msg_controllen > 0 {
            return result(Err(Errno(libc::EOPNOTSUPP)));
        }
        transmit(userdata, fd, parts((*message).msg_iov, (*message).msg_iovlen), flags)
    }
}

/// Variadic in C. Its only optional argument is passed as a fixed one would be.
unsafe extern "C" fn fcntl(userdata: *mut c_void, fd: c_int, command: c_int, argument: c_long) -> c_int {
    let outcome = unsafe { host(userdata) }.call(|host| {
        let socket = host.get(fd)?;
        match command {
            libc::F_GETFL if socket.is_nonblocking => Ok(libc::O_RDWR | libc::O_NONBLOCK),
            libc::F_GETFL => Ok(libc::O_RDWR),
            libc::F_SETFL => {
                socket.is_nonblocking = argument & c_long::from(libc::O_NONBLOCK) != 0;
                Ok(0)
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    });
    outcome.unwrap_or_else(|errno| status(Err(errno)))
}

/// Variadic in C, as `fcntl`.
unsafe extern "C" fn ioctl(userdata: *mut c_void, fd: c_int, request: u64, argument: *mut c_int) -> c_int {
    let outcome = unsafe { host(userdata) }.call(|host| match request {
        libc::FIONREAD => host.entry(fd).map(|entry| entry.connection.readable()),
        libc::TIOCOUTQ => host.entry(fd).map(|entry| entry.connection.buffered()),
        _ => Err(Errno(libc::ENOTTY)),
    });
    status(outcome.map(|count| unsafe { *argument = count as c_int }))
}

unsafe extern "C" fn close(userdata: *mut c_void, fd: c_int) -> c_int {
    let closed = unsafe { host(userdata) }.call(|host| host.close(fd));
    if closed.is_ok() {
        // SAFETY: the host has made it, and has forgotten it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    status(closed)
}

unsafe extern "C" fn shutdown(userdata: *mut c_void, fd: c_int, how: c_int) -> c_int {
    status(unsafe { host(userdata) }.call(|host| host.shutdown(fd, how)))
}

unsafe extern "C" fn getsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let outcome = unsafe { host(userdata) }.call(|host| match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            let reason = host.entry(fd).ok().and_then(|entry| entry.connection.close_reason());
            let errno = reason.map_or(0, |reason| crate::socket::errno_of(reason).0);
            let socket = host.get(fd)?;
            let is_told = errno != 0 && socket.error.replace(Errno(errno)).is_some();
            Ok(if is_told { 0 } else { errno })
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => match host.entry(fd) {
            Ok(entry) => Ok(entry.connection.segment() as i32),
            // RFC 9293, section 3.7.1: without an option of the peer.
            Err(_) => Ok(host.get(fd)?.options.segment_max.map_or(536, |bytes| bytes as i32)),
        },
        _ => Err(Errno(libc::ENOPROTOOPT)),
    });
    status(outcome.map(|number| unsafe {
        *value.cast::<c_int>() = number;
        *len = size_of::<c_int>() as socklen_t;
    }))
}

unsafe extern "C" fn setsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if value.is_null() {
        return status(Err(Errno(libc::EFAULT)));
    }
    let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
    status(unsafe { host(userdata) }.call(|host| host.set_option(fd, level, name, value)))
}

unsafe extern "C" fn poll(userdata: *mut c_void, fds: *mut pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int {
    let shared = unsafe { host(userdata) };
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let deadline = u64::try_from(timeout_ms).ok().map(|ms| shared.now() + Duration::from_millis(ms));
    let always = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    let ready = shared.wait(deadline, |host| {
        let mut ready = 0;
        for entry in fds.iter_mut() {
            entry.revents = host.events(entry.fd) & (entry.events | always);
            ready += usize::from(entry.revents != 0);
        }
        if ready > 0 { Outcome::Done(ready) } else { Outcome::Waits }
    });
    result(ready.unwrap_or(Ok(0))) as c_int
}

unsafe extern "C" fn netdev_send(userdata: *mut c_void, packet: *const c_void, count: usize) -> c_int {
    let packet = unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), count) };
    unsafe { host(userdata) }.call(|host| host.receive(packet));
    0
}

unsafe extern "C" fn netdev_receive(
    userdata: *mut c_void,
    out: *mut c_void,
    count: *mut usize,
    time_usecs: *mut i64,
) -> c_int {
    let Some((at, packet)) = unsafe { host(userdata) }.next_packet() else {
        // packetdrill would ask again for ever.
        eprintln!("the stack sends nothing");
        std::process::exit(1);
    };
    unsafe {
        assert!(packet.len() <= *count, "packetdrill reads whole packets");
        ptr::copy_nonoverlapping(packet.as_ptr(), out.cast::<u8>(), packet.len());
        (*count, *time_usecs) = (packet.len(), micros(at));
    }
    0
}

fn micros(at: Instant) -> i64 {
    (at.saturating_since(Instant::ZERO).as_nanos() / 1000) as i64
}

unsafe extern "C" fn usleep(userdata: *mut c_void, micros: u32) -> c_int {
    unsafe { host(userdata) }.sleep(Duration::from_micros(micros.into()));
    0
}

unsafe extern "C" fn gettimeofday(userdata: *mut c_void, out: *mut timeval, _zone: *mut c_void) -> c_int {
    let now = micros(unsafe { host(userdata) }.clock());
    unsafe { *out = timeval { tv_sec: now / 1_000_000, tv_usec: now % 1_000_000 } };
    0
}

/// A call that our stack does not have. Scripts that make it are marked as not applicable.
unsafe extern "C" fn absent() -> c_int {
    status(Err(Errno(libc::ENOSYS)))
}

type Function = *const c_void;

/// packetdrill's `struct packetdrill_interface`.
#[repr(C)]
pub struct Interface {
    userdata: *mut c_void,
    functions: [Function; 32],
}

/// packetdrill calls this first. `flags` is its option `--so_flags`.
///
/// # Safety
/// `flags` is a string, and `out` the interface to be filled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, out: *mut Interface) {
    let flags = if flags.is_null() { c"" } else { unsafe { CStr::from_ptr(flags) } };
    let shared = Box::new(Shared::new(Settings::new(flags.to_str().expect("a path"))));
    let functions = [
        free as Function,
        socket as Function,
        bind as Function,
        listen as Function,
        accept as Function,
        connect as Function,
        read as Function,
        readv as Function,
        recv as Function,
        recvfrom as Function,
        recvmsg as Function,
        write as Function,
        writev as Function,
        send as Function,
        sendto as Function,
        sendmsg as Function,
        fcntl as Function,
        ioctl as Function,
        close as Function,
        shutdown as Function,
        getsockopt as Function,
        setsockopt as Function,
        poll as Function,
        netdev_send as Function,
        netdev_receive as Function,
        usleep as Function,
        gettimeofday as Function,
        absent as Function, // epoll_create
        absent as Function, // epoll_ctl
        absent as Function, // epoll_wait
        absent as Function, // pipe
        absent as Function, // splice
    ];
    unsafe { out.write(Interface { userdata: Box::into_raw(shared).cast(), functions }) };
}
