//! The caller of a call: its memory and its descriptors.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// A thread of another process, opened: what is read later is read from this process, whatever its
/// number means then.
#[derive(Debug)]
pub struct Thread {
    memory: File,
    process: OwnedFd,
}

impl Thread {
    /// Needs the right to trace it (ptrace(2)), as a parent of the same user has.
    pub(crate) fn open(number: u32) -> io::Result<Self> {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{number}/mem"))?;
        let process = pidfd_open(leader_of(number)?, PidfdFlags::empty())?;
        Ok(Self { memory, process })
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

    /// A duplicate of one of its descriptors, for the same open file.
    ///
    /// # Errors
    /// If there is no such descriptor.
    pub fn descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        // The kernel takes an int from the register, too.
        Ok(pidfd_getfd(&self.process, number as u32 as i32, PidfdGetfdFlags::empty())?)
    }
}

/// The process of a thread: descriptors of processes can be opened for their leaders only.
fn leader_of(thread: u32) -> io::Result<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    leader.and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
