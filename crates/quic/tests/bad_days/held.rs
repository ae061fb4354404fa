//! What a test holds in memory, counted by the allocator: for each thread on its own, since each test has one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of what this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending counts no more.
    let _ended = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged; the counter touches no memory that it hands out, and being a
// plain cell without a destructor it allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread holds now and most of all since the meter was made; look often.
pub(crate) struct Meter {
    before: isize,
    most: isize,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self { before: HELD.get(), most: 0 }
    }

    /// Bytes more than at the start.
    pub(crate) fn look(&mut self) -> usize {
        let now = (HELD.get() - self.before).max(0);
        self.most = self.most.max(now);
        now as usize
    }

    /// The most that any look has seen.
    pub(crate) fn most(&self) -> usize {
        self.most as usize
    }
}
