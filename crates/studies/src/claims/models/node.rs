//! Protocol processors, each with a window, in front of channels that take a random time per
//! packet. A packet leaves its window when it is acknowledged, and the next one starts: a closed
//! queueing network with the parts of the Old Dominion University node that the claim about later
//! improvements needs.

use std::cell::RefCell;
use std::rc::Rc;

use measure::Estimate;
use sim::{Facility, Sim, Simulation, Stream, Tally};
use units::Duration;

use crate::replicate::replicate;
use crate::study::{Effort, Options};

/// Microseconds from the end of a packet to its acknowledgement: the rotation time of a ring of 20
/// km with 20 stations.
const ACKNOWLEDGEMENT_US: f64 = 114.0;

/// Warm-up in milliseconds: many times the longest delay of a packet.
const WARM_UP_MS: u64 = 200;

/// The configuration of the node.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Node {
    /// Protocol processors.
    pub(in crate::claims) processors: usize,
    /// Window of each processor in packets.
    pub(in crate::claims) window: usize,
    /// Constant processing time of a packet, in microseconds.
    pub(in crate::claims) processing_us: f64,
    /// Number of channels. A packet uses the one with the least work waiting.
    pub(in crate::claims) channels: usize,
    /// Mean transmission time of a packet in microseconds, exponentially distributed.
    pub(in crate::claims) channel_us: f64,
}

impl Node {
    /// Returns the number of packets acknowledged per second, over all runs.
    pub(in crate::claims) fn packets_per_s(&self, options: &Options) -> Estimate {
        let span = match options.effort {
            Effort::Quick => Duration::from_secs(1),
            Effort::Full => Duration::from_secs(5),
        };
        let rate = |seed, run| self.once(seed, run, span).count() as f64 / span.as_secs_f64();
        let rates = replicate(options, rate, |&rate| vec![rate]);
        Estimate::of(&rates, options.confidence)
    }

    /// Returns the delays of all packets of a run, in microseconds.
    fn once(&self, seed: u64, run: u64, span: Duration) -> Tally {
        let mut simulation = Simulation::new(seed, run);
        let sim = simulation.sim();
        let channels: Rc<[Facility]> =
            (0..self.channels).map(|index| Facility::new(&sim, &format!("channel {index}"), 1)).collect();
        let delays = Rc::new(RefCell::new(Tally::default()));
        for index in 0..self.processors {
            let processor = Facility::new(&sim, &format!("processor {index}"), 1);
            for place in 0..self.window {
                let stream = sim.stream(&format!("packets {index} {place}"));
                let packets = Packets {
                    node: *self,
                    sim: sim.clone(),
                    processor: processor.clone(),
                    channels: Rc::clone(&channels),
                    delays: Rc::clone(&delays),
                };
                simulation.spawn(packets.flow(stream));
            }
        }
        simulation.run_until(sim.now() + Duration::from_millis(WARM_UP_MS));
        *delays.borrow_mut() = Tally::default();
        simulation.run_until(sim.now() + span);
        crate::conserved::check_accounting(&simulation);
        delays.take()
    }
}

/// One position in the window of a processor.
struct Packets {
    node: Node,
    sim: Sim,
    processor: Facility,
    channels: Rc<[Facility]>,
    delays: Rc<RefCell<Tally>>,
}

impl Packets {
    /// Sends packets one after the other.
    async fn flow(self, mut stream: Stream) {
        loop {
            let begun = self.sim.now();
            self.processor.serve(micros(self.node.processing_us)).await;
            let channel = self.channels.iter().min_by_key(|channel| channel.backlog()).expect("a node has channels");
            channel.serve(stream.exponential(micros(self.node.channel_us))).await;
            self.sim.sleep(micros(ACKNOWLEDGEMENT_US)).await;
            let took = self.sim.now().saturating_since(begun);
            self.delays.borrow_mut().add(took.as_secs_f64() * 1e6);
        }
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Node = Node { processors: 4, window: 6, processing_us: 480.0, channels: 6, channel_us: 514.0 };

    #[test]
    fn the_window_equals_throughput_times_delay() {
        let span = Duration::from_secs(2);
        let delays = NODE.once(1, 0, span);
        let in_flight = delays.count() as f64 / span.as_secs_f64() * delays.mean() * 1e-6;
        // Packets in flight at the ends of the run are counted in only one of the two factors.
        assert!((in_flight / 24.0 - 1.0).abs() < 0.01, "{in_flight}");
    }

    #[test]
    fn throughput_is_limited_by_the_slowest_stage() {
        let options =
            Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let rate = |node: Node| node.packets_per_s(&options).mean;
        let one = rate(Node { processors: 1, ..NODE });
        assert!((one / (1e6 / 480.0) - 1.0).abs() < 0.01, "{one}");
        let narrow = rate(Node { channels: 2, ..NODE });
        assert!((narrow / (2e6 / 514.0) - 1.0).abs() < 0.05, "{narrow}");
    }
}
