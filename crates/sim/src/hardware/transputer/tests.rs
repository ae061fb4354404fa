//! Tests of the transputer against hand-computed times and an oracle.

use proptest::prelude::*;

use super::*;
use crate::kernel::Simulation;

type Log = Rc<RefCell<Vec<(&'static str, u64)>>>;

/// Starts work of `process` at `at_ns` and logs its completion time.
fn start(simulation: &Simulation, process: &Process, name: &'static str, at_ns: u64, work_ns: u64, log: &Log) {
    let (sim, process, log) = (simulation.sim(), process.clone(), Rc::clone(log));
    simulation.spawn(async move {
        sim.sleep(Duration::from_nanos(at_ns)).await;
        process.run(Duration::from_nanos(work_ns)).await;
        log.borrow_mut().push((name, sim.now().as_nanos()));
    });
}

#[test]
fn high_priority_preempts_and_the_preempted_process_resumes() {
    let mut simulation = Simulation::new(1, 0);
    let processor = Transputer::new(&simulation.sim(), "processor", Duration::ZERO);
    let (low, other) = (processor.process(Priority::Low), processor.process(Priority::Low));
    let high = processor.process(Priority::High);
    let log = Log::default();
    start(&simulation, &low, "low", 0, 100, &log);
    start(&simulation, &other, "other", 10, 50, &log);
    start(&simulation, &high, "high", 30, 20, &log);
    start(&simulation, &high, "again", 40, 5, &log);
    simulation.run();
    assert_eq!(*log.borrow(), [("high", 50), ("again", 55), ("low", 125), ("other", 175)]);
    let report = processor.report();
    assert_eq!((report.served, report.utilisation), (4, 1.0));
    assert_eq!((low.worked().as_nanos(), high.worked().as_nanos(), high.times()), (100, 25, 2));
}

#[test]
fn only_a_change_of_process_costs_a_switch() {
    let mut simulation = Simulation::new(1, 0);
    let processor = Transputer::new(&simulation.sim(), "processor", Duration::from_nanos(7));
    let (first, second) = (processor.process(Priority::Low), processor.process(Priority::Low));
    let log = Log::default();
    start(&simulation, &first, "a", 0, 10, &log);
    start(&simulation, &first, "b", 1, 10, &log);
    start(&simulation, &second, "c", 2, 10, &log);
    simulation.run();
    assert_eq!(*log.borrow(), [("a", 17), ("b", 27), ("c", 44)]);
}

#[test]
fn abandoned_work_releases_the_processor() {
    let mut simulation = Simulation::new(1, 0);
    let processor = Transputer::new(&simulation.sim(), "processor", Duration::ZERO);
    let (first, second) = (processor.process(Priority::Low), processor.process(Priority::Low));
    let log = Log::default();
    let (sim, abandoning) = (simulation.sim(), first.clone());
    simulation.spawn(async move {
        let mut work = Box::pin(abandoning.run(Duration::from_nanos(1000)));
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            assert!(work.as_mut().poll(context).is_pending());
            sim.wake_at(Instant::from_nanos(30), sim.current_task());
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    start(&simulation, &second, "second", 5, 10, &log);
    simulation.run_until(Instant::from_nanos(100));
    assert_eq!(*log.borrow(), [("second", 40)]);
    assert!((processor.report().utilisation - 0.4).abs() < 1e-12);
    assert_eq!(first.times(), 0);
}

#[test]
fn a_preempted_process_switch_is_repeated() {
    let mut simulation = Simulation::new(1, 0);
    let processor = Transputer::new(&simulation.sim(), "processor", Duration::from_nanos(10));
    let (low, high) = (processor.process(Priority::Low), processor.process(Priority::High));
    let log = Log::default();
    start(&simulation, &low, "low", 0, 100, &log);
    // During the first switch, and later during the work.
    start(&simulation, &high, "first", 4, 20, &log);
    start(&simulation, &high, "second", 64, 20, &log);
    simulation.run();
    // 4 + 10 + 20; then 10 and 20 of the work until 64; then 10 + 20; then 10 and the remaining 80.
    assert_eq!(*log.borrow(), [("first", 34), ("second", 94), ("low", 184)]);
    assert_eq!(low.worked().as_nanos(), 100);
}

/// Work as the oracle sees it: arrival, remaining nanoseconds, priority, number.
type Work = (u64, u64, Priority, usize);

/// The slow oracle, nanosecond by nanosecond. Returns the completion times by number.
fn oracle(mut waiting: Vec<Work>) -> Vec<u64> {
    let mut done = vec![0; waiting.len()];
    // First come, first served within a priority; equal times in order of their numbers.
    waiting.sort_by_key(|&(at, _, _, number)| (at, number));
    let mut now = 0;
    let mut running: Option<Work> = None;
    while !waiting.is_empty() || running.is_some() {
        let next = |priority| waiting.iter().position(|work| work.0 <= now && work.2 == priority);
        if running.is_none_or(|work| work.2 == Priority::Low)
            && let Some(index) = next(Priority::High)
        {
            let high = waiting.remove(index);
            // Preempted work precedes all other work of its priority.
            if let Some(low) = running.replace(high) {
                waiting.insert(0, low);
            }
        } else if running.is_none()
            && let Some(index) = next(Priority::Low)
        {
            running = Some(waiting.remove(index));
        }
        now += 1;
        if let Some(work) = &mut running {
            work.1 -= 1;
            if work.1 == 0 {
                done[work.3] = now;
                running = None;
            }
        }
    }
    done
}

proptest! {
    #[test]
    fn completion_times_match_the_slow_oracle(
        work in prop::collection::vec((0_u64..200, 1_u64..40, any::<bool>()), 1..20)
    ) {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let processor = Transputer::new(&sim, "processor", Duration::ZERO);
        let done = Rc::new(RefCell::new(vec![0; work.len()]));
        let mut expected = Vec::new();
        for (number, &(at, span, is_high)) in work.iter().enumerate() {
            let priority = if is_high { Priority::High } else { Priority::Low };
            expected.push((at, span, priority, number));
            let (sim, process, done) = (sim.clone(), processor.process(priority), Rc::clone(&done));
            simulation.spawn(async move {
                sim.sleep(Duration::from_nanos(at)).await;
                process.run(Duration::from_nanos(span)).await;
                done.borrow_mut()[number] = sim.now().as_nanos();
            });
        }
        simulation.run();
        prop_assert_eq!(&*done.borrow(), &oracle(expected));
        let total: u64 = work.iter().map(|&(_, span, _)| span).sum();
        let end = done.borrow().iter().copied().max().unwrap_or(0);
        prop_assert!((processor.report().utilisation - total as f64 / end as f64).abs() < 1e-9);
    }
}
