//! A link in memory between two hosts: it loses, reorders, damages and delays segments, and
//! delivers segments that arrive together in batches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use driver::socket::Received;
use driver::sync::lock;
use driver::{RECV_BATCHES_MAX, SendError, Socket};
use units::{Duration, Instant, Ratio, Rng};

use crate::host::TestClock;
use crate::packets::Segments;
use crate::protocol::Toy;
use crate::wire::{Hash, segments};

/// Limit of the bytes of a batch.
const BATCH_MAX: usize = 16 << 10;

/// Limit of the segments of a plan.
const PLAN_SEGMENTS_MAX: usize = 16;

/// The properties of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quality {
    pub(crate) delay: Duration,
    /// Interval of arrivals: segments arrive at multiples of this time, as with interrupt
    /// moderation. Zero delivers them at once.
    pub(crate) tick: Duration,
    /// The time between two segments.
    pub(crate) spacing: Duration,
    pub(crate) loss: Ratio,
    /// Share of segments that the next one overtakes.
    pub(crate) reorder: Ratio,
    /// Share of segments with a wrong bit.
    pub(crate) damage: Ratio,
    /// Limit of segments in flight. A sender waits while there is no space.
    pub(crate) capacity: usize,
    /// Share of send calls that find a full queue below the socket.
    pub(crate) no_buffers: Ratio,
}

impl Quality {
    pub(crate) const PERFECT: Self = Self {
        delay: Duration::ZERO,
        tick: Duration::ZERO,
        spacing: Duration::ZERO,
        loss: Ratio::ZERO,
        reorder: Ratio::ZERO,
        damage: Ratio::ZERO,
        capacity: 1024,
        no_buffers: Ratio::ZERO,
    };
}

/// Statistics of one direction of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// A hash of everything that was sent, with its times.
    pub(crate) digest: Hash,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) reordered: u64,
    pub(crate) damaged: u64,
    pub(crate) refused: u64,
    /// Delivered batches, and those with segments of several connections.
    pub(crate) batches: u64,
    pub(crate) mixed: u64,
}

struct Direction {
    queue: VecDeque<(Instant, Vec<u8>)>,
    overtaken: Option<Vec<u8>>,
    free_at: Instant,
    rng: Rng,
    receiver: Waker,
    sender: Waker,
    has_refused: bool,
    traffic: Traffic,
}

struct State {
    quality: Quality,
    /// The direction to the second host, and the one to the first.
    directions: [Direction; 2],
}

/// The state that both ends share.
#[derive(Clone)]
pub(crate) struct Link(Arc<Mutex<State>>);

impl Link {
    pub(crate) fn new(quality: Quality, seed: u64) -> Self {
        let rng = Rng::from_seed(seed);
        let direction = |name: &str| Direction {
            queue: VecDeque::new(),
            overtaken: None,
            free_at: Instant::ZERO,
            rng: rng.split(name),
            receiver: Waker::noop().clone(),
            sender: Waker::noop().clone(),
            has_refused: false,
            traffic: Traffic::default(),
        };
        Self(Arc::new(Mutex::new(State { quality, directions: [direction("there"), direction("back")] })))
    }

    /// Returns the end of host `host`. `receiver` wakes the processor that receives there, `sender`
    /// the one that sends.
    pub(crate) fn port(&self, host: usize, clock: TestClock, receiver: Waker, sender: Waker) -> Port {
        let mut state = lock(&self.0);
        state.directions[1 - host].receiver = receiver;
        state.directions[host].sender = sender;
        Port { link: self.clone(), host, clock }
    }

    pub(crate) fn traffic(&self) -> [Traffic; 2] {
        let state = lock(&self.0);
        [state.directions[0].traffic, state.directions[1].traffic]
    }

    /// Returns the time of the next arrival.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        let state = lock(&self.0);
        state.directions.iter().filter_map(|direction| direction.queue.front()).map(|(at, _)| *at).min()
    }

    /// Sends bytes to a host, as an attacker would.
    pub(crate) fn inject(&self, now: Instant, to: usize, bytes: Vec<u8>) {
        let waker = {
            let mut state = lock(&self.0);
            let direction = &mut state.directions[1 - to];
            direction.queue.push_back((now, bytes));
            direction.queue.make_contiguous().sort_by_key(|(at, _)| *at);
            direction.receiver.clone()
        };
        waker.wake();
    }
}

