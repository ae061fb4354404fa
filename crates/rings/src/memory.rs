//! Memory that two processes share: a file without a name, mapped by both.
//!
//! ```text
//!   state of both rings, a page │ bytes of the ring to the daemon │ bytes of the ring to the program
//! ```

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};

use crate::copy::WORD_LEN;
use crate::primitives::AtomicU64;
use crate::ring::{CONTROL_WORDS, Consumer, Place, Producer, SharedWords};

/// Length of the control page before the rings' bytes, which has the state of both rings.
pub const CONTROL_LEN: usize = 4096;

/// Minimum length of a ring.
pub const RING_LEN_MIN: usize = 4 << 10;

/// Maximum length of a ring: a limit on the memory that a daemon makes a program map.
pub const RING_LEN_MAX: usize = 4 << 20;

/// Seals: the file can neither shrink, so that no access fails, nor grow.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Direction of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The program writes, and the daemon reads.
    ToDaemon = 0,
    /// The daemon writes, and the program reads.
    ToProgram = 1,
}

/// Two rings that another process maps, too.
#[derive(Debug)]
pub struct Memory {
    map: MmapRaw,
    ring_len: usize,
}

impl Memory {
    /// Creates memory for two rings of `ring_len` bytes each, and returns it with the file to pass
    /// on.
    ///
    /// # Errors
    /// Returns the system's error.
    ///
    /// # Panics
    /// Panics if the length is no power of two from [`RING_LEN_MIN`] to [`RING_LEN_MAX`].
    pub fn create(ring_len: usize) -> io::Result<(Arc<Self>, OwnedFd)> {
        assert!(is_ring_len(ring_len), "a ring of {ring_len} bytes");
        let file = memfd_create("litz-rings", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, memory_len(ring_len) as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        let file = File::from(file);
        let map = MmapRaw::map_raw(&file)?;
        Ok((Arc::new(Self { map, ring_len }), file.into()))
    }

    /// Maps the memory of a passed file.
    ///
    /// # Errors
    /// Returns the system's error. Returns [`InvalidData`](io::ErrorKind::InvalidData) if the file
    /// is not sealed, or its length is impossible for memory of rings.
    pub fn open(file: OwnedFd) -> io::Result<Arc<Self>> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if !fcntl_get_seals(&file)?.contains(SEALS) {
            return invalid("the memory of the rings is not sealed");
        }
        let file = File::from(file);
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let ring_len = len.saturating_sub(CONTROL_LEN) / 2;
        if !is_ring_len(ring_len) || memory_len(ring_len) != len {
            return invalid("the memory of the rings has another length");
        }
        let map = MmapRaw::map_raw(&file)?;
        Ok(Arc::new(Self { map, ring_len }))
    }

    /// Returns the writing side of a ring. There is one per ring, in one of the two processes.
    #[must_use]
    pub fn producer(self: &Arc<Self>, direction: Direction) -> Producer<Arc<Self>> {
        Producer::new(Arc::clone(self), self.place(direction))
    }

    /// Returns the reading side of a ring. There is one per ring, in one of the two processes.
    #[must_use]
    pub fn consumer(self: &Arc<Self>, direction: Direction) -> Consumer<Arc<Self>> {
        Consumer::new(Arc::clone(self), self.place(direction))
    }

    fn place(&self, direction: Direction) -> Place {
        let (number, len) = (direction as usize, self.ring_len);
        let data = (CONTROL_LEN + number * len) / WORD_LEN;
        Place { control: number * CONTROL_WORDS, data, len }
    }
}

impl SharedWords for Arc<Memory> {
    fn words(&self) -> &[AtomicU64] {
        let words = self.map.as_ptr().cast::<AtomicU64>();
        // SAFETY: the mapping begins at a page, so it is aligned, and has this length as long as `self` has
        // it. It can be read and written, and an access cannot fail, because the file is sealed against
        // shrinking. All bytes are a valid `AtomicU64`. The other process may change them at any time, and
        // this one reads and changes them only through these atomics.
        unsafe { std::slice::from_raw_parts(words, self.map.len() / WORD_LEN) }
    }
}

/// Returns the length of the memory of a connection with two rings of this length.
#[must_use]
pub const fn memory_len(ring_len: usize) -> usize {
    CONTROL_LEN + 2 * ring_len
}

fn is_ring_len(len: usize) -> bool {
    len.is_power_of_two() && (RING_LEN_MIN..=RING_LEN_MAX).contains(&len)
}
