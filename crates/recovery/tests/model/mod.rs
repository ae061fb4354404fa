//! A bottleneck in simulated time, with senders that are made of this crate's parts and nothing else.
//!
//! ```text
//!   flow 0 ─┐
//!   flow 1 ─┼─► [ drop-tail queue │ rate ] ──► delay ──► receiver acknowledges each packet ──► delay ──► flow
//!   ...    ─┘
//! ```
//!
//! The queue is first in, first out, and nothing is lost behind it, so a packet's acknowledgement time is known in closed
//! form when it is sent: one event per packet. Runs are deterministic; nothing is random.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use recovery::{
    AckEvent, Algorithm, CongestionController, LossDetector, LossEvent, Pacer, PersistentCongestion, PtoBackoff,
    RateCap, RttEstimator, SpuriousLossEvent, Verdict,
};
use units::{Duration, Instant, Rate};

pub(crate) const SEGMENT: u64 = 1200;

/// The receiver answers at once.
const MAX_ACK_DELAY: Duration = Duration::ZERO;

/// The bottleneck.
pub(crate) struct Link {
    rate: Rate,
    one_way: Duration,
    queue_bytes_max: u64,
    /// Everything sent in this span is lost, and acknowledgements are not.
    outage: Option<(Instant, Instant)>,
    /// At each of these moments the next packet is lost. In order.
    drop_next_at: VecDeque<Instant>,
    busy_until: Instant,
    pub(crate) overflowed: u64,
    pub(crate) dropped_on_purpose: u64,
    pub(crate) queue_bytes_peak: u64,
}

impl Link {
    /// A link with a queue of `queue_percent` of its rate times the round trip.
    pub(crate) fn new(rate: Rate, round_trip: Duration, queue_percent: u64) -> Self {
        Self {
            rate,
            one_way: round_trip / 2,
            queue_bytes_max: rate.bytes_in(round_trip) * queue_percent / 100,
            outage: None,
            drop_next_at: VecDeque::new(),
            busy_until: Instant::ZERO,
            overflowed: 0,
            dropped_on_purpose: 0,
            queue_bytes_peak: 0,
        }
    }

    pub(crate) fn with_outage(mut self, from: Instant, until: Instant) -> Self {
        self.outage = Some((from, until));
        self
    }

    pub(crate) fn losing_one_packet_at(mut self, moments: &[Instant]) -> Self {
        self.drop_next_at = moments.iter().copied().collect();
        self
    }

    fn backlog(&self, now: Instant) -> u64 {
        self.rate.bytes_in(self.busy_until.saturating_since(now))
    }

    /// When a packet offered now is acknowledged; `None` if it is lost.
    fn offer(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        if self.drop_next_at.front().is_some_and(|&at| at <= now) {
            self.drop_next_at.pop_front();
            self.dropped_on_purpose += 1;
            return None;
        }
        if self.outage.is_some_and(|(from, until)| (from..until).contains(&now)) {
            self.dropped_on_purpose += 1;
            return None;
        }
        let backlog = self.backlog(now);
        if backlog + bytes > self.queue_bytes_max {
            self.overflowed += 1;
            return None;
        }
        self.queue_bytes_peak = self.queue_bytes_peak.max(backlog + bytes);
        self.busy_until = self.busy_until.max(now) + self.rate.time_for(bytes);
        Some(self.busy_until + self.one_way * 2)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Outstanding,
    Acked,
    Lost,
}

struct Sent {
    sent_at: Instant,
    fate: Fate,
}

/// A sender with always more to send.
pub(crate) struct Flow {
    pub(crate) controller: Box<dyn CongestionController>,
    pub(crate) rtt: RttEstimator,
    pub(crate) delivered_bytes: u64,
    pub(crate) lost_packets: u64,
    pub(crate) probes: u64,
    pub(crate) persistent_events: u64,
    /// Packets that the link had lost when conservative slow start was first seen.
    pub(crate) lost_before_conservative: Option<u64>,
    /// The window when slow start, conservative or not, was first seen to be over.
    pub(crate) window_after_slow_start: Option<u64>,
    pacer: Pacer,
    backoff: PtoBackoff,
    /// Packets from number `log_base` on.
    log: VecDeque<Sent>,
    log_base: u64,
    /// No packet below this number is outstanding.
    undecided_from: u64,
    in_flight: u64,
    largest_acked: Option<u64>,
    first_sample_at: Option<Instant>,
    last_sent_at: Instant,
    round_end: u64,
    loss_at: Instant,
    wake_at: Instant,
}

impl Flow {
    fn new(algorithm: Algorithm, cap: Option<RateCap>) -> Self {
        let mut pacer = Pacer::new(cap);
        pacer.set_segment_size(SEGMENT);
        Self {
            controller: algorithm.build(SEGMENT),
            rtt: RttEstimator::default(),
            delivered_bytes: 0,
            lost_packets: 0,
            probes: 0,
            persistent_events: 0,
            lost_before_conservative: None,
            window_after_slow_start: None,
            pacer,
            backoff: PtoBackoff::new(),
            log: VecDeque::new(),
            log_base: 0,
            undecided_from: 0,
            in_flight: 0,
            largest_acked: None,
            first_sample_at: None,
            last_sent_at: Instant::ZERO,
            round_end: 0,
            loss_at: Instant::FAR_FUTURE,
            wake_at: Instant::FAR_FUTURE,
        }
    }

