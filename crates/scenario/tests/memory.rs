//! The memory of a run in the world `sim`: per connection with both ends, and per packet in flight.
//! The allocator counts for each thread separately, so that tests may run concurrently.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use scenario::parse::parse;
use scenario::simulated::Sim;
use scenario::world::{RunPlan, World};
use units::{Duration, Instant};

/// The system's allocator, with a count of the bytes that this thread holds. A run has one thread.
struct Counting;

thread_local! {
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn held_bytes() -> isize {
    HELD_BYTES.with(Cell::get)
}

fn note(bytes: isize) {
    // A thread that is ending may free memory after its counter was dropped.
    let _counted = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged; the counter touches no memory that
// it hands out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system's
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The approximate payload of a datagram of 1472 bytes.
const PAYLOAD_BYTES: u64 = 1440;

/// Returns the peak memory of a run over the second half of a virtual second, and the mean number
/// of packets in flight in that time, with buffers of `buffer_kib`.
fn peak(buffer_kib: u64) -> (u64, u64) {
    // The window of one stream is half of its host's. On this fast line only buffers and windows
    // limit the sender.
    let text = format!(
        "version = 1\n[scenario]\nname = 'memory'\nabout = 'x'\nduration = '1s'\n[hosts.a]\nsend-buffer = '{host}KiB'\n\
         [hosts.b]\nreceive-window = '{host}KiB'\n[[link]]\nname = 'a'\nrate = '40Gb/s'\ndelay = '5ms'\nqueue = '30ms'\n\
         [transport]\ndatagram-size = '1472B'\n[[workload]]\nkind = 'stream'\n",
        host = 2 * buffer_kib
    );
    let scenario = parse("memory.toml", &text, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"));
    let before = held_bytes();
    let (mut peak, mut looks) = (0, 0);
    let plan = RunPlan { paths: vec![0], seed: 1 };
    let outcome = Sim::default()
        .run(&scenario, &plan, &mut |progress| {
            if progress.now > Instant::ZERO + Duration::from_millis(500) {
                peak = peak.max(held_bytes() - before);
                looks += 1;
            }
            true
        })
        .expect("the run completes");
    assert!(looks > 0, "no progress was reported");
    // The bytes of one bin, which is a round trip of 10 ms, were in flight at the same time.
    let arrived = &outcome.parts[0].delivered.timeline.cumulative_bytes;
    let per_bin =
        (arrived[arrived.len() - 1] - arrived[arrived.len() / 2]) / (arrived.len() - 1 - arrived.len() / 2) as u64;
    (u64::try_from(peak).expect("a run holds something"), per_bin / PAYLOAD_BYTES)
}

#[test]
#[expect(clippy::print_stdout, reason = "docs/design/simulation.md cites the figures")]
fn a_simulated_connection_and_a_packet_in_flight_take_little_memory() {
    let ((little, few), (much, many)) = (peak(64), peak(8192));
    assert!(many > 1000 && few < 100, "{few} and {many} packets in flight");
    let packet_bytes = much.saturating_sub(little) / (many - few);
    // Both ends, both directions of the link, and the measurements of a second.
    let connection_bytes = little.saturating_sub(few * packet_bytes);
    println!("a connection takes {connection_bytes} bytes, a packet in flight {packet_bytes} ({many} were)");
    assert!((16..=512).contains(&packet_bytes), "{packet_bytes} bytes for a packet in flight");
    assert!((4096..=160 << 10).contains(&connection_bytes), "{connection_bytes} bytes for a connection");
}