/// One end of a link.
#[derive(Clone)]
pub(crate) struct Port {
    link: Link,
    host: usize,
    clock: TestClock,
}

impl Port {
    /// Returns whether the link takes more.
    pub(crate) fn has_space(&self) -> bool {
        let state = lock(&self.link.0);
        state.directions[self.host].queue.len() < state.quality.capacity
    }
}

impl Direction {
    fn transmit(&mut self, quality: &Quality, now: Instant, segment: &[u8]) {
        self.traffic.digest.add(&now.as_nanos().to_le_bytes());
        self.traffic.digest.add(segment);
        self.traffic.sent += 1;
        if self.rng.chance(quality.loss) {
            self.traffic.lost += 1;
            return;
        }
        let mut segment = segment.to_vec();
        if self.rng.chance(quality.damage) {
            self.traffic.damaged += 1;
            let at = self.rng.below(segment.len() as u64 * 8);
            segment[(at / 8) as usize] ^= 1 << (at % 8);
        }
        if self.overtaken.is_none() && self.rng.chance(quality.reorder) {
            self.overtaken = Some(segment);
            return;
        }
        self.enqueue(quality, now, segment);
        if let Some(overtaken) = self.overtaken.take() {
            self.traffic.reordered += 1;
            self.enqueue(quality, now, overtaken);
        }
    }

    fn enqueue(&mut self, quality: &Quality, now: Instant, segment: Vec<u8>) {
        self.free_at = self.free_at.max(now) + quality.spacing;
        let at = (self.free_at + quality.delay).as_nanos();
        let tick = quality.tick.as_nanos().max(1);
        self.queue.push_back((Instant::from_nanos(at.div_ceil(tick) * tick), segment));
    }
}

impl Socket<Toy> for Port {
    type Buffers = ();

    fn receive(&mut self, (): &mut (), batches: &mut Vec<Segments>) -> Received {
        let now = self.clock.now();
        let mut state = lock(&self.link.0);
        let direction = &mut state.directions[1 - self.host];
        let before = batches.len();
        while direction.queue.front().is_some_and(|(at, _)| *at <= now) {
            if batches.len() == before + RECV_BATCHES_MAX {
                return Received::MayHaveMore;
            }
            let mut bytes = Vec::new();
            let fits = |(at, segment): &(Instant, Vec<u8>), len: usize| *at <= now && len + segment.len() <= BATCH_MAX;
            while direction.queue.front().is_some_and(|next| bytes.is_empty() || fits(next, bytes.len()))
                && let Some((_, segment)) = direction.queue.pop_front()
            {
                bytes.extend_from_slice(&segment);
            }
            let mut tuples: Vec<_> = segments(&bytes).map(|(_, header)| header.tuple()).collect();
            tuples.dedup();
            direction.traffic.batches += 1;
            direction.traffic.mixed += u64::from(tuples.len() > 1);
            batches.push(Segments { bytes });
        }
        if std::mem::take(&mut direction.has_refused) {
            direction.sender.wake_by_ref();
        }
        Received::NoMore
    }

    fn send(&mut self, packets: &Vec<u8>) -> Result<(), SendError> {
        let now = self.clock.now();
        let waker = {
            let mut state = lock(&self.link.0);
            let quality = state.quality;
            let direction = &mut state.directions[self.host];
            if direction.queue.len() >= quality.capacity {
                direction.has_refused = true;
                direction.traffic.refused += 1;
                return Err(SendError::WouldBlock);
            }
            if direction.rng.chance(quality.no_buffers) {
                direction.traffic.refused += 1;
                return Err(SendError::NoBuffers);
            }
            for (at, header) in segments(packets) {
                direction.transmit(&quality, now, &packets[at..at + header.segment_len()]);
            }
            direction.receiver.clone()
        };
        waker.wake();
        Ok(())
    }

    fn batch_max(&self) -> usize {
        PLAN_SEGMENTS_MAX
    }

    fn announces_space(&self) -> bool {
        true
    }

    fn has_arrived(&self) -> bool {
        let now = self.clock.now();
        let state = lock(&self.link.0);
        state.directions[1 - self.host].queue.front().is_some_and(|(at, _)| *at <= now)
    }

    fn take_arrived(&mut self) -> bool {
        self.has_arrived()
    }
}
