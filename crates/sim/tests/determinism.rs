//! The same seed gives the same run, down to the last trace entry, on any number of threads and
//! regardless of previous runs.

use netem::LinkConfig;
use sim::hardware::atm::{AtmConfig, AtmLine};
use sim::hardware::fddi::{Arrivals, Background, Ring, RingConfig};
use sim::hardware::line::Line;
use sim::{Facility, Replications, Simulation, Store};
use units::{Duration, Instant, Rate, Ratio};

/// Sends packets from a ring over an ATM line and a lossy link to a processor, with
/// randomness wherever possible. Returns the trace file of a run.
fn traced_run(seed: u64, run: u64) -> String {
    let mut simulation = Simulation::new(seed, run);
    simulation.record(100_000);
    let sim = simulation.sim();
    let background = Background {
        station: 3,
        share: 0.4,
        frame_bytes: 700,
        arrivals: Arrivals::Exponential,
        batch: 2,
        queue_frames: 50,
    };
    let config = RingConfig { background: Some(background), ..RingConfig::even(8, 12_000) };
    let ring = Ring::new(&sim, "ring", config).unwrap();
    let config = AtmConfig { cell_loss: 0.001, ..AtmConfig::oc3(2, Duration::from_micros(40)) };
    let atm = AtmLine::new(&sim, "atm", config).unwrap();
    let config = LinkConfig { rate: Some(Rate::from_mbps(50)), loss: Ratio::new(1, 50), ..LinkConfig::default() };
    let line = Line::new(&sim, "line", config).unwrap();
    let (store, processor) = (Store::new(&sim, "store", 20), Facility::new(&sim, "processor", 2));
    let next = atm.clone();
    ring.on_delivery(6, move |frame| {
        let _lost_if_full = next.enqueue(frame.item as usize % 2, frame.bytes, frame.item);
    });
    for circuit in 0..2 {
        let next = line.clone();
        atm.on_delivery(circuit, move |frame| next.send(frame.bytes as usize, frame.item));
    }
    line.deliver_into(store.clone());
    for station in [0, 5] {
        let (sim, ring) = (sim.clone(), ring.clone());
        simulation.spawn(async move {
            let mut chance = sim.stream(&format!("station {station}"));
            for number in 0_u64.. {
                sim.sleep(chance.exponential(Duration::from_micros(400))).await;
                ring.send(station, 6, 100 + chance.below(4_000), number).await;
            }
        });
    }
    simulation.spawn(async move {
        let mut chance = sim.stream("work");
        loop {
            store.take().await;
            processor.serve(chance.exponential(Duration::from_micros(150))).await;
        }
    });
    simulation.run_until(Instant::from_nanos(50_000_000));
    let trace = simulation.take_trace().unwrap();
    assert!(trace.len() > 500 && trace.left_out() == 0, "{} entries", trace.len());
    let mut file = Vec::new();
    trace.write(&mut file).unwrap();
    String::from_utf8(file).unwrap()
}

#[test]
fn traces_are_the_same_on_any_number_of_threads() {
    let plan = Replications { threads: 1, ..Replications::new(77, 8) };
    let alone = plan.run(traced_run);
    assert!(alone.windows(2).all(|pair| pair[0] != pair[1]), "runs differ");
    for threads in [2, 5, 8] {
        assert_eq!(Replications { threads, ..plan.clone() }.run(traced_run), alone, "{threads} threads");
    }
    let other = Replications { seed: 78, ..plan }.run(traced_run);
    assert_ne!(other, alone, "seeds differ");
}
