//! Runs an experiment and counts.

use measure::Estimate;
use sim::Simulation;
use sim::hardware::{ConfigError, Process};
use units::{Duration, Instant};

use super::node::{Acknowledgements, Node};
use super::setup::{Setup, Traffic};
use crate::study::{Effort, Options};

/// Warm-up until windows and queues are in steady state: some hundred segments.
const WARM_UP: Duration = Duration::from_millis(200);

/// Results. The model is deterministic: the same setup always gives the same results.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Segments delivered to the applications of both directions.
    pub(super) segments_per_second: f64,
    /// Utilisation by processor, of the first adapter, which sends, and of the second, which
    /// receives.
    pub(super) utilisations: [Vec<f64>; 2],
    /// Utilisation of the sending and of the receiving workstation.
    pub(super) workstations: [f64; 2],
    /// Work of each process per delivered segment, in microseconds, on the sending and on the
    /// receiving adapter.
    pub(super) work_us: [Vec<(&'static str, f64)>; 2],
    /// Acknowledgements that the second adapter requested; per segment received.
    pub(super) acknowledgements: Acknowledgements,
    /// Packets that found no space.
    pub(super) dropped: u64,
}

impl Measured {
    /// Returns the rate without an interval, because all runs are equal.
    pub(super) const fn rate(&self) -> Estimate {
        exact(self.segments_per_second)
    }

    /// Returns the utilisation of the busiest processor.
    pub(super) fn busiest(&self) -> f64 {
        self.utilisations.iter().flatten().copied().fold(0.0, f64::max)
    }

    /// Returns the work of one process of an adapter per segment, in microseconds.
    pub(super) fn work_of(&self, adapter: usize, process: &str) -> f64 {
        self.work_us[adapter].iter().find(|(name, _)| *name == process).map_or(0.0, |(_, us)| *us)
    }
}

/// Returns a deterministic number.
pub(super) const fn exact(mean: f64) -> Estimate {
    Estimate { mean, plus_minus: None }
}

/// Returns the measured time of a run, in virtual time.
pub(super) const fn counted(options: &Options) -> Duration {
    match options.effort {
        Effort::Quick => Duration::from_millis(300),
        Effort::Full => Duration::from_secs(5),
    }
}

/// Runs two adapters back to back, and measures after the warm-up.
///
/// # Panics
/// Panics if the setup is invalid. Studies use valid ones.
pub(super) fn run(setup: &Setup, options: &Options) -> Measured {
    simulate(setup, options).unwrap_or_else(|error| panic!("invalid setup of a study: {error}"))
}

/// Does the same as [`run`].
///
/// # Errors
/// Returns an error that names the invalid key.
pub(super) fn simulate(setup: &Setup, options: &Options) -> Result<Measured, ConfigError> {
    simulate_after(WARM_UP, setup, options)
}

/// Returns the rates in segments per second after the warm-up, and after one twice as long.
pub(super) fn rates_after_warm_ups(setup: &Setup, options: &Options) -> [f64; 2] {
    [WARM_UP, WARM_UP * 2].map(|warm_up| match simulate_after(warm_up, setup, options) {
        Ok(measured) => measured.segments_per_second,
        Err(error) => panic!("invalid setup of a study: {error}"),
    })
}

fn simulate_after(warm_up: Duration, setup: &Setup, options: &Options) -> Result<Measured, ConfigError> {
    setup.validate()?;
    let span = counted(options);
    let mut simulation = Simulation::new(options.seed, 0);
    let sim = simulation.sim();
    let nodes = [Node::new(&sim, "first", setup), Node::new(&sim, "second", setup)];
    nodes[0].start(&nodes[1], true);
    nodes[1].start(&nodes[0], setup.traffic == Traffic::BothWays);
    simulation.run_until(Instant::ZERO + warm_up);
    simulation.reset_statistics();
    let before = nodes.each_ref().map(|node| (node.delivered.get(), node.delivered_at.get()));
    let acknowledged_before = nodes[1].acknowledgements.get();
    simulation.run_until(Instant::ZERO + warm_up + span);
    let delivered: u64 = nodes.iter().zip(before).map(|(node, (count, _))| node.delivered.get() - count).sum();
    // Every component checks its accounting when it reports.
    let reports = simulation.reports();
    debug_assert!(reports.iter().all(|report| report.utilisation <= 1.0 + 1e-9));
    let utilisations =
        nodes.each_ref().map(|node| node.processors.iter().map(|one| one.report().utilisation).collect());
    nodes[0].check_conservation(&nodes[1]);
    nodes[1].check_conservation(&nodes[0]);
    Ok(Measured {
        segments_per_second: nodes.iter().zip(before).map(|(node, before)| rate(node, before)).sum(),
        utilisations,
        workstations: nodes.each_ref().map(|node| node.workstation.report().utilisation),
        work_us: nodes.each_ref().map(|node| work(node, delivered)),
        acknowledgements: nodes[1].acknowledgements.get().since(acknowledged_before),
        dropped: nodes.iter().map(|node| node.dropped.get()).sum(),
    })
}

/// Returns the rate in segments per second delivered to `node` since `before`, the number delivered
/// by then and the time of the last one. Measured from delivery to delivery, so that no partial
/// segment is lost at the ends.
fn rate(node: &Node, before: (u64, Instant)) -> f64 {
    let (count, since) = before;
    match node.delivered_at.get().saturating_since(since) {
        Duration::ZERO => 0.0,
        span => (node.delivered.get() - count) as f64 / span.as_secs_f64(),
    }
}

/// Returns the work of each process per segment, in microseconds.
fn work(node: &Node, delivered: u64) -> Vec<(&'static str, f64)> {
    let per_segment = |process: &Process| process.worked().as_nanos() as f64 / 1000.0 / delivered.max(1) as f64;
    let work = &node.work;
    vec![
        ("ip_intrsvc", per_segment(&work.ip_intrsvc)),
        ("ip_demux", per_segment(&work.ip_demux)),
        ("tcp_recv", per_segment(&work.tcp_recv)),
        ("user_task", per_segment(&work.user_task)),
        ("write", per_segment(&work.write)),
        ("xtask", per_segment(&work.xtask)),
        ("ip_send", per_segment(&work.ip_send)),
        ("peek_poke", work.peek_poke.iter().map(per_segment).sum()),
        ("rpc_process", per_segment(&work.rpc_process)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_network::paper::Table1;
    use crate::process_network::setup::Application;

    const QUICK: Options =
        Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };

    #[test]
    fn invalid_networks_are_rejected_by_key() {
        let key = |change: fn(&mut Setup)| {
            let mut setup = Setup::scenario_2(&Table1::load());
            change(&mut setup);
            simulate(&setup, &QUICK).unwrap_err().key
        };
        assert_eq!(key(|setup| setup.window = 0), "window");
        assert_eq!(key(|setup| setup.window = 31), "window");
        assert_eq!(key(|setup| setup.acknowledge_every = 0), "acknowledge_every");
        assert_eq!(key(|setup| setup.acknowledge_every = setup.window + 1), "acknowledge_every");
        assert_eq!(key(|setup| setup.poked_us = -1.0), "poked_us");
        assert_eq!(key(|setup| setup.costs.tcp_recv_us = f64::INFINITY), "tcp_recv_us");
        assert_eq!(
            key(|setup| setup.application = Application::OnWorkstation { us_per_segment: -1.0 }),
            "us_per_segment"
        );
    }

    #[test]
    #[should_panic(expected = "segments are not conserved")]
    fn a_segment_delivered_twice_fails_the_run() {
        let mut simulation = Simulation::new(1, 0);
        let (sim, setup) = (simulation.sim(), Setup::scenario_2(&Table1::load()));
        let [first, second] = ["first", "second"].map(|name| Node::new(&sim, name, &setup));
        first.start(&second, true);
        second.start(&first, false);
        simulation.run_until(Instant::ZERO + Duration::from_millis(20));
        first.check_conservation(&second);
        second.delivered.set(second.delivered.get() + 1);
        first.check_conservation(&second);
    }
}
