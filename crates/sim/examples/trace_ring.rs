//! Traces two senders on an FDDI ring with background load. Writes `ring.json` for Perfetto
//! (<https://ui.perfetto.dev>) and `ring.pcapng` for Wireshark into a folder.
//!
//! `cargo run -p litz-sim --example trace_ring -- FOLDER`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::cell::RefCell;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::rc::Rc;

use sim::Simulation;
use sim::capture::{Capture, Direction, LinkType, Resolution};
use sim::hardware::fddi::{Arrivals, Background, FddiFrame, Ring, RingConfig};
use units::{Duration, Instant};

/// About 32 MB at most.
const TRACE_ENTRIES_MAX: usize = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("name a folder")?);
    let mut simulation = Simulation::new(1, 0);
    simulation.record(TRACE_ENTRIES_MAX);
    let sim = simulation.sim();
    let background = Background {
        station: 9,
        share: 0.3,
        frame_bytes: 1_000,
        arrivals: Arrivals::Exponential,
        batch: 1,
        queue_frames: 1_000,
    };
    let ring = Ring::new(&sim, "ring", RingConfig { background: Some(background), ..RingConfig::even(20, 20_000) })?;
    let mut capture = Capture::new(BufWriter::new(File::create(folder.join("ring.pcapng"))?), 64)?;
    let interface = capture.add_interface("station 10", LinkType::User0, Resolution::Nanos)?;
    // The delivery callback cannot return an error, so the first one is kept until the end.
    let written = Rc::new(RefCell::new((capture, Ok(()))));
    let (file, clock) = (Rc::clone(&written), sim.clone());
    ring.on_delivery(10, move |frame: FddiFrame<u64>| {
        let (capture, outcome) = &mut *file.borrow_mut();
        let bytes = frame.item.to_be_bytes();
        let packet = capture.packet(interface, Direction::Inbound, clock.now(), &bytes, frame.bytes as u32);
        if outcome.is_ok() {
            *outcome = packet;
        }
    });
    for station in [0, 5] {
        let (sim, ring) = (sim.clone(), ring.clone());
        simulation.spawn(async move {
            let mut thinking = sim.stream(&format!("thinking {station}"));
            for number in 0.. {
                let span = sim.begin_span(&format!("sender {station}"), "thinks");
                sim.sleep(thinking.exponential(Duration::from_micros(600))).await;
                drop(span);
                let _span = sim.begin_span(&format!("sender {station}"), "sends");
                ring.send(station, 10, 4_500, number).await;
            }
        });
    }
    simulation.run_until(Instant::from_nanos(200_000_000));
    println!("{:#?}\n{:#?}", ring.report(), ring.ring_report());
    let trace = simulation.take_trace().ok_or("the run was recorded")?;
    trace.write(BufWriter::new(File::create(folder.join("ring.json"))?))?;
    println!("{} entries, {} left out", trace.len(), trace.left_out());
    drop((simulation, ring));
    let (capture, outcome) = Rc::into_inner(written).ok_or("the run is over")?.into_inner();
    outcome?;
    capture.finish_file()?;
    Ok(())
}
