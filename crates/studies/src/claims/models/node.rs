//! A node of document 004, as simple as its claims about schedulers allow: protocol processors with a window each, perhaps one central
//! scheduler for all, and channels that take a random time for each packet. A packet leaves its window when it is acknowledged, and
//! the next one comes: a closed network of queues.

use std::cell::RefCell;
use std::rc::Rc;

use measure::Estimate;
use sim::{Facility, Sim, Simulation, Stream, Tally};
use units::Duration;

use crate::study::{Effort, Options};

/// From the end of a packet to its acknowledgement, in microseconds: the way back of a small frame over a ring of 20 km.
const ACKNOWLEDGEMENT_US: f64 = 114.0;

/// Cut off at the beginning of each run, in milliseconds: many times the longest way of a packet.
const WARM_UP_MS: u64 = 200;

/// What the node has and does. Times are those of a packet, in microseconds.
#[derive(Clone, Debug)]
pub(in crate::claims) struct Node {
    /// Protocol processors for bulk.
    pub(in crate::claims) processors: usize,
    /// Packets that each may have under way.
    pub(in crate::claims) window: usize,
    /// On a processor: always the same.
    pub(in crate::claims) processing_us: f64,
    /// In the scheduler that all packets pass one by one; none if each processor has its own.
    pub(in crate::claims) central_us: Option<f64>,
    /// On each channel: exponential with these means.
    pub(in crate::claims) channels_us: Vec<f64>,
    /// Who chooses the channel.
    pub(in crate::claims) policy: Policy,
    /// Small messages beside the bulk; none if there are none.
    pub(in crate::claims) messages: Option<Messages>,
}

/// How a channel is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::claims) enum Policy {
    /// One after the other.
    RoundRobin,
    /// The least work waiting, as it was at the last look; a look each `age_us` microseconds, zero for always.
    Shortest { age_us: f64 },
}

/// Small messages: an independent source.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Messages {
    /// Between them on average, exponential, in microseconds.
    pub(in crate::claims) interval_us: f64,
    /// On a processor, in microseconds: each costs what a header costs.
    pub(in crate::claims) processing_us: f64,
    /// On a channel of their own or of all, exponential, in microseconds.
    pub(in crate::claims) transmission_us: f64,
    /// A processor and a channel of their own, beside those for bulk.
    pub(in crate::claims) apart: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Flow {
    /// Bulk packets acknowledged in a second.
    pub(in crate::claims) packets_per_s: Estimate,
    /// From the window to the acknowledgement.
    pub(in crate::claims) delay_us: Estimate,
    /// Of a small message until it has left; zero if there are none.
    pub(in crate::claims) message_us: Estimate,
}

#[derive(Clone)]
struct Parts {
    sim: Sim,
    processors: Rc<[Facility]>,
    central: Option<Facility>,
    channels: Rc<[Facility]>,
    chooser: Rc<RefCell<Chooser>>,
}

struct Chooser {
    policy: Policy,
    next: usize,
    /// What waited at each channel when somebody looked last, in microseconds.
    seen: Vec<f64>,
}

/// What was counted since the warm-up.
#[derive(Default)]
struct Counts {
    bulk: Tally,
    messages: Tally,
}

impl Node {
    /// Runs it as often as `options` say.
    pub(in crate::claims) fn run(&self, options: &Options) -> Flow {
        let span = match options.effort {
            Effort::Quick => Duration::from_secs(1),
            Effort::Full => Duration::from_secs(10),
        };
        let runs: Vec<_> = (0..u64::from(options.replications)).map(|run| self.once(options.seed, run, span)).collect();
        let over = |figure: fn(&[f64; 3]) -> f64| {
            Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>(), options.confidence)
        };
        Flow { packets_per_s: over(|run| run[0]), delay_us: over(|run| run[1]), message_us: over(|run| run[2]) }
    }

    fn once(&self, seed: u64, run: u64, span: Duration) -> [f64; 3] {
        let mut simulation = Simulation::new(seed, run);
        let sim = simulation.sim();
        let servers = |name: &str, count: usize| -> Rc<[Facility]> {
            (0..count).map(|index| Facility::new(&sim, &format!("{name} {index}"), 1)).collect()
        };
        let parts = Parts {
            sim: sim.clone(),
            processors: servers("processor", self.processors),
            central: self.central_us.map(|_| Facility::new(&sim, "central", 1)),
            channels: servers("channel", self.channels_us.len()),
            chooser: Rc::new(RefCell::new(Chooser {
                policy: self.policy,
                next: 0,
                seen: vec![0.0; self.channels_us.len()],
            })),
        };
        let counts = Rc::new(RefCell::new(Counts::default()));
        if let Policy::Shortest { age_us } = self.policy
            && age_us > 0.0
        {
            simulation.spawn(look(parts.clone(), age_us));
        }
        for processor in 0..self.processors {
            for place in 0..self.window {
                let stream = sim.stream(&format!("bulk {processor} {place}"));
                simulation.spawn(bulk(self.clone(), parts.clone(), processor, stream, Rc::clone(&counts)));
            }
        }
        if let Some(messages) = self.messages {
            simulation.spawn(small(messages, parts, Rc::clone(&counts)));
        }
        simulation.run_until(sim.now() + Duration::from_millis(WARM_UP_MS));
        *counts.borrow_mut() = Counts::default();
        simulation.run_until(sim.now() + span);
        let counts = counts.borrow();
        [counts.bulk.count() as f64 / span.as_secs_f64(), counts.bulk.mean(), counts.messages.mean()]
    }
}

