//! The measurements: a thread sends, the caller receives.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use net::{DatagramSocket, MonotonicClock, RECV_BUFFER_BYTES, RecvMeta, Transmit, UdpSocket};
use netem::LinkConfig;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use units::{Duration, Instant, Rng};

use super::{DATAGRAM_BYTES, LimitsError, PROBED_DELAY, Percentiles};

/// Datagrams in flight during the throughput measurement: an amount that socket buffers hold for
/// certain.
const WINDOW_DATAGRAMS: u64 = 1024;

/// Without an arrival for this time, datagrams in flight are considered lost.
const LOST_AFTER: Duration = Duration::from_millis(20);

/// Number of single datagrams in the delay measurement.
const PROBES: usize = 2000;

/// Shortest interval between probes. A random addition of up to the same amount avoids
/// synchronization with other activity.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// Time after which a missing probe counts as lost.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of receive buffers.
const BUFFERS: usize = 8;

/// Limit on receive calls before the caller checks the time again. A sender as fast as the receiver
/// never leaves the socket empty.
const RECV_CALLS_MAX: usize = 16;

/// Function that returns true if the measurement should end early.
pub type IsCancelled<'a> = &'a dyn Fn() -> bool;

/// A sender, a receiver, and the destination address from which datagrams reach the receiver.
pub(super) struct Endpoints {
    pub(super) sender: UdpSocket,
    pub(super) receiver: UdpSocket,
    pub(super) to: SocketAddr,
    pub(super) clock: MonotonicClock,
}

/// Returns the configuration of a link without limits, with a queue large enough never to drop.
pub(super) fn open_config() -> LinkConfig {
    LinkConfig { queue_bytes: 64 << 20, ..LinkConfig::default() }
}

pub(super) fn delayed_config() -> LinkConfig {
    LinkConfig { delay: PROBED_DELAY, ..LinkConfig::default() }
}

/// Returns the number of datagrams per second that arrive with a fixed number in flight, sent in
/// batches of `batch`.
pub(super) fn packets_per_second(
    endpoints: Endpoints,
    batch: usize,
    span: Duration,
    is_cancelled: IsCancelled<'_>,
) -> Result<u64, LimitsError> {
    let arrived = Arc::new(AtomicU64::new(0));
    let Endpoints { sender, mut receiver, to, clock } = endpoints;
    let flooding = flood(sender, to, clock, batch, Arc::clone(&arrived))?;
    let begin = clock.now();
    // Warm-up: buffers grow and caches fill before the measurement begins.
    let (mut counted_from, mut counted) = (None, 0);
    let mut buffers = vec![vec![0; RECV_BUFFER_BYTES]; BUFFERS];
    // The span begins after the warm-up, however long that took.
    while counted_from.is_none_or(|from| clock.now() < from + span) {
        if is_cancelled() {
            return Err(LimitsError::Cancelled);
        }
        receive(&mut receiver, &mut buffers, Duration::from_millis(10), |_| {
            arrived.fetch_add(1, Ordering::Relaxed);
        })?;
        if counted_from.is_none() && clock.now() >= begin + span / 4 {
            counted_from = Some(clock.now());
            counted = arrived.load(Ordering::Relaxed);
        }
    }
    let measured = counted_from.map_or(Duration::ZERO, |from| clock.now().saturating_since(from));
    let arrivals = arrived.load(Ordering::Relaxed) - counted;
    flooding.end()?;
    Ok((arrivals as f64 / measured.as_secs_f64().max(1e-9)) as u64)
}

/// Keeps datagrams in flight until stopped.
fn flood(
    mut sender: UdpSocket,
    to: SocketAddr,
    clock: MonotonicClock,
    batch: usize,
    arrived: Arc<AtomicU64>,
) -> Result<SenderThread, LimitsError> {
    let contents = vec![0x5a; DATAGRAM_BYTES * batch];
    SenderThread::start(move |stop| {
        let segment_size = (batch > 1).then_some(DATAGRAM_BYTES);
        let transmit = Transmit { destination: to, source_ip: None, ecn: None, contents: &contents, segment_size };
        let (mut sent, mut seen, mut seen_at) = (0, 0, clock.now());
        while !stop.load(Ordering::Relaxed) {
            let (now, arrived) = (clock.now(), arrived.load(Ordering::Relaxed));
            if arrived > seen {
                (seen, seen_at) = (arrived, now);
            } else if now.saturating_since(seen_at) > LOST_AFTER {
                (sent, seen_at) = (arrived, now);
            }
            if sent >= arrived + WINDOW_DATAGRAMS || sender.send(&transmit).is_err() {
                sleep(Duration::from_micros(20));
            } else {
                sent += batch as u64;
            }
        }
    })
}

