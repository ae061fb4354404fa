//! A sender, paths and a receiver in virtual time: the minimum of a transport for closed-loop
//! tests.
//!
//! A path has a rate, a one-way delay in each direction and a FIFO queue large enough for the fixed
//! window, so no packet is lost by overflow. Each datagram is acknowledged separately, and
//! acknowledgements take no capacity. There is no loss recovery: data lost on a failing path
//! arrives only if the scheduler has it resent.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use scheduler::{Choice, Demand, PathView, Scheduler, Straggler};
use units::{Duration, Instant, Rate};

pub(crate) const DATAGRAM_BYTES: u64 = 1200;

/// Start time of every run. It is not zero, so that a duration since the start and a time are never
/// the same number.
pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000);

/// Time limit of a run, longer than any transfer may take: an endless run fails instead.
const RUN_MAX: Duration = Duration::from_secs(1_000);

/// The true properties of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) rate: Rate,
    pub(crate) one_way: Duration,
    pub(crate) window_bytes: u64,
    /// Whether the path is paced at 5/4 of the rate, in batches of 1 ms or ten datagrams; otherwise
    /// only the window limits it.
    pub(crate) is_paced: bool,
    pub(crate) dies_at: Option<Instant>,
    /// The capacity reported to the scheduler, in percent of the true one.
    pub(crate) told_percent: u64,
}

impl Link {
    pub(crate) fn base_rtt(&self) -> Duration {
        self.one_way * 2 + self.rate.time_for(DATAGRAM_BYTES)
    }

    pub(crate) fn bdp_bytes(&self) -> u64 {
        self.rate.bytes_in(self.base_rtt())
    }
}

/// The data to transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) bytes: u64,
    /// The flow-control credit of an ordered stream beyond the data read in order; `None`: no
    /// limit.
    pub(crate) credit_bytes: Option<u64>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Arrival time of the last byte; `None` if the run ended without it.
    pub(crate) completed_at: Option<Instant>,
    /// Datagrams sent, by path.
    pub(crate) sent: Vec<u64>,
    /// Datagrams resent on another path.
    pub(crate) copies: u64,
    /// Copies whose original arrived too.
    pub(crate) duplicates: u64,
    /// Arrival time of each further tenth.
    pub(crate) tenths: Vec<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { path: usize, number: u64 },
    Ack { path: usize, number: u64, read_bytes: u64 },
    Wake,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    number: u64,
    chunk: u64,
    at: Instant,
    bytes: u64,
    /// Whether it was resent on another path since.
    is_copied: bool,
}

#[derive(Debug)]
struct Path {
    link: Link,
    view: PathView,
    free_at: Instant,
    outstanding: BTreeSet<u64>,
    log: Vec<Sent>,
    heard_at: Instant,
    batch_left: u64,
}

pub(crate) struct Sim<'a> {
    scheduler: &'a mut dyn Scheduler,
    transfer: Transfer,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    events_count: u64,
    paths: Vec<Path>,
    next_chunk: u64,
    arrived: Vec<bool>,
    arrived_count: u64,
    /// First chunk that the receiver lacks.
    read_chunk: u64,
    /// The same chunk, as known to the sender.
    granted_bytes: u64,
    acked: Vec<bool>,
    outcome: Outcome,
}

impl<'a> Sim<'a> {
    pub(crate) fn new(scheduler: &'a mut dyn Scheduler, transfer: Transfer, links: &[Link]) -> Self {
        let chunks = transfer.bytes.div_ceil(DATAGRAM_BYTES) as usize;
        Self {
            scheduler,
            transfer,
            now: START,
            events: BinaryHeap::new(),
            events_count: 0,
            paths: links.iter().enumerate().map(|(id, link)| Path::new(id, *link)).collect(),
            next_chunk: 0,
            arrived: vec![false; chunks],
            arrived_count: 0,
            read_chunk: 0,
            granted_bytes: transfer.credit_bytes.unwrap_or(u64::MAX),
            acked: vec![false; chunks],
            outcome: Outcome { sent: vec![0; links.len()], ..Outcome::default() },
        }
    }

