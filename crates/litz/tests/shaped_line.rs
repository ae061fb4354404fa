//! A line in memory with a rate and a delay, in real time, between the devices of two stacks.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use litz::tcp::MemoryTun;
use net::MonotonicClock;
use net::tun::TunDevice;
use netem::{Link, LinkConfig};
use units::Rng;

/// The largest packet with its offload header, and more.
const PACKET_MAX: usize = 70_000;

/// Moves packets between two devices until it is dropped.
pub(crate) struct ShapedLine {
    flags: Arc<Flags>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Flags {
    is_over: AtomicBool,
    /// Whether the line is cut, so that nothing arrives any more.
    is_cut: AtomicBool,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl ShapedLine {
    /// Starts a line with this configuration in each direction; returns it with the devices of the
    /// two stacks.
    #[expect(clippy::disallowed_methods, reason = "a line is a thread")]
    pub(crate) fn start(config: &LinkConfig, seed: u64) -> (Self, [MemoryTun; 2]) {
        let ([one, near], [other, far]) = (MemoryTun::pair(), MemoryTun::pair());
        let rng = Rng::from_seed(seed);
        let links = ["there", "back"].map(|name| Link::new(config.clone(), rng.split(name)));
        let flags = Arc::<Flags>::default();
        let seen = Arc::clone(&flags);
        let thread = std::thread::spawn(move || carry([near, far], links, &seen));
        (Self { flags, thread: Some(thread) }, [one, other])
    }

    #[allow(dead_code, reason = "the benchmark cuts no line")]
    pub(crate) fn cut(&self) {
        self.flags.is_cut.store(true, Ordering::Relaxed);
    }
}

impl Drop for ShapedLine {
    fn drop(&mut self) {
        self.flags.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("the line works");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a line is a thread")]
fn carry(mut ends: [MemoryTun; 2], mut links: [Link<Vec<u8>>; 2], flags: &Flags) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    ends.iter().for_each(|end| end.set_waker(waker.clone()));
    let (clock, mut buffer) = (MonotonicClock::start(), vec![0; PACKET_MAX]);
    while !flags.is_over.load(Ordering::Relaxed) {
        for from in 0..2 {
            while let Ok(len) = ends[from].read(&mut buffer) {
                if !flags.is_cut.load(Ordering::Relaxed) {
                    links[from].send(clock.now(), buffer[..len].to_vec());
                }
            }
            while let Some(packet) = links[from].poll_deliver(clock.now()) {
                // A full device drops the packet, as a queue does.
                let _dropped = ends[1 - from].write(&[IoSlice::new(&packet)]);
            }
        }
        let next = links.iter().filter_map(Link::poll_timeout).min();
        let wait = next.map_or(Duration::from_secs(1), |next| next.saturating_since(clock.now()).into());
        std::thread::park_timeout(wait);
    }
}
