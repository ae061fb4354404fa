//! Compares cell trains with a simulation of single cells.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::kernel::Simulation;

/// Frames to send: (nanoseconds after the previous one, circuit, bytes).
type Requests = Vec<(u64, usize, u64)>;

fn config(rate_bps: u64) -> AtmConfig {
    AtmConfig { rate: Rate::from_bps(rate_bps), queue_frames: 1000, ..AtmConfig::oc3(4, Duration::from_nanos(777)) }
}

/// Simulates every cell. Returns the arrival time of each frame by its number.
fn cell_by_cell(rate_bps: u64, requests: &Requests) -> BTreeMap<usize, u64> {
    let mut at_ns = 0;
    let mut to_come: VecDeque<(u64, usize, usize, u64)> = VecDeque::new();
    for (number, &(gap, circuit, bytes)) in requests.iter().enumerate() {
        at_ns += gap;
        to_come.push_back((
            at_ns,
            number,
            circuit,
            bytes.div_ceil(48) + u64::from(bytes.next_multiple_of(48) - bytes < 8),
        ));
    }
    let mut queues = vec![VecDeque::<(usize, u64)>::new(); 4];
    let (mut turns, mut there, mut now) = (VecDeque::new(), BTreeMap::new(), 0);
    // An idle line waits for the next frame and restarts its cell count.
    while let Some(&(first, ..)) = to_come.front() {
        let began = first.max(now);
        now = began;
        let mut gone = 0_u128;
        // Before the first cell: the frames that have arrived by now. A frame that arrives during a
        // cell gets its turn before the circuit of that cell gets another one; a frame that arrives
        // at the end of a cell gets it after.
        let mut process_arrivals =
            |until: u64, turns: &mut VecDeque<usize>, queues: &mut Vec<VecDeque<(usize, u64)>>| {
                while let Some(&(_, number, circuit, cells)) = to_come.front().filter(|request| request.0 <= until) {
                    to_come.pop_front();
                    if queues[circuit].is_empty() {
                        turns.push_back(circuit);
                    }
                    queues[circuit].push_back((number, cells));
                }
            };
        process_arrivals(now, &mut turns, &mut queues);
        while let Some(&circuit) = turns.front() {
            gone += 1;
            let end = began + (gone * 424 * 1_000_000_000).div_ceil(u128::from(rate_bps)) as u64;
            process_arrivals(end - 1, &mut turns, &mut queues);
            now = end;
            turns.pop_front();
            let (number, cells) = queues[circuit].front_mut().unwrap();
            *cells -= 1;
            if *cells == 0 {
                there.insert(*number, now + 777);
                queues[circuit].pop_front();
            }
            if !queues[circuit].is_empty() {
                turns.push_back(circuit);
            }
            if turns.is_empty() {
                break;
            }
            process_arrivals(now, &mut turns, &mut queues);
        }
    }
    there
}

fn in_trains(rate_bps: u64, requests: &Requests) -> (BTreeMap<usize, u64>, u64, ComponentReport) {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let line = AtmLine::new(&sim, "line", config(rate_bps)).unwrap();
    let there = Rc::new(RefCell::new(BTreeMap::new()));
    for circuit in 0..4 {
        let (log, clock) = (Rc::clone(&there), sim.clone());
        line.on_delivery(circuit, move |frame: AtmFrame<usize>| {
            assert_eq!(frame.circuit, circuit);
            log.borrow_mut().insert(frame.item, clock.now().as_nanos());
        });
    }
    let (sender, requests) = (line.clone(), requests.clone());
    simulation.spawn(async move {
        for (number, (gap, circuit, bytes)) in requests.into_iter().enumerate() {
            sim.sleep(Duration::from_nanos(gap)).await;
            sender.enqueue(circuit, bytes, number).unwrap();
        }
    });
    simulation.run();
    let there = there.borrow().clone();
    (there, simulation.events(), line.report())
}

