//! A bottleneck in simulated time, with senders built only from this crate's parts.
//!
//! ```text
//!   flow 0 ─┐
//!   flow 1 ─┼─► [ drop-tail queue │ rate ] ──► delay ──► receiver ──► delay ──► flow
//!   ...    ─┘
//! ```
//!
//! The queue is first in, first out, and no packet is lost after it. The acknowledgement time of a
//! packet is therefore known when it is sent, with one event per packet. Runs are deterministic:
//! random choices come from seeds.

mod link;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use recovery::{
    AckEvent, Algorithm, CongestionController, DeliveryRate, LossDetector, LossEvent, Pacer, PersistentCongestion,
    PtoBackoff, RateCap, RttEstimator, SendStamp, SpuriousLossEvent, Verdict,
};
use units::{Duration, Instant, Rate, Rng};

pub(crate) use link::Link;

pub(crate) const SEGMENT: u64 = 1200;

/// The receiver acknowledges at once.
const MAX_ACK_DELAY: Duration = Duration::ZERO;

#[derive(Clone, Copy, PartialEq)]
enum PacketState {
    Outstanding,
    Acked,
    Lost,
}

struct Sent {
    sent_at: Instant,
    stamp: SendStamp,
    state: PacketState,
}

/// An application that produces data at a rate. Data produced while the sender was slower is not
/// sent later.
struct Application {
    rate: Rate,
    /// The time of the next segment.
    next_at: Instant,
}

