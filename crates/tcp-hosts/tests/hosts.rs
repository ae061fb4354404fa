//! Two hosts on a line: exact times, batches of a busy host, faults, determinism.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use bytes::Bytes;
use netem::LinkConfig;
use sim::{Sim, Simulation};
use tcp::{Nagle, TcpConfig};
use tcp_hosts::{Costs, Host, HostConfig, Processors, SegmentCost, Stream, connect};
use units::{Duration, Instant, Rate, Ratio};

const PORT: u16 = 5000;

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Returns costs: a segment costs 10 us and 10 ns for each byte at the sender, twice as much at the
/// receiver, a call 5 us.
fn costs() -> Costs {
    Costs {
        sent: SegmentCost { segment: us(10), byte_ps: 10_000 },
        received: SegmentCost { segment: us(20), byte_ps: 20_000 },
        call: us(5),
        ..Costs::default()
    }
}

/// Returns a line on which packets of 1000 bytes take 10 us.
fn line() -> LinkConfig {
    LinkConfig { rate: Some(Rate::from_mbps(800)), delay: us(100), queue_bytes: 1 << 20, ..LinkConfig::default() }
}

fn host(sim: &Sim, number: u8, tcp: &TcpConfig, costs: Costs) -> Host {
    host_with(sim, number, tcp, costs, Processors::One, usize::MAX)
}

fn host_with(
    sim: &Sim,
    number: u8,
    tcp: &TcpConfig,
    costs: Costs,
    processors: Processors,
    interrupts_max: usize,
) -> Host {
    let config = HostConfig::new(Ipv4Addr::new(10, 0, 0, number).into(), tcp.clone());
    let config = HostConfig { listening: Some(PORT), costs, processors, interrupts_max, ..config };
    Host::new(sim, &format!("host {number}"), config)
}

/// Runs `application` at the first host. The second host reads, and records the time and length of
/// each read.
fn run<F: Future<Output = ()> + 'static>(
    tcp: &TcpConfig,
    costs: Costs,
    line: &LinkConfig,
    application: impl FnOnce(Sim, Stream) -> F + 'static,
) -> Vec<(Instant, usize)> {
    let mut simulation = Simulation::new(7, 0);
    let sim = simulation.sim();
    let hosts = [1, 2].map(|number| host(&sim, number, tcp, costs));
    connect(&sim, "line", [&hosts[0], &hosts[1]], line, |len| len).expect("a valid line");
    let reads = Rc::new(RefCell::new(Vec::new()));
    let [client, server] = hosts;
    let (reading, read) = (sim.clone(), Rc::clone(&reads));
    simulation.spawn(async move {
        let stream = server.accept().await;
        while let Some(bytes) = stream.read(usize::MAX).await.expect("the connection lives") {
            read.borrow_mut().push((reading.now(), bytes.len()));
        }
        reading.stop();
    });
    let writing = sim.clone();
    simulation.spawn(async move {
        let remote = (Ipv4Addr::new(10, 0, 0, 2), PORT).into();
        let stream = client.connect(remote).await.expect("the server listens");
        application(writing, stream).await;
    });
    simulation.run_until(Instant::ZERO + Duration::from_secs(100));
    reads.take()
}

#[test]
fn a_lone_segment_takes_the_time_of_its_parts() {
    let reads = run(&TcpConfig::classic(), costs(), &line(), |sim, stream| async move {
        sim.sleep_until(Instant::ZERO + Duration::from_millis(10)).await;
        stream.write(Bytes::from(vec![1; 960])).await.expect("the connection lives");
        stream.finish();
    });
    // The call, the segment, the line, the segment and the acknowledgement of its FIN, the call.
    let expected = 5_000 + (10_000 + 9_600) + (10_000 + 100_000) + (20_000 + 19_200 + 10_000) + 5_000;
    assert_eq!(reads, [(Instant::from_nanos(10_000_000 + expected), 960)]);
}

