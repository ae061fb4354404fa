use super::*;
use crate::kernel::Simulation;

const ARRAY: Topology = Topology::LinearArray { processors: 6, wraps: true };

fn config(topology: Topology, forwarding: Forwarding) -> MeshConfig {
    // 8 ns per byte.
    let (startup, hop) = (Duration::from_nanos(100), Duration::from_nanos(10));
    MeshConfig { topology, forwarding, rate: Rate::from_bps(1_000_000_000), startup, hop }
}

/// Sends messages (at, from, to, bytes) and returns their arrival times in nanoseconds.
fn arrivals(config: MeshConfig, messages: &[(u64, usize, usize, u64)]) -> (Vec<u64>, Mesh, Simulation) {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let mesh = Mesh::new(&sim, "mesh", config).unwrap();
    let times = Rc::new(RefCell::new(vec![0; messages.len()]));
    for (index, &(at, from, to, bytes)) in messages.iter().enumerate() {
        let (sim, mesh, times) = (sim.clone(), mesh.clone(), Rc::clone(&times));
        simulation.spawn(async move {
            sim.sleep(Duration::from_nanos(at)).await;
            mesh.transfer(from, to, bytes).await;
            times.borrow_mut()[index] = sim.now().as_nanos();
        });
    }
    simulation.run();
    let times = times.borrow().clone();
    (times, mesh, simulation)
}

#[test]
fn store_and_forward_and_wormhole_have_their_latencies() {
    let two_hops = [(0, 4, 0, 100)];
    let stored = arrivals(config(ARRAY, Forwarding::StoreAndForward), &two_hops).0;
    assert_eq!(stored, [100 + 2 * (10 + 800)]);
    let stretched = arrivals(config(ARRAY, Forwarding::Wormhole), &two_hops).0;
    assert_eq!(stretched, [100 + 2 * 10 + 800]);
    let crossbar = Topology::Crossbar { processors: 6 };
    let crossed = arrivals(config(crossbar, Forwarding::StoreAndForward), &two_hops).0;
    assert_eq!(crossed, [100 + 10 + 800]);
}

#[test]
fn the_shorter_direction_is_taken_with_wrap_around() {
    assert_eq!((ARRAY.hops(0, 5), ARRAY.hops(5, 0), ARRAY.hops(0, 3), ARRAY.hops(1, 5)), (1, 1, 3, 2));
    let open = Topology::LinearArray { processors: 6, wraps: false };
    assert_eq!((open.hops(0, 5), open.hops(5, 1), open.hops(2, 2)), (5, 4, 0));
    let mesh = Topology::Mesh { columns: 4, rows: 3, wraps: false };
    let torus = Topology::Mesh { columns: 4, rows: 3, wraps: true };
    assert_eq!((mesh.hops(0, 11), torus.hops(0, 11), torus.hops(0, 2)), (5, 2, 2));
}

#[test]
fn a_link_carries_one_message_at_a_time_per_direction() {
    let config = config(ARRAY, Forwarding::StoreAndForward);
    let (times, mesh, _) = arrivals(config, &[(0, 0, 1, 100), (5, 0, 1, 50), (5, 1, 0, 50)]);
    assert_eq!(times, [910, 910 + 510, 515]);
    let report = mesh.report();
    assert_eq!((report.served, report.capacity, report.max_number), (3, Some(12), 3));
    // Of 1420 ns, 1420 to the right and 510 to the left, over twelve links.
    assert!((report.utilisation - 1930.0 / 1420.0 / 12.0).abs() < 1e-12, "{report:?}");
    assert!((mesh.link_utilisation(0, 1) - 1.0).abs() < 1e-12);
    assert!((mesh.link_utilisation(1, 0) - 510.0 / 1420.0).abs() < 1e-12);
    // The second message waited for 905 ns; the others did not wait.
    assert_eq!(report.mean_wait.as_nanos(), 302);
}

#[test]
fn a_blocked_wormhole_message_holds_its_links() {
    let open = Topology::LinearArray { processors: 4, wraps: false };
    let config = config(open, Forwarding::Wormhole);
    // The second message waits at the last link for the first. The third waits for the second's
    // first link, although no data is on it yet.
    let (times, ..) = arrivals(config, &[(0, 2, 3, 100), (1, 0, 3, 100), (2, 0, 1, 100)]);
    assert_eq!(times, [910, 910 + 810, 910 + 810 + 810]);
}

#[test]
fn a_crossbar_serialises_the_messages_of_one_processor_only() {
    let config = config(Topology::Crossbar { processors: 6 }, Forwarding::Wormhole);
    let (times, mesh, _) = arrivals(config, &[(0, 0, 3, 100), (0, 1, 4, 100), (0, 2, 5, 100), (0, 5, 3, 100)]);
    assert_eq!(times, [910, 910, 910, 910 + 810]);
    assert_eq!(mesh.report().capacity, Some(12));
}

#[test]
fn every_processor_is_reached_with_both_forwarding_modes_and_accounting_holds() {
    for wraps in [false, true] {
        for forwarding in [Forwarding::StoreAndForward, Forwarding::Wormhole] {
            let topology = Topology::Mesh { columns: 4, rows: 3, wraps };
            let config = config(topology, forwarding);
            for from in 0..12 {
                for to in 0..12 {
                    let (times, mesh, _) = arrivals(config, &[(0, from, to, 7)]);
                    let unloaded_time = if from == to { 0 } else { config.unloaded_time(from, to, 7).as_nanos() };
                    assert_eq!(times, [unloaded_time], "{from} to {to}");
                    assert!(mesh.report().mean_wait.is_zero());
                }
            }
            let messages: Vec<_> = (0..200).map(|index| (index * 3 % 97, index as usize * 5 % 12, 7, index)).collect();
            let (times, mesh, _) = arrivals(config, &messages);
            assert!(times.iter().zip(&messages).all(|(&there, message)| there >= message.0));
            assert!(mesh.report().utilisation <= 1.0);
        }
    }
}

#[test]
fn an_invalid_network_is_rejected_by_key() {
    let simulation = Simulation::new(1, 0);
    let good = config(ARRAY, Forwarding::Wormhole);
    let single = MeshConfig { topology: Topology::LinearArray { processors: 1, wraps: true }, ..good };
    let endless = |columns, rows| MeshConfig { topology: Topology::Mesh { columns, rows, wraps: false }, ..good };
    for config in [endless(usize::MAX, 2), endless(1 << 40, 1 << 40), endless(257, 256), endless(0, usize::MAX)] {
        let error = Mesh::new(&simulation.sim(), "mesh", config).err().unwrap();
        assert_eq!(error.key, "topology", "{config:?}");
    }
    endless(256, 256).validate().unwrap();
    let dead = MeshConfig { rate: Rate::from_bps(0), ..good };
    assert_eq!(Mesh::new(&simulation.sim(), "mesh", single).err().unwrap().key, "topology");
    assert_eq!(Mesh::new(&simulation.sim(), "mesh", dead).err().unwrap().key, "rate");
}