/// Returns the delay of single datagrams in excess of `delay`.
pub(super) fn added_delay(
    endpoints: Endpoints,
    delay: Duration,
    is_cancelled: IsCancelled<'_>,
) -> Result<Percentiles, LimitsError> {
    let Endpoints { mut sender, mut receiver, to, clock } = endpoints;
    let probing = SenderThread::start(move |stop| {
        let mut rng = Rng::from_seed(1);
        for _ in 0..PROBES {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            sleep(PROBE_INTERVAL + Duration::from_nanos(rng.below(PROBE_INTERVAL.as_nanos())));
            let contents = clock.now().as_nanos().to_be_bytes();
            let transmit =
                Transmit { destination: to, source_ip: None, ecn: None, contents: &contents, segment_size: None };
            // A datagram that was not sent does not arrive, and is not counted.
            let _sent = sender.send(&transmit);
        }
    })?;
    let mut times = Vec::with_capacity(PROBES);
    let mut buffers = vec![vec![0; RECV_BUFFER_BYTES]; BUFFERS];
    while times.len() < PROBES {
        if is_cancelled() {
            return Err(LimitsError::Cancelled);
        }
        let received = receive(&mut receiver, &mut buffers, PROBE_TIMEOUT, |datagram| {
            if let Ok(sent) = datagram.try_into().map(u64::from_be_bytes) {
                times.push(clock.now().saturating_since(Instant::from_nanos(sent)).saturating_sub(delay));
            }
        });
        if !received? {
            break;
        }
    }
    probing.end()?;
    Ok(Percentiles::of(times))
}

/// Waits for datagrams and passes those of at most [`RECV_CALLS_MAX`] calls to `take`. Returns false
/// if none came.
fn receive(
    socket: &mut UdpSocket,
    buffers: &mut [Vec<u8>],
    timeout: Duration,
    mut take: impl FnMut(&[u8]),
) -> Result<bool, LimitsError> {
    let nanos = timeout.as_nanos();
    let timeout = Timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], Some(&timeout)) {
        Ok(0) => return Ok(false),
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(LimitsError::Io(error.into())),
    }
    for _ in 0..RECV_CALLS_MAX {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        match socket.recv(&mut slices, &mut metas) {
            Ok(count) => {
                let filled = metas[..count].iter().zip(&*buffers);
                filled.for_each(|(meta, buffer)| meta.datagrams(buffer).for_each(&mut take));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(LimitsError::Io(error)),
        }
    }
    Ok(true)
}

/// Sending thread. Dropping it ends the thread, so that no thread outlives a failed measurement.
struct SenderThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SenderThread {
    /// Starts a thread with `run`, which must check the stop flag often.
    fn start(run: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<Self, LimitsError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&stop);
        #[expect(clippy::disallowed_methods, reason = "the sending end of a measurement; the thread is joined")]
        let thread = std::thread::Builder::new().name("litz-limits".into()).spawn(move || run(&stop_flag))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops and joins the thread.
    fn end(mut self) -> Result<(), LimitsError> {
        self.join().map_err(|_| LimitsError::Io(io::Error::other("a thread of the measurement panicked")))
    }

    fn join(&mut self) -> std::thread::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map_or(Ok(()), JoinHandle::join)
    }
}

impl Drop for SenderThread {
    fn drop(&mut self) {
        // If the thread panicked, the measurement has already failed with another error.
        let _joined = self.join();
    }
}

fn sleep(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the measuring application sleeps, not the link")]
    std::thread::sleep(span.into());
}

#[cfg(test)]
mod tests {
    use net::UdpSocketOptions;

    use super::*;

    /// While the sender keeps the socket filled, a call must return for the caller to see the time.
    #[test]
    fn receiving_returns_although_more_has_arrived() {
        const COUNT: usize = RECV_CALLS_MAX * BUFFERS + 1;
        let open = || UdpSocket::open(&UdpSocketOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        let (mut sender, mut receiver) = (open(), open());
        let to = receiver.local_addr().unwrap();
        let mut buffers = vec![vec![0; RECV_BUFFER_BYTES]; BUFFERS];
        let mut sent = 0;
        let taken = std::cell::Cell::new(0);
        let take = |_: &[u8]| taken.set(taken.get() + 1);
        // Each datagram has a different length, so that none are joined.
        while sent < COUNT {
            let contents = vec![0; 1 + sent % 700];
            let transmit =
                Transmit { destination: to, source_ip: None, ecn: None, contents: &contents, segment_size: None };
            sender.send(&transmit).unwrap();
            sent += 1;
        }
        assert!(receive(&mut receiver, &mut buffers, LOST_AFTER, take).unwrap());
        assert!(taken.get() < COUNT, "a call takes a bounded number");
        assert!(receive(&mut receiver, &mut buffers, LOST_AFTER, take).unwrap());
        assert_eq!(taken.get(), COUNT);
    }

    #[test]
    fn the_sender_thread_ends_with_its_measurement() {
        let open = || UdpSocket::open(&UdpSocketOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        let (sender, receiver) = (open(), open());
        let to = receiver.local_addr().unwrap();
        let arrived = Arc::new(AtomicU64::new(0));
        let flooding = flood(sender, to, MonotonicClock::start(), 1, Arc::clone(&arrived)).unwrap();
        assert_eq!(Arc::strong_count(&arrived), 2, "the thread runs");
        drop(flooding);
        assert_eq!(Arc::strong_count(&arrived), 1, "the thread has ended");
    }
}