    fn next_number(&self) -> u64 {
        self.log_base + self.log.len() as u64
    }

    fn handle_ack(&mut self, now: Instant, number: u64) {
        let Some(sent) = number.checked_sub(self.log_base).and_then(|index| self.log.get_mut(index as usize)) else {
            return;
        };
        let (sent_at, fate) = (sent.sent_at, sent.fate);
        sent.fate = Fate::Acked;
        self.delivered_bytes += SEGMENT;
        if fate == Fate::Lost {
            self.controller.on_spurious_loss(&SpuriousLossEvent { now, newest_sent_at: sent_at, bytes: SEGMENT });
            return;
        }
        if self.largest_acked.is_none_or(|largest| number > largest) {
            self.largest_acked = Some(number);
            self.rtt.update(now - sent_at, Duration::ZERO);
            self.first_sample_at.get_or_insert(now);
        }
        let round_ended = number >= self.round_end;
        if round_ended {
            self.round_end = self.next_number();
        }
        self.in_flight -= SEGMENT;
        self.backoff.reset();
        self.detect_losses(now);
        let event = AckEvent {
            now,
            bytes: SEGMENT,
            newest_sent_at: sent_at,
            in_flight: self.in_flight,
            app_limited: false,
            round_ended,
            latest_rtt: self.rtt.latest(),
        };
        self.controller.on_ack(&event, &self.rtt);
    }

    fn note_phase(&mut self, link: &Link) {
        if self.window_after_slow_start.is_some() {
            return;
        }
        if self.controller.snapshot().phase == "conservative_slow_start" {
            self.lost_before_conservative.get_or_insert(link.overflowed);
        }
        if !self.controller.in_slow_start() {
            self.window_after_slow_start = Some(self.controller.window());
        }
    }

    fn detect_losses(&mut self, now: Instant) {
        self.loss_at = Instant::FAR_FUTURE;
        let Some(largest) = self.largest_acked else { return };
        let detector = LossDetector::new(largest, now, &self.rtt);
        let mut search = PersistentCongestion::new(self.first_sample_at);
        let (mut bytes, mut newest) = (0, Instant::ZERO);
        let (base, mut all_decided) = (self.log_base, true);
        for number in self.undecided_from.max(base)..largest.max(base) {
            let sent = &mut self.log[(number - base) as usize];
            match sent.fate {
                Fate::Acked => search.on_acked(),
                Fate::Lost => {}
                Fate::Outstanding => match detector.verdict(number, sent.sent_at) {
                    Verdict::Lost => {
                        sent.fate = Fate::Lost;
                        search.on_lost(sent.sent_at);
                        (bytes, newest) = (bytes + SEGMENT, sent.sent_at);
                    }
                    Verdict::LostAt(at) => {
                        self.loss_at = self.loss_at.min(at);
                        all_decided = false;
                    }
                },
            }
            if all_decided {
                self.undecided_from = number + 1;
            }
        }
        // Lost packets are remembered for a while, in case their acknowledgement comes after all.
        let keep_from = now.saturating_sub(self.rtt.pto_base());
        while self.log.front().is_some_and(|sent| match sent.fate {
            Fate::Outstanding => false,
            Fate::Acked => true,
            Fate::Lost => sent.sent_at < keep_from,
        }) {
            self.log.pop_front();
            self.log_base += 1;
        }
        if bytes > 0 {
            self.in_flight -= bytes;
            self.lost_packets += bytes / SEGMENT;
            let persistent = search.is_established(&self.rtt, MAX_ACK_DELAY);
            if persistent {
                self.persistent_events += 1;
                self.rtt.forget_min();
            }
            let in_flight = self.in_flight;
            self.controller.on_loss(&LossEvent {
                now,
                newest_lost_sent_at: newest,
                bytes,
                in_flight,
                persistent,
                ecn: false,
            });
        }
    }

