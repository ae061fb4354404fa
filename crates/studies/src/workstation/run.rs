//! One run: starts all processes, lets the configured parts fail, and measures.

use std::rc::Rc;

use sim::Simulation;
use sim::hardware::ConfigError;
use units::{Duration, Instant};

use super::config::{Config, Load};
use super::model::{Measured, Model, Tallies};
use super::{network, receiver, sender};

/// Runs `config` once.
///
/// # Errors
/// Returns an error that names the invalid key of `config`.
pub(crate) fn run(config: &Config, seed: u64, run: u64) -> Result<Measured, ConfigError> {
    let mut simulation = Simulation::new(seed, run);
    let model = Rc::new(Model::new(&simulation.sim(), config)?);
    network::start(&model);
    sender::start(&model);
    receiver::start(&model);
    simulation.run_until(Instant::ZERO + config.warm_up);
    simulation.reset_statistics();
    *model.tallies.borrow_mut() = Tallies::default();
    model.messages.set(0);
    fail(&model);
    let steps: &[f64] = if let Load::Steps(steps) = &config.load { steps } else { &[] };
    for step in 0..steps.len() {
        model.set_step(steps, step);
        simulation.run_until(Instant::ZERO + config.warm_up + part_of(config.measured, step + 1, steps.len()));
    }
    simulation.run_until(Instant::ZERO + config.warm_up + config.measured);
    model.check_conservation();
    Ok(model.measured(simulation.reports()))
}

/// Lets the configured processors and interfaces fail.
fn fail(model: &Rc<Model>) {
    for index in 0..model.config.failure.processors {
        sender::fail(model, index);
    }
    for index in 0..model.config.failure.interfaces {
        model.fail_interface(index);
    }
}

/// Returns interval `part` of `parts` equal intervals of `span`.
const fn part_of(span: Duration, part: usize, parts: usize) -> Duration {
    span.mul_ratio(part as u64, parts as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workstation::model::up;
    use crate::workstation::paper::Kind;

    fn model() -> Rc<Model> {
        let mut simulation = Simulation::new(1, 0);
        let model = Rc::new(Model::new(&simulation.sim(), &Config::new(Kind::TwoBus)).unwrap());
        network::start(&model);
        sender::start(&model);
        receiver::start(&model);
        simulation.run_until(Instant::ZERO + Duration::from_millis(5));
        model.check_conservation();
        model
    }

    #[test]
    #[should_panic(expected = "segments are not conserved")]
    fn a_lost_segment_fails_the_run() {
        let model = model();
        up(&model.segments.made);
        model.check_conservation();
    }

    #[test]
    #[should_panic(expected = "frames of a ring are not conserved")]
    fn a_frame_taken_twice_fails_the_run() {
        let model = model();
        up(&model.frames[3].taken);
        model.check_conservation();
    }

    #[test]
    #[should_panic(expected = "window slots are not conserved")]
    fn a_lost_window_slot_fails_the_run() {
        let model = model();
        model.connections[2].lose_slot();
        model.check_conservation();
    }
}