/// A sender with unlimited data, unless an application limits it.
pub(crate) struct Flow {
    pub(crate) controller: Box<dyn CongestionController>,
    pub(crate) rtt: RttEstimator,
    pub(crate) delivered_bytes: u64,
    pub(crate) lost_packets: u64,
    pub(crate) probes: u64,
    pub(crate) persistent_events: u64,
    /// Packets lost by the link when conservative slow start was first seen.
    pub(crate) lost_before_conservative: Option<u64>,
    /// The window when slow start, conservative or not, was first seen to be over.
    pub(crate) window_after_slow_start: Option<u64>,
    application: Option<Application>,
    app_limited: bool,
    delivery: DeliveryRate,
    pacer: Pacer,
    backoff: PtoBackoff,
    /// Log of packets from number `log_base` on.
    log: VecDeque<Sent>,
    log_base: u64,
    /// Number below which no packet is outstanding.
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
    fn new(algorithm: Algorithm, cap: Option<RateCap>, seed: u64) -> Self {
        let mut pacer = Pacer::new(cap);
        pacer.set_segment_size(SEGMENT);
        Self {
            controller: algorithm.build_seeded(SEGMENT, &Rng::from_seed(seed)),
            rtt: RttEstimator::default(),
            delivered_bytes: 0,
            lost_packets: 0,
            probes: 0,
            persistent_events: 0,
            lost_before_conservative: None,
            window_after_slow_start: None,
            application: None,
            app_limited: false,
            delivery: DeliveryRate::new(),
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
        let (sent_at, stamp, state) = (sent.sent_at, sent.stamp, sent.state);
        sent.state = PacketState::Acked;
        self.delivered_bytes += SEGMENT;
        if state == PacketState::Lost {
            self.controller.on_spurious_loss(&SpuriousLossEvent { now, newest_sent_at: sent_at, bytes: SEGMENT });
            return;
        }
        if self.largest_acked.is_none_or(|largest| number > largest) {
            self.largest_acked = Some(number);
            self.rtt.update(now - sent_at, Duration::ZERO);
            self.first_sample_at.get_or_insert(now);
        }
        self.delivery.on_acked(now, &stamp, sent_at, number, SEGMENT);
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
            app_limited: self.app_limited,
            round_ended,
            latest_rtt: self.rtt.latest(),
            rate: self.delivery.take_sample(&self.rtt),
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
        let mut lost = Vec::new();
        let mut newest = Instant::ZERO;
        let (base, mut all_decided) = (self.log_base, true);
        for number in self.undecided_from.max(base)..largest.max(base) {
            let sent = &mut self.log[(number - base) as usize];
            match sent.state {
                PacketState::Acked => search.on_acked(),
                PacketState::Lost => {}
                PacketState::Outstanding => match detector.verdict(number, sent.sent_at) {
                    Verdict::Lost => {
                        sent.state = PacketState::Lost;
                        search.on_lost(sent.sent_at);
                        newest = sent.sent_at;
                        lost.push((number, sent.stamp));
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
        // Lost packets are kept for a while, in case their acknowledgement arrives late.
        let keep_from = now.saturating_sub(self.rtt.pto_base());
        while self.log.front().is_some_and(|sent| match sent.state {
            PacketState::Outstanding => false,
            PacketState::Acked => true,
            PacketState::Lost => sent.sent_at < keep_from,
        }) {
            self.log.pop_front();
            self.log_base += 1;
        }
        if !lost.is_empty() {
            let persistent = search.is_established(&self.rtt, MAX_ACK_DELAY);
            self.report_losses(now, newest, persistent, &lost);
        }
    }

    fn report_losses(&mut self, now: Instant, newest: Instant, persistent: bool, lost: &[(u64, SendStamp)]) {
        let bytes = lost.len() as u64 * SEGMENT;
        self.in_flight -= bytes;
        self.lost_packets += lost.len() as u64;
        if persistent {
            self.persistent_events += 1;
            self.rtt.forget_min();
        }
        self.controller.on_loss(&LossEvent {
            now,
            newest_lost_sent_at: newest,
            bytes,
            in_flight: self.in_flight,
            persistent,
            ecn: false,
        });
        for (number, stamp) in lost {
            let loss = self.delivery.on_lost(stamp, *number..number + 1, SEGMENT);
            self.controller.on_run_lost(now, &loss);
        }
    }

    /// Returns the time at which the application has a segment to send; `now` if it has one.
    fn data_at(&self, now: Instant) -> Instant {
        self.application.as_ref().map_or(now, |application| application.next_at.max(now))
    }

    fn probe_at(&self) -> Instant {
        if self.in_flight == 0 {
            return Instant::FAR_FUTURE;
        }
        self.last_sent_at + self.backoff.interval(&self.rtt, MAX_ACK_DELAY)
    }

    fn send(&mut self, now: Instant, link: &mut Link) -> Option<(Instant, u64)> {
        let number = self.next_number();
        self.in_flight += SEGMENT;
        let stamp = self.delivery.on_sent(now, SEGMENT, self.in_flight);
        self.log.push_back(Sent { sent_at: now, stamp, state: PacketState::Outstanding });
        if let Some(application) = &mut self.application {
            application.next_at = application.next_at.max(now) + application.rate.time_for(SEGMENT);
        }
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
pub(crate) struct Simulation {
    pub(crate) link: Link,
    pub(crate) flows: Vec<Flow>,
    now: Instant,
    /// Events; those at the same time are ordered by this insertion number.
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    event_count: u64,
}

impl Simulation {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, flows: Vec::new(), now: Instant::ZERO, events: BinaryHeap::new(), event_count: 0 }
    }

    /// Adds a flow that starts at `start`.
    pub(crate) fn with_flow(mut self, algorithm: Algorithm, start: Instant, cap: Option<RateCap>) -> Self {
        let flow = self.flows.len();
        self.flows.push(Flow::new(algorithm, cap, flow as u64));
        self.flows[flow].wake_at = start;
        self.push(start, Event::Wake { flow });
        self
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.event_count, event)));
        self.event_count += 1;
    }

    /// Limits the data of the application of `flow` from now on to `rate`; `None` removes the
    /// limit.
    pub(crate) fn limit_application(&mut self, flow: usize, rate: Option<Rate>) {
        self.flows[flow].application =
            rate.map(|rate| Application { rate, next_at: self.now + rate.time_for(SEGMENT) });
        self.push(self.now, Event::Wake { flow });
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

    /// Sends what window and pacer permit, then schedules the next wake-up.
    fn pump(&mut self, index: usize) {
        let now = self.now;
        let (mut release_at, mut data_at) = (Instant::FAR_FUTURE, Instant::FAR_FUTURE);
        self.flows[index].app_limited = false;
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
            if flow.data_at(now) > now {
                data_at = flow.data_at(now);
                flow.app_limited = true;
                flow.delivery.on_app_limited(flow.in_flight);
                break;
            }
            self.send(index);
        }
        let flow = &mut self.flows[index];
        let wake_at = release_at.min(data_at).min(flow.loss_at).min(flow.probe_at());
        if wake_at < flow.wake_at {
            flow.wake_at = wake_at;
            self.push(wake_at, Event::Wake { flow: index });
        }
    }

    /// Runs to `end` and returns the share of the link's rate, in thousandths, that each flow got
    /// in that time.
    pub(crate) fn shares_until(&mut self, end: Instant) -> Vec<u64> {
        let from = self.now;
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered_bytes).collect();
        self.run_until(end);
        let whole = self.link.rate().bytes_in(end - from);
        self.flows.iter().zip(before).map(|(flow, before)| (flow.delivered_bytes - before) * 1000 / whole).collect()
    }
}
