//! Heap bytes that a test holds, counted by the allocator per thread, since each test has its own
//! thread. The tests of TCP include it, too.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system allocator, with a count of the bytes that this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is exiting no longer counts.
    let _ended = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call goes to the system allocator unchanged. The counter touches no memory that the
// allocator returns, and as a plain cell without a destructor it allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread holds now, and the maximum since the meter was created, as of the calls
/// of `look`.
pub(crate) struct Meter {
    before: isize,
    most: isize,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self { before: HELD.get(), most: 0 }
    }

    /// Bytes held in addition to those at the start.
    pub(crate) fn look(&mut self) -> usize {
        let now = (HELD.get() - self.before).max(0);
        self.most = self.most.max(now);
        now as usize
    }

    /// Bytes that this thread has freed since the start, without those that it has allocated since.
    pub(crate) fn freed(&self) -> usize {
        (self.before - HELD.get()).max(0) as usize
    }

    /// The maximum that any call of `look` returned.
    pub(crate) fn most(&self) -> usize {
        self.most as usize
    }
}