#[test]
fn a_busy_receiver_takes_several_segments_at_a_time_and_an_idle_one_each() {
    for (costs, turns) in [(costs(), 2), (Costs { received: SegmentCost::default(), ..costs() }, 21)] {
        let reads = run(&TcpConfig::classic(), costs, &line(), |_, stream| async move {
            stream.write(Bytes::from(vec![1; 30_000])).await.expect("the connection lives");
            stream.finish();
        });
        assert_eq!(reads.iter().map(|(_, len)| len).sum::<usize>(), 30_000);
        // Data passed on by a turn are read in calls of 5 us, one after the other.
        let gaps = reads.windows(2).filter(|pair| pair[1].0.saturating_since(pair[0].0) > us(5)).count();
        assert_eq!(gaps + 1, turns, "21 segments: {reads:?}");
    }
}

#[test]
fn what_a_line_loses_and_corrupts_is_sent_again() {
    let faults = LinkConfig { loss: Ratio::new(1, 20), corrupt: Ratio::new(1, 50), ..line() };
    for tcp in [TcpConfig::default(), TcpConfig::classic()] {
        let reads = run(&tcp, costs(), &faults, |_, stream| async move {
            stream.write(Bytes::from(vec![1; 500_000])).await.expect("the connection lives");
            stream.finish();
        });
        assert_eq!(reads.iter().map(|(_, len)| len).sum::<usize>(), 500_000, "{tcp:?}");
    }
}

/// Returns the time in which both hosts send and receive `BYTES`.
fn both_ways(processors: Processors) -> Duration {
    const BYTES: usize = 3_000_000;
    let mut simulation = Simulation::new(7, 0);
    let sim = simulation.sim();
    let costs = Costs { received: costs().sent, ..costs() };
    let tcp = TcpConfig { congestion: None, ..TcpConfig::default() };
    let hosts = [1, 2].map(|number| host_with(&sim, number, &tcp, costs, processors, 1));
    let fast = LinkConfig { rate: None, ..line() };
    connect(&sim, "line", [&hosts[0], &hosts[1]], &fast, |len| len).expect("a valid line");
    let finished = Rc::new(RefCell::new(Vec::new()));
    let [client, server] = hosts;
    let exchange = move |sim: &Sim, stream: Stream, finished: &Rc<RefCell<Vec<Instant>>>| {
        let stream = Rc::new(stream);
        let (writing, sim_of_reader, finished) = (Rc::clone(&stream), sim.clone(), Rc::clone(finished));
        sim.spawn(async move {
            for _ in 0..BYTES / 30_000 {
                writing.write(Bytes::from(vec![1; 30_000])).await.expect("the connection lives");
            }
        });
        sim.spawn(async move {
            assert!(stream.read_exact(BYTES).await.expect("the connection lives"));
            finished.borrow_mut().push(sim_of_reader.now());
        });
    };
    let (of_client, of_server) = ((sim.clone(), Rc::clone(&finished)), (sim, Rc::clone(&finished)));
    simulation.spawn(async move { exchange(&of_server.0, server.accept().await, &of_server.1) });
    simulation.spawn(async move {
        let stream = client.connect((Ipv4Addr::new(10, 0, 0, 2), PORT).into()).await.expect("the server listens");
        exchange(&of_client.0, stream, &of_client.1);
    });
    simulation.run_until(Instant::ZERO + Duration::from_secs(100));
    let finished = finished.take();
    assert_eq!(finished.len(), 2);
    finished.into_iter().max().expect("two").saturating_since(Instant::ZERO)
}

#[test]
fn a_processor_for_each_direction_nearly_halves_the_time_of_traffic_in_both() {
    let [one, two] = [Processors::One, Processors::ReceiveAndSend].map(both_ways);
    let gain = one.as_secs_f64() / two.as_secs_f64();
    assert!((1.5..=2.0).contains(&gain), "{gain}: {one} and {two}");
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let faults = LinkConfig { loss: Ratio::new(1, 20), ..line() };
    let once = |tcp: &TcpConfig| {
        run(tcp, costs(), &faults, |_, stream| async move {
            stream.write(Bytes::from(vec![1; 200_000])).await.expect("the connection lives");
            stream.finish();
        })
    };
    let (config, other) = (TcpConfig::default(), TcpConfig { nagle: Nagle::Off, sack: false, ..TcpConfig::default() });
    let (first, again) = (once(&config), once(&config));
    assert!(first.len() > 5);
    assert_eq!(first, again);
    assert_ne!(first, once(&other), "another configuration gives other times");
}