fn requests(gap_ns_max: u64, bytes_max: u64) -> impl Strategy<Value = Requests> {
    prop::collection::vec((0..gap_ns_max, 0_usize..4, 0..bytes_max), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frame_times_match_a_simulation_of_every_cell(
        rate_bps in prop_oneof![Just(149_760_000_u64), Just(53_000_000), Just(424_000_000)],
        requests in prop_oneof![
            requests(1_000, 9_000), requests(100_000, 9_000), requests(1_000_000, 9_000), requests(3_000, 100)],
    ) {
        let (there, _, report) = in_trains(rate_bps, &requests);
        prop_assert_eq!(report.served, requests.len() as u64);
        prop_assert_eq!(there, cell_by_cell(rate_bps, &requests));
    }
}

#[test]
fn a_frame_with_its_trailer_fills_whole_cells() {
    assert_eq!([0, 1, 40, 41, 88, 89, 1500, 9180, FRAME_BYTES_MAX].map(cells), [1, 1, 1, 2, 2, 3, 32, 192, 1366]);
}

#[test]
fn a_frame_costs_a_constant_number_of_events() {
    let requests: Requests = (0..100).map(|number| (4_000_000, number % 4, 60_000)).collect();
    let (there, events, report) = in_trains(149_760_000, &requests);
    assert_eq!(there.len(), 100);
    // Each frame has 1251 cells and costs three events: sending, end and arrival.
    assert!(events < 100 * 4, "{events} events");
    // 1251 cells of 2831.2 ns on an otherwise idle line.
    assert_eq!((report.mean_wait, report.mean_sojourn), (Duration::ZERO, Duration::from_nanos(3_541_827)));
}

#[test]
fn circuits_share_the_line_evenly_while_they_have_frames() {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let line = AtmLine::new(&sim, "line", config(149_760_000)).unwrap();
    let bytes = Rc::new(RefCell::new([0_u64; 3]));
    for (circuit, frame_bytes) in [(0, 300), (1, 9_180), (2, 40_000)] {
        let count = Rc::clone(&bytes);
        line.on_delivery(circuit, move |frame| count.borrow_mut()[circuit] += cells(frame.bytes));
        for _ in 0..2 {
            let line = line.clone();
            simulation.spawn(async move {
                loop {
                    line.send(circuit, frame_bytes, ()).await;
                }
            });
        }
    }
    simulation.run_measured(Duration::from_millis(100), Duration::from_millis(900));
    let total: u64 = bytes.borrow().iter().sum();
    for &cells in bytes.borrow().iter() {
        assert!((cells as f64 / total as f64 - 1.0 / 3.0).abs() < 0.01, "{bytes:?}");
    }
    let report = line.report();
    assert!((report.utilisation - 1.0).abs() < 1e-9, "{report:?}");
}

#[test]
fn a_lost_cell_corrupts_its_frame_and_a_lost_last_cell_the_next_one_too() {
    let loss: f64 = 0.002;
    let mut simulation = Simulation::new(9, 0);
    let sim = simulation.sim();
    let line = AtmLine::new(&sim, "line", AtmConfig { cell_loss: loss, ..config(149_760_000) }).unwrap();
    let come = Rc::new(RefCell::new(0_u64));
    let count = Rc::clone(&come);
    line.on_delivery(0, move |_| *count.borrow_mut() += 1);
    let sender = line.clone();
    let frames = 100_000;
    simulation.spawn(async move {
        for _ in 0..frames {
            sender.send(0, 1_500, ()).await;
        }
    });
    simulation.run();
    // 32 cells of its own and the last cell of the previous frame.
    let whole = (1.0 - loss).powi(33);
    let found = *come.borrow() as f64 / f64::from(frames);
    // One and a half standard deviations. Ignoring the previous frame's last cell would add 0.0019.
    assert!((found - whole).abs() < 0.0012, "{found}, not {whole}");
    let counts = line.atm_report();
    assert_eq!((counts.frames, counts.cells, counts.frames - counts.spoiled), (100_000, 3_200_000, *come.borrow()));
}

#[test]
fn a_full_circuit_refuses_frames_and_invalid_keys_are_reported() {
    let simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let good = config(149_760_000);
    let line = AtmLine::new(&sim, "line", AtmConfig { queue_frames: 2, ..good.clone() }).unwrap();
    assert_eq!(
        [line.enqueue(1, 100, 'a'), line.enqueue(1, 100, 'b'), line.enqueue(1, 100, 'c')],
        [Ok(()), Ok(()), Err('c')]
    );
    assert_eq!((line.queue_frames(1), line.queue_bytes(1), line.queue_frames(0)), (2, 200, 0));
    let cases = [
        (AtmConfig { rate: Rate::from_bps(0), ..good.clone() }, "rate"),
        (AtmConfig { circuits: 0, ..good.clone() }, "circuits"),
        (AtmConfig { queue_frames: 0, ..good.clone() }, "queue_frames"),
        (AtmConfig { cell_loss: 1.5, ..good.clone() }, "cell_loss"),
    ];
    for (config, key) in cases {
        assert_eq!(config.validate().unwrap_err().key, key);
    }
}