    fn probe_at(&self) -> Instant {
        if self.in_flight == 0 {
            return Instant::FAR_FUTURE;
        }
        self.last_sent_at + self.backoff.interval(&self.rtt, MAX_ACK_DELAY)
    }

    fn send(&mut self, now: Instant, link: &mut Link) -> Option<(Instant, u64)> {
        let number = self.next_number();
        self.log.push_back(Sent { sent_at: now, fate: Fate::Outstanding });
        self.in_flight += SEGMENT;
        self.last_sent_at = now;
        self.pacer.on_sent(now, SEGMENT);
        self.controller.on_sent(now, SEGMENT, self.in_flight);
        link.offer(now, SEGMENT).map(|acked_at| (acked_at, number))
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ack { flow: usize, number: u64 },
    Wake { flow: usize },
}

/// The flows, the link and the clock.
pub(crate) struct World {
    pub(crate) link: Link,
    pub(crate) flows: Vec<Flow>,
    now: Instant,
    /// Ties break by insertion number.
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    event_count: u64,
}

impl World {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, flows: Vec::new(), now: Instant::ZERO, events: BinaryHeap::new(), event_count: 0 }
    }

    /// Adds a flow that starts at `start`.
    pub(crate) fn with_flow(mut self, algorithm: Algorithm, start: Instant, cap: Option<RateCap>) -> Self {
        self.flows.push(Flow::new(algorithm, cap));
        let flow = self.flows.len() - 1;
        self.flows[flow].wake_at = start;
        self.push(start, Event::Wake { flow });
        self
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.event_count, event)));
        self.event_count += 1;
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn run_until(&mut self, end: Instant) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            let Some(Reverse((now, _, event))) = self.events.pop() else { break };
            self.now = now;
            let index = match event {
                Event::Ack { flow, number } => {
                    self.flows[flow].handle_ack(now, number);
                    self.flows[flow].note_phase(&self.link);
                    flow
                }
                Event::Wake { flow } => {
                    let sender = &mut self.flows[flow];
                    sender.wake_at = Instant::FAR_FUTURE;
                    if sender.loss_at <= now {
                        sender.detect_losses(now);
                    }
                    if sender.probe_at() <= now {
                        sender.backoff.on_expired();
                        sender.probes += 1;
                        self.send(flow);
                    }
                    flow
                }
            };
            self.pump(index);
        }
        self.now = end;
    }

    fn send(&mut self, flow: usize) {
        if let Some((acked_at, number)) = self.flows[flow].send(self.now, &mut self.link) {
            self.push(acked_at, Event::Ack { flow, number });
        }
    }

    /// Sends what window and pacer allow, then arranges to be woken.
    fn pump(&mut self, index: usize) {
        let now = self.now;
        let mut release_at = Instant::FAR_FUTURE;
        loop {
            let flow = &mut self.flows[index];
            if flow.in_flight + SEGMENT > flow.controller.window() {
                break;
            }
            let rate = flow.controller.pacing_rate(&flow.rtt);
            if flow.pacer.budget(now, rate) < SEGMENT {
                release_at = flow.pacer.next_release(now, rate, SEGMENT);
                break;
            }
            self.send(index);
        }
        let flow = &mut self.flows[index];
        let wake_at = release_at.min(flow.loss_at).min(flow.probe_at());
        if wake_at < flow.wake_at {
            flow.wake_at = wake_at;
            self.push(wake_at, Event::Wake { flow: index });
        }
    }

    /// Runs to `end` and returns the share of the link's rate, in thousandths, that each flow got from now to then.
    pub(crate) fn shares_until(&mut self, end: Instant) -> Vec<u64> {
        let from = self.now;
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered_bytes).collect();
        self.run_until(end);
        let whole = self.link.rate.bytes_in(end - from);
        self.flows.iter().zip(before).map(|(flow, before)| (flow.delivered_bytes - before) * 1000 / whole).collect()
    }
}