    /// Runs until everything has arrived or no event is left. Times in the outcome count from the
    /// first send.
    pub(crate) fn run(mut self) -> Outcome {
        self.send();
        while self.outcome.completed_at.is_none() {
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            assert!(at < START + RUN_MAX, "no end in sight after {RUN_MAX}: {:#?}", self.views());
            self.handle(event);
            self.send();
        }
        let since_start = |at: Instant| Instant::ZERO + at.saturating_since(START);
        self.outcome.completed_at = self.outcome.completed_at.map(since_start);
        self.outcome.tenths = self.outcome.tenths.into_iter().map(since_start).collect();
        self.outcome
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.events_count += 1;
        self.events.push(Reverse((at, self.events_count, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake => {}
            Event::Arrival { path, number } => {
                self.handle_arrival(self.paths[path].log[number as usize].chunk);
                let read_bytes = self.read_chunk * DATAGRAM_BYTES;
                let at = self.now + self.paths[path].link.one_way;
                self.schedule(at, Event::Ack { path, number, read_bytes });
            }
            Event::Ack { path, number, read_bytes } => {
                self.acked[self.paths[path].log[number as usize].chunk as usize] = true;
                if let Some(credit) = self.transfer.credit_bytes {
                    self.granted_bytes = self.granted_bytes.max(read_bytes + credit);
                }
                self.paths[path].on_ack(self.now, number);
            }
        }
        for path in &mut self.paths {
            path.update_suspect(self.now);
        }
    }

    fn handle_arrival(&mut self, chunk: u64) {
        let seen = &mut self.arrived[chunk as usize];
        if *seen {
            self.outcome.duplicates += 1;
            return;
        }
        *seen = true;
        self.arrived_count += 1;
        while self.arrived.get(self.read_chunk as usize).is_some_and(|&arrived| arrived) {
            self.read_chunk += 1;
        }
        let total = self.arrived.len() as u64;
        if self.arrived_count * 10 / total > self.outcome.tenths.len() as u64 {
            self.outcome.tenths.push(self.now);
        }
        if self.arrived_count == total {
            self.outcome.completed_at = Some(self.now);
        }
    }

    fn views(&mut self) -> Vec<PathView> {
        self.paths.iter().map(|path| path.view).collect()
    }

    fn send(&mut self) {
        loop {
            let unsent = self.transfer.bytes.saturating_sub(self.next_chunk * DATAGRAM_BYTES);
            let credit = self.granted_bytes.saturating_sub(self.next_chunk * DATAGRAM_BYTES);
            let ready_bytes = unsent.min(credit / DATAGRAM_BYTES * DATAGRAM_BYTES);
            if ready_bytes == 0 {
                return self.send_stragglers();
            }
            let demand = Demand { ready_bytes, is_last: unsent <= credit };
            let views = self.views();
            match self.scheduler.choose(self.now, &demand, &views) {
                Choice::Wait { until: None } => return,
                Choice::Wait { until: Some(until) } => {
                    assert!(until > self.now, "a wait until {until:?} at {:?} is not in the future", self.now);
                    return self.schedule(until, Event::Wake);
                }
                Choice::Send { path, bytes_max, copies } => {
                    assert!(views[path].may_send(self.now) || views.iter().all(|view| view.is_suspect));
                    let count = (bytes_max / DATAGRAM_BYTES).min(ready_bytes.div_ceil(DATAGRAM_BYTES));
                    self.send_batch(path, count, copies);
                }
            }
        }
    }

    fn send_batch(&mut self, path: usize, count: u64, copies: u32) {
        for _ in 0..count {
            if !self.paths[path].view.permits_datagram(self.now) {
                return;
            }
            let chunk = self.next_chunk;
            self.next_chunk += 1;
            self.send_chunk(path, chunk);
            for other in (0..self.paths.len()).filter(|other| copies >> other & 1 == 1) {
                self.send_chunk(other, chunk);
                self.outcome.copies += 1;
            }
        }
    }

    /// Queries the scheduler, when there is no new data, about the oldest outstanding data of each
    /// path, for each path that may send.
    fn send_stragglers(&mut self) {
        for on in 0..self.paths.len() {
            for from in (0..self.paths.len()).filter(|from| *from != on) {
                while self.paths[on].view.may_send(self.now) {
                    let path = &self.paths[from];
                    let mut outstanding = path.outstanding.iter().map(|&number| path.log[number as usize]);
                    let open = |sent: &Sent| !self.acked[sent.chunk as usize] && !sent.is_copied;
                    let Some(oldest) = outstanding.find(open) else { break };
                    let straggler = Straggler { path: from, sent_at: oldest.at, bytes: oldest.bytes };
                    let views = self.views();
                    if !self.scheduler.reinjects(self.now, &straggler, on, &views) {
                        break;
                    }
                    self.paths[from].log[oldest.number as usize].is_copied = true;
                    self.outcome.copies += 1;
                    self.send_chunk(on, oldest.chunk);
                }
            }
        }
        // The answer may change with time, without an acknowledgement.
        if self.paths.iter().any(|path| !path.outstanding.is_empty()) && self.events.is_empty() {
            let are_all_suspect = self.paths.iter().all(|path| path.view.is_suspect);
            if !are_all_suspect {
                self.schedule(self.now + Duration::from_millis(5), Event::Wake);
            }
        }
    }

    fn send_chunk(&mut self, path: usize, chunk: u64) {
        self.outcome.sent[path] += 1;
        let bytes = DATAGRAM_BYTES.min(self.transfer.bytes - chunk * DATAGRAM_BYTES);
        let (number, arrives_at) = self.paths[path].on_send(self.now, chunk, bytes);
        if let Some(at) = arrives_at {
            self.schedule(at, Event::Arrival { path, number });
        }
        // The probe timeout after which a path without acknowledgements becomes suspect.
        let wake_at = self.now + self.paths[path].probe_timeout() + Duration::from_nanos(1);
        self.schedule(wake_at, Event::Wake);
    }
}

impl Path {
    fn new(id: usize, link: Link) -> Self {
        let base = link.base_rtt();
        let view = PathView {
            id: id as u32,
            is_backup: false,
            is_suspect: false,
            srtt: base,
            rttvar: Duration::ZERO,
            min_rtt: base,
            window_bytes: link.window_bytes,
            in_flight_bytes: 0,
            rate: link.rate.mul_ratio(link.told_percent, 100),
            release_at: Instant::ZERO,
            accepts_datagrams: true,
            datagram_bytes: DATAGRAM_BYTES,
        };
        Self {
            link,
            view,
            free_at: Instant::ZERO,
            outstanding: BTreeSet::new(),
            log: Vec::new(),
            heard_at: Instant::ZERO,
            batch_left: 0,
        }
    }

    fn probe_timeout(&self) -> Duration {
        // The queue of a full window is not measured yet when the first datagram is sent.
        let queue = self.link.rate.time_for(self.link.window_bytes);
        self.view.srtt + queue + (self.view.rttvar * 4).max(Duration::from_millis(1))
    }

    fn on_send(&mut self, now: Instant, chunk: u64, bytes: u64) -> (u64, Option<Instant>) {
        if self.outstanding.is_empty() {
            self.heard_at = now;
        }
        let number = self.log.len() as u64;
        self.log.push(Sent { number, chunk, at: now, bytes, is_copied: false });
        self.outstanding.insert(number);
        self.view.in_flight_bytes += bytes;
        self.apply_pacing(now);
        self.free_at = self.free_at.max(now) + self.link.rate.time_for(bytes);
        let arrives_at = self.free_at + self.link.one_way;
        let is_alive = self.link.dies_at.is_none_or(|dies_at| arrives_at < dies_at);
        (number, is_alive.then_some(arrives_at))
    }

    fn apply_pacing(&mut self, now: Instant) {
        if !self.link.is_paced {
            return;
        }
        let apply_pacing = self.link.rate.mul_ratio(5, 4);
        if self.batch_left == 0 {
            self.batch_left = apply_pacing.bytes_in(Duration::from_millis(1)).max(10 * DATAGRAM_BYTES) / DATAGRAM_BYTES;
        }
        self.batch_left -= 1;
        if self.batch_left == 0 {
            let batch = apply_pacing.bytes_in(Duration::from_millis(1)).max(10 * DATAGRAM_BYTES);
            self.view.release_at = now + apply_pacing.time_for(batch);
        }
    }

    fn on_ack(&mut self, now: Instant, number: u64) {
        let sent = self.log[number as usize];
        if self.outstanding.remove(&number) {
            self.view.in_flight_bytes -= sent.bytes;
        }
        self.heard_at = now;
        self.view.is_suspect = false;
        // RFC 9002, section 5.3.
        let sample = now - sent.at;
        self.view.min_rtt = self.view.min_rtt.min(sample);
        let deviation = self.view.srtt.abs_diff(sample);
        self.view.rttvar = (self.view.rttvar * 3 + deviation) / 4;
        self.view.srtt = (self.view.srtt * 7 + sample) / 8;
    }

    fn update_suspect(&mut self, now: Instant) {
        let is_silent = now > self.heard_at + self.probe_timeout();
        self.view.is_suspect |= is_silent && !self.outstanding.is_empty();
    }
}
