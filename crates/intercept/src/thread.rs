//! The caller of a call: its memory and its descriptors.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// A thread of another process, opened: what is read later is read from this process, whatever its
/// number means then.
#[derive(Debug)]
pub struct Thread {
    status: File,
    memory: File,
    process: OwnedFd,
}

impl Thread {
    /// Needs the right to trace it (ptrace(2)), as a parent of the same user has.
    pub(crate) fn open(number: u32) -> io::Result<Self> {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{number}/mem"))?;
        let status = File::open(format!("/proc/{number}/status"))?;
        let leader = field(&status, "Tgid:", 10).and_then(|leader| Pid::from_raw(leader as i32));
        let process = pidfd_open(leader.ok_or(io::ErrorKind::InvalidData)?, PidfdFlags::empty())?;
        Ok(Self { status, memory, process })
    }

    /// Reads memory from `address` on.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(buffer, address)
    }

    /// Writes memory from `address` on.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Whether a signal waits for which it has a handler.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn has_signal(&self) -> io::Result<bool> {
        let set = |name| field(&self.status, name, 16).ok_or(io::ErrorKind::NotFound);
        let waiting = set("SigPnd:")? | set("ShdPnd:")?;
        Ok(waiting & set("SigCgt:")? & !set("SigBlk:")? != 0)
    }

    /// A duplicate of one of its descriptors, for the same open file.
    ///
    /// # Errors
    /// If there is no such descriptor.
    pub fn descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        // The kernel takes an int from the register, too.
        Ok(pidfd_getfd(&self.process, number as u32 as i32, PidfdGetfdFlags::empty())?)
    }
}

/// Reads memory of a thread from `address` on, without opening it (process_vm_readv(2)).
pub(crate) fn read_memory(number: u32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: buffer.len() };
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`, which is borrowed until it returns. The
    // other address is one of the other process, where the kernel only reads.
    let len = unsafe { libc::process_vm_readv(number as libc::pid_t, &raw const here, 1, &raw const there, 1, 0) };
    match usize::try_from(len) {
        Ok(len) if len == buffer.len() => Ok(()),
        Ok(_) => Err(Errno::FAULT.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// A number in the table of a thread's state. Descriptors of processes can be opened for their leaders
/// only, whose number is there.
fn field(status: &File, name: &str, radix: u32) -> Option<u64> {
    let mut bytes = [0; 4096];
    let len = status.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(&bytes[..len]).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(value.trim(), radix).ok()
}
