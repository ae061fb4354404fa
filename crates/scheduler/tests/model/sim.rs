//! A sender, some paths and a receiver in virtual time: enough of a transport to close the loop around a scheduler.
//!
//! A path is a rate, a one-way delay each way and a first-in first-out queue as large as the fixed window needs, so
//! nothing is lost by overflow. Acknowledgements come one for each datagram and take no capacity. There is no loss
//! recovery at all: what a dying path swallows arrives only if the scheduler has it sent again.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use scheduler::{Choice, Demand, PathView, Scheduler, Straggler};
use units::{Duration, Instant, Rate};

pub(crate) const DATAGRAM_BYTES: u64 = 1200;

/// When every run begins: not at zero, so that a time since the start and a moment are never the same number.
pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000);

/// Longer than any transfer here may take: a run that never ends fails instead.
const RUN_MAX: Duration = Duration::from_secs(1_000);

/// One path as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) rate: Rate,
    pub(crate) one_way: Duration,
    pub(crate) window_bytes: u64,
    /// Paced at 5/4 of the rate, in batches of 1 ms or ten datagrams; otherwise the window alone holds back.
    pub(crate) is_paced: bool,
    pub(crate) dies_at: Option<Instant>,
    /// The capacity the scheduler is told, in percent of the true one.
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

/// What is to be moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) bytes: u64,
    /// An ordered stream whose receiver grants this much beyond what it has read in order; `None`: no limit.
    pub(crate) credit_bytes: Option<u64>,
}

/// How it went.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// When the last byte arrived; `None`: never, nothing was left to happen.
    pub(crate) completed_at: Option<Instant>,
    /// Datagrams sent, by path.
    pub(crate) sent: Vec<u64>,
    /// Datagrams sent again on another path.
    pub(crate) copies: u64,
    /// Of those, the ones whose original came too.
    pub(crate) duplicates: u64,
    /// When each further tenth had arrived.
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
    /// Sent again on another path since.
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
    /// First chunk the receiver lacks.
    read_chunk: u64,
    /// What the sender knows of it.
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

    /// Runs until everything has arrived or nothing is left to happen. Times in the outcome count from the first send.
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
            path.judge(self.now);
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
                    assert!(until > self.now, "a wait until {until:?} at {:?} would spin", self.now);
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
            if !self.paths[path].view.has_room_for_datagram(self.now) {
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

    /// Nothing else to send: asks about the oldest data outstanding on each path, for each path that has room.
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
        // A pacer or a late answer may change the verdict without any acknowledgement.
        if self.paths.iter().any(|path| !path.outstanding.is_empty()) && self.events.is_empty() {
            let is_hopeless = self.paths.iter().all(|path| path.view.is_suspect);
            if !is_hopeless {
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
        // The probe timeout after which silence makes the path suspect.
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
            has_room: true,
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
        // The queue that a full window makes has not been measured when the first of it is sent.
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
        self.pace(now);
        self.free_at = self.free_at.max(now) + self.link.rate.time_for(bytes);
        let arrives_at = self.free_at + self.link.one_way;
        let is_alive = self.link.dies_at.is_none_or(|dies_at| arrives_at < dies_at);
        (number, is_alive.then_some(arrives_at))
    }

    fn pace(&mut self, now: Instant) {
        if !self.link.is_paced {
            return;
        }
        let pace = self.link.rate.mul_ratio(5, 4);
        if self.batch_left == 0 {
            self.batch_left = pace.bytes_in(Duration::from_millis(1)).max(10 * DATAGRAM_BYTES) / DATAGRAM_BYTES;
        }
        self.batch_left -= 1;
        if self.batch_left == 0 {
            let batch = pace.bytes_in(Duration::from_millis(1)).max(10 * DATAGRAM_BYTES);
            self.view.release_at = now + pace.time_for(batch);
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

    fn judge(&mut self, now: Instant) {
        let is_silent = now > self.heard_at + self.probe_timeout();
        self.view.is_suspect |= is_silent && !self.outstanding.is_empty();
    }
}