/// One place in the window of a processor: one packet after the other.
async fn bulk(node: Node, parts: Parts, processor: usize, mut stream: Stream, counts: Rc<RefCell<Counts>>) {
    loop {
        let begun = parts.sim.now();
        parts.processors[processor].serve(micros(node.processing_us)).await;
        if let (Some(central), Some(us)) = (&parts.central, node.central_us) {
            central.serve(micros(us)).await;
        }
        let channel = parts.chooser.borrow_mut().choose(&parts.channels);
        parts.channels[channel].serve(stream.exponential(micros(node.channels_us[channel]))).await;
        parts.sim.sleep(micros(ACKNOWLEDGEMENT_US)).await;
        let took = parts.sim.now().saturating_since(begun);
        counts.borrow_mut().bulk.add(took.as_secs_f64() * 1e6);
    }
}

/// Small messages, each on its own way.
async fn small(messages: Messages, parts: Parts, counts: Rc<RefCell<Counts>>) {
    let own = messages.apart.then(|| {
        (Facility::new(&parts.sim, "processor for messages", 1), Facility::new(&parts.sim, "channel for messages", 1))
    });
    let mut arrivals = parts.sim.stream("messages");
    let mut next = 0;
    loop {
        parts.sim.sleep(arrivals.exponential(micros(messages.interval_us))).await;
        let on_channel = arrivals.exponential(micros(messages.transmission_us));
        next = (next + 1) % parts.processors.len();
        let (processor, channel) = match &own {
            Some((processor, channel)) => (processor.clone(), Some(channel.clone())),
            None => (parts.processors[next].clone(), None),
        };
        let (parts, counts) = (parts.clone(), Rc::clone(&counts));
        let begun = parts.sim.now();
        parts.sim.clone().spawn(async move {
            processor.serve(micros(messages.processing_us)).await;
            let channel = channel.unwrap_or_else(|| {
                let chosen = parts.chooser.borrow_mut().choose(&parts.channels);
                parts.channels[chosen].clone()
            });
            channel.serve(on_channel).await;
            let took = parts.sim.now().saturating_since(begun);
            counts.borrow_mut().messages.add(took.as_secs_f64() * 1e6);
        });
    }
}

/// Looks at the channels from time to time.
async fn look(parts: Parts, age_us: f64) {
    loop {
        let seen = parts.channels.iter().map(|channel| channel.backlog().as_secs_f64() * 1e6).collect();
        parts.chooser.borrow_mut().seen = seen;
        parts.sim.sleep(micros(age_us)).await;
    }
}

impl Chooser {
    fn choose(&mut self, channels: &[Facility]) -> usize {
        let after = self.next;
        self.next = (self.next + 1) % channels.len();
        let Policy::Shortest { age_us } = self.policy else { return after };
        if age_us == 0.0 {
            self.seen = channels.iter().map(|channel| channel.backlog().as_secs_f64() * 1e6).collect();
        }
        // Equal ones in turn, so that an idle node is a fair one.
        (0..channels.len())
            .map(|step| (after + step) % channels.len())
            .min_by(|a, b| self.seen[*a].total_cmp(&self.seen[*b]))
            .unwrap_or(after)
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options { seed: 1, replications: 3, confidence: 0.9, effort: Effort::Quick, threads: 1 };

    fn node() -> Node {
        Node {
            processors: 4,
            window: 6,
            processing_us: 480.0,
            central_us: None,
            channels_us: vec![514.0; 6],
            policy: Policy::Shortest { age_us: 0.0 },
            messages: None,
        }
    }

    #[test]
    fn the_window_is_throughput_times_delay() {
        let flow = node().run(&OPTIONS);
        let in_flight = flow.packets_per_s.mean * flow.delay_us.mean * 1e-6;
        // Packets that are under way at the ends of the run are in one factor and not in the other.
        assert!((in_flight / 24.0 - 1.0).abs() < 0.01, "{in_flight}");
    }

    #[test]
    fn nothing_is_faster_than_the_slowest_stage() {
        let central = Node { central_us: Some(1000.0), ..node() }.run(&OPTIONS).packets_per_s.mean;
        assert!((990.0..=1001.0).contains(&central), "{central}");
        let one = Node { processors: 1, ..node() }.run(&OPTIONS).packets_per_s.mean;
        assert!((one / (1e6 / 480.0) - 1.0).abs() < 0.01, "{one}");
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let figures = |node: Node| {
            let flow = node.run(&OPTIONS);
            (flow.packets_per_s, flow.delay_us)
        };
        assert_eq!(figures(node()), figures(node()));
    }
}
