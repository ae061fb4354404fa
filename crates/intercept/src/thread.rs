//! The caller of a system call: its memory and its descriptors.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Flag to open a thread that is not the leader of its process (PIDFD_THREAD, since Linux 6.9).
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// An open thread of another process: later reads refer to this process, even if its number is
/// reused.
#[derive(Debug)]
pub struct Thread {
    number: u32,
    memory: File,
    descriptors: Descriptors,
}

impl Thread {
    /// Opens a thread. Requires the right to trace it (ptrace(2)), which a parent of the same user
    /// has.
    pub(crate) fn open(number: u32) -> io::Result<Self> {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{number}/mem"))?;
        Ok(Self { number, memory, descriptors: Descriptors::open(number)? })
    }

    /// Reads memory from `address` on.
    ///
    /// # Errors
    /// Fails if there is no such memory.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(buffer, address)
    }

    /// Writes memory from `address` on.
    ///
    /// # Errors
    /// Fails if there is no such memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Returns whether a signal is pending for which it has a handler. If the process has ended,
    /// the answer may be that of another one.
    ///
    /// # Errors
    /// Fails if there is no such process.
    pub(crate) fn has_signal(&self) -> io::Result<bool> {
        let status = status_of(self.number)?;
        let set = |name| field(&status, name, 16).ok_or(io::ErrorKind::NotFound);
        let waiting = set("SigPnd:")? | set("ShdPnd:")?;
        Ok(waiting & set("SigCgt:")? & !set("SigBlk:")? != 0)
    }

    /// Returns a duplicate of one of its descriptors, for the same open file.
    ///
    /// # Errors
    /// Fails if there is no such descriptor.
    pub fn descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        self.descriptors.duplicate(number)
    }
}

/// Access to the descriptors of a thread, opened like [`Thread`].
#[derive(Debug)]
pub(crate) struct Descriptors(OwnedFd);

impl Descriptors {
    pub(crate) fn open(number: u32) -> io::Result<Self> {
        let thread = Pid::from_raw(number as i32).ok_or(io::ErrorKind::NotFound)?;
        // Before Linux 6.9, only leaders can be opened, and the flag does not exist.
        let opened = pidfd_open(thread, THREAD).or_else(|_| pidfd_open(thread, PidfdFlags::empty()));
        if let Ok(opened) = opened {
            return Ok(Self(opened));
        }
        let leader = field(&status_of(number)?, "Tgid:", 10).and_then(|leader| Pid::from_raw(leader as i32));
        Ok(Self(pidfd_open(leader.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?))
    }

    /// Returns a duplicate of one of them, for the same open file.
    pub(crate) fn duplicate(&self, number: u64) -> io::Result<OwnedFd> {
        // The kernel also reads an int from the register. It must not stand for a folder
        // (AT_FDCWD).
        let number = Some(number as u32 as i32).filter(|number| *number >= 0).ok_or(Errno::BADF)?;
        Ok(pidfd_getfd(&self.0, number, PidfdGetfdFlags::empty())?)
    }
}

/// Reads memory of a thread from `address` on, without opening it (process_vm_readv(2)).
pub(crate) fn read_memory(number: u32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: buffer.len() };
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`, which is borrowed until it returns. The
    // other address is one of the other process, where the kernel only reads. The arguments have the types of
    // process_vm_readv(2), of which musl has no function.
    let len = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            libc::c_long::from(number),
            &raw const here,
            1 as libc::c_ulong,
            &raw const there,
            1 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    };
    match usize::try_from(len) {
        Ok(len) if len == buffer.len() => Ok(()),
        Ok(_) => Err(Errno::FAULT.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Returns the text of a thread's `status` file. Its name may have any bytes.
fn status_of(number: u32) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{number}/status"))?).into_owned())
}

/// Parses a number in a thread's `status` file.
fn field(status: &str, name: &str, radix: u32) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(value.trim(), radix).ok()
}
