//! The measurements themselves: a thread sends, the caller receives.

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

/// Datagrams under way at a time when as many as possible shall pass: what socket buffers hold for sure.
const WINDOW_DATAGRAMS: u64 = 1024;

/// Without an arrival for so long, what is under way is lost.
const LOST_AFTER: Duration = Duration::from_millis(20);

/// Single datagrams that are timed.
const PROBES: usize = 2000;

/// They are sent this far apart, and up to as much again, so that they fall in step with nothing.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// A probe that is not there by then never comes.
const PATIENCE: Duration = Duration::from_millis(500);

/// Receive buffers.
const BUFFERS: usize = 8;

/// Asked many times a second whether to give up.
pub type IsCancelled<'a> = &'a dyn Fn() -> bool;

/// A sender, a receiver, and where to send so that it arrives there.
pub(super) struct Ends {
    pub(super) sender: UdpSocket,
    pub(super) receiver: UdpSocket,
    pub(super) to: SocketAddr,
    pub(super) clock: MonotonicClock,
}

/// A link that holds nothing back. Its queue must not be what drops.
pub(super) fn open_config() -> LinkConfig {
    LinkConfig { queue_bytes: 64 << 20, ..LinkConfig::default() }
}

pub(super) fn delayed_config() -> LinkConfig {
    LinkConfig { delay: PROBED_DELAY, ..LinkConfig::default() }
}

/// How many datagrams a second arrive when so many are kept under way, sent `batch` at a time.
pub(super) fn packets_per_second(
    ends: Ends,
    batch: usize,
    span: Duration,
    is_cancelled: IsCancelled<'_>,
) -> Result<u64, LimitsError> {
    let arrived = Arc::new(AtomicU64::new(0));
    let Ends { sender, mut receiver, to, clock } = ends;
    let flooding = flood(sender, to, clock, batch, Arc::clone(&arrived))?;
    let begin = clock.now();
    // Buffers grow and caches fill before the count begins.
    let (mut counted_from, mut counted) = (None, 0);
    let end = begin + span / 4 + span;
    let mut buffers = vec![vec![0; RECV_BUFFER_BYTES]; BUFFERS];
    while clock.now() < end {
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

/// Keeps datagrams under way, until told to stop.
fn flood(
    mut sender: UdpSocket,
    to: SocketAddr,
    clock: MonotonicClock,
    batch: usize,
    arrived: Arc<AtomicU64>,
) -> Result<Sending, LimitsError> {
    let contents = vec![0x5a; DATAGRAM_BYTES * batch];
    Sending::start(move |stop| {
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

/// How much later than `delay` single datagrams arrive.
pub(super) fn added_delay(
    ends: Ends,
    delay: Duration,
    is_cancelled: IsCancelled<'_>,
) -> Result<Percentiles, LimitsError> {
    let Ends { mut sender, mut receiver, to, clock } = ends;
    let probing = Sending::start(move |stop| {
        let mut rng = Rng::from_seed(1);
        for _ in 0..PROBES {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            sleep(PROBE_INTERVAL + Duration::from_nanos(rng.below(PROBE_INTERVAL.as_nanos())));
            let contents = clock.now().as_nanos().to_be_bytes();
            let transmit =
                Transmit { destination: to, source_ip: None, ecn: None, contents: &contents, segment_size: None };
            // One that was not sent does not arrive, and is not counted.
            let _sent = sender.send(&transmit);
        }
    })?;
    let mut times = Vec::with_capacity(PROBES);
    let mut buffers = vec![vec![0; RECV_BUFFER_BYTES]; BUFFERS];
    while times.len() < PROBES {
        if is_cancelled() {
            return Err(LimitsError::Cancelled);
        }
        let received = receive(&mut receiver, &mut buffers, PATIENCE, |datagram| {
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

/// Waits for datagrams and hands over all that are there; false if none came.
fn receive(
    socket: &mut UdpSocket,
    buffers: &mut [Vec<u8>],
    patience: Duration,
    mut take: impl FnMut(&[u8]),
) -> Result<bool, LimitsError> {
    let nanos = patience.as_nanos();
    let timeout = Timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], Some(&timeout)) {
        Ok(0) => return Ok(false),
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(LimitsError::Io(error.into())),
    }
    loop {
        let mut metas = [RecvMeta::default(); BUFFERS];
        let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        match socket.recv(&mut slices, &mut metas) {
            Ok(count) => {
                let filled = metas[..count].iter().zip(&*buffers);
                filled.for_each(|(meta, buffer)| meta.datagrams(buffer).for_each(&mut take));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(LimitsError::Io(error)),
        }
    }
}

/// The thread of the sending end. Dropping it ends the thread, so that none outlives a measurement that failed.
struct Sending {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sending {
    /// Runs `run`, which looks often whether it is to stop.
    fn start(run: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<Self, LimitsError> {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        #[expect(clippy::disallowed_methods, reason = "a measurement has two ends; the thread is joined at its end")]
        let thread = std::thread::Builder::new().name("litz-limits".into()).spawn(move || run(&theirs))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the thread.
    fn end(mut self) -> Result<(), LimitsError> {
        self.join().map_err(|_| LimitsError::Io(io::Error::other("a thread of the measurement panicked")))
    }

    fn join(&mut self) -> std::thread::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map_or(Ok(()), JoinHandle::join)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // If it panicked, whoever measures has failed already for another reason.
        let _joined = self.join();
    }
}

fn sleep(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "an application that waits, not the link")]
    std::thread::sleep(span.into());
}

#[cfg(test)]
mod tests {
    use net::UdpSocketOptions;

    use super::*;

    #[test]
    fn a_flood_ends_with_the_measurement_that_wanted_it() {
        let open = || UdpSocket::open(&UdpSocketOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        let (sender, receiver) = (open(), open());
        let to = receiver.local_addr().unwrap();
        let arrived = Arc::new(AtomicU64::new(0));
        let flooding = flood(sender, to, MonotonicClock::start(), 1, Arc::clone(&arrived)).unwrap();
        assert_eq!(Arc::strong_count(&arrived), 2, "it runs");
        drop(flooding);
        assert_eq!(Arc::strong_count(&arrived), 1, "its thread is gone");
    }
}
