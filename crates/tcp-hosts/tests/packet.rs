//! The placement `packet(n)` on modelled processors: speedups, exact times, security layers, faults.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use layers::{SharedSecret, Stack};
use netem::LinkConfig;
use sim::{Sim, Simulation};
use tcp::TcpConfig;
use tcp_driver::Layers;
use tcp_hosts::{Costs, Host, HostConfig, Processors, SegmentCost, Stream, connect};
use units::{Duration, Instant, Ratio};

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 5000);

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const fn each(micros: u64) -> SegmentCost {
    SegmentCost { segment: us(micros), byte_ps: 0 }
}

/// Parameters of a run.
#[derive(Clone, Copy)]
struct Setup {
    stack: Stack,
    processors: Processors,
    /// Costs of the client, or of the server if `receives`. The other host's work costs no time.
    costs: Costs,
    receives: bool,
    loss: Ratio,
    bytes: usize,
}

/// A sender with one processor, and no faults.
const SETUP: Setup = Setup {
    stack: Stack::PLAIN,
    processors: Processors::Packet(1),
    costs: Costs {
        sent: each(0),
        received: each(0),
        link_out: each(0),
        link_in: each(0),
        stage: each(0),
        record_byte_ps: 0,
        spread_percent: 0,
        call: Duration::ZERO,
    },
    receives: false,
    loss: Ratio::new(0, 1),
    bytes: 500_000,
};

/// The time at which everything was read, a digest of the packets in both directions, and the bytes
/// resent.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Outcome {
    took: Duration,
    sent: u64,
    answered: u64,
    sent_again: u64,
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

/// Returns a configuration with a large window and without congestion control, so that the
/// processors are the limit. Nothing on the line depends on the time.
fn tcp() -> TcpConfig {
    TcpConfig { congestion: None, buffers_initial: usize::MAX, timestamps: false, ..TcpConfig::default() }
}

impl Setup {
    fn host(&self, sim: &Sim, name: &str, last: u8, is_measured: bool) -> Host {
        let plain = HostConfig::new(Ipv4Addr::new(10, 0, 0, last).into(), tcp());
        let layers = (!self.stack.is_plain()).then(|| Layers::new(self.stack, SharedSecret::new([7; 32])));
        let (costs, processors) =
            if is_measured { (self.costs, self.processors) } else { (Costs::default(), Processors::Packet(1)) };
        Host::new(sim, name, HostConfig { listening: Some(SERVER.port()), layers, costs, processors, ..plain })
    }

    fn run(&self, seed: u64) -> Outcome {
        let mut simulation = Simulation::new(seed, 0);
        let sim = simulation.sim();
        let client = self.host(&sim, "client", 1, !self.receives);
        let server = self.host(&sim, "server", 2, self.receives);
        let line = LinkConfig { loss: self.loss, queue_bytes: 1 << 24, ..LinkConfig::default() };
        connect(&sim, "line", [&client, &server], &line, |len| len).expect("a valid line");
        let digests = [&client, &server].map(|_| Rc::new(RefCell::new(DefaultHasher::new())));
        for (host, (other, digest)) in [&client, &server].into_iter().zip([&server, &client].into_iter().zip(&digests))
        {
            if self.loss == Ratio::new(0, 1) {
                let (other, digest) = (other.clone(), Rc::clone(digest));
                host.set_output(move |packet| {
                    digest.borrow_mut().write(&packet);
                    other.arrive(packet);
                });
            }
        }
        let (expected, read) = (content(self.bytes), Rc::new(RefCell::new(None)));
        let (reading, result) = (sim.clone(), Rc::clone(&read));
        simulation.spawn(async move {
            let stream = server.accept().await;
            let mut got = Vec::new();
            while let Some(bytes) = stream.read(usize::MAX).await.expect("the connection lives") {
                got.extend_from_slice(&bytes);
            }
            assert_eq!(got, expected);
            result.replace(Some(reading.now()));
            reading.stop();
        });
        let (written, sender) = (Bytes::from(content(self.bytes)), client.clone());
        simulation.spawn(async move {
            let stream: Stream = client.connect(SERVER).await.expect("the server listens");
            stream.write(written).await.expect("the connection lives");
            stream.finish();
        });
        simulation.run_until(Instant::ZERO + Duration::from_secs(1000));
        let took = read.take().expect("all is read").saturating_since(Instant::ZERO);
        let [sent, answered] = digests.map(|digest| digest.borrow().finish());
        let mut sent_again = 0;
        sender.look_at_connections(|connection| sent_again += connection.stats().send.bytes_resent);
        Outcome { took, sent, answered, sent_again }
    }
}

fn speedup(setup: &Setup, processors: usize) -> f64 {
    let time = |count| Setup { processors: Processors::Packet(count), ..*setup }.run(1).took.as_secs_f64();
    time(1) / time(processors)
}

#[test]
fn the_speedup_is_the_number_of_processors_up_to_the_share_of_the_serial_part() {
    // 90 us for 1460 bytes, nothing for an acknowledgement.
    let stage = SegmentCost { segment: us(0), byte_ps: 61_644 };
    let serial_and_stage = Costs { stage, ..SETUP.costs };
    let sending = Setup { costs: Costs { sent: each(10), ..serial_and_stage }, ..SETUP };
    let receiving = Setup { costs: Costs { received: each(10), ..serial_and_stage }, receives: true, ..SETUP };
    for setup in [sending, receiving] {
        for (processors, expected) in [(2, 2.0), (5, 5.0), (9, 9.0), (20, 10.0)] {
            let speedup = speedup(&setup, processors);
            assert!((0.93..1.03).contains(&(speedup / expected)), "{processors}: {speedup}");
        }
    }
}

#[test]
fn records_are_shared_among_the_processors() {
    let stack: Stack = "des/tcp/md5/ip".parse().expect("a stack");
    let costs = Costs { sent: each(10), received: each(10), record_byte_ps: 100_000, ..SETUP.costs };
    for receives in [false, true] {
        let setup = Setup { stack, costs, receives, ..SETUP };
        let one = setup.run(1).took.as_secs_f64();
        // Records are half a megabyte, and a packet holds 1400 bytes.
        assert!((0.05..0.06).contains(&one), "{one}");
        let speedup = speedup(&setup, 4);
        assert!((3.5..4.001).contains(&speedup), "{receives}: {speedup}");
    }
}

#[test]
fn a_lone_packet_takes_the_time_of_its_steps() {
    let costs = Costs { sent: each(1), stage: each(20), link_out: each(300), link_in: each(4000), ..SETUP.costs };
    let setup = Setup { costs: Costs { received: each(50_000), ..costs }, bytes: 100, ..SETUP };
    let begun = Setup { costs: Costs::default(), ..setup }.run(1).took;
    // The SYN, its answer, the acknowledgement, and the bytes with the FIN. One processor does all
    // of the work.
    let there = 1 + 20 + 300;
    let expected = there + (4000 + 20 + 50_000) + 2 * there;
    assert_eq!(setup.run(1).took, begun + us(expected));
}

#[test]
fn the_bytes_on_the_line_do_not_depend_on_the_number_of_processors() {
    let costs = Costs { sent: each(10), stage: each(90), record_byte_ps: 50_000, spread_percent: 50, ..SETUP.costs };
    // With a cipher, segments end where the sealed records end.
    for stack in Stack::PAPER.into_iter().filter(|stack| stack.cipher.is_none()) {
        let setup = Setup { stack, costs, bytes: 100_000, ..SETUP };
        let sent = [1, 2, 7].map(|count| Setup { processors: Processors::Packet(count), ..setup }.run(3).sent);
        assert_eq!(sent, [sent[0]; 3], "{stack}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_other_times() {
    let costs = Costs { sent: each(10), stage: each(90), spread_percent: 50, ..SETUP.costs };
    let setup = Setup { costs, processors: Processors::Packet(3), ..SETUP };
    assert_eq!(setup.run(3), setup.run(3));
    assert_ne!(setup.run(3).took, setup.run(4).took);
}

#[test]
fn a_line_that_loses_packets_delivers_all_bytes_of_every_stack() {
    let costs = Costs { sent: each(1), received: each(1), stage: each(9), record_byte_ps: 5000, ..SETUP.costs };
    for stack in Stack::PAPER.into_iter().chain(Stack::TODAY) {
        for receives in [false, true] {
            let setup = Setup { stack, costs, receives, processors: Processors::Packet(3), bytes: 200_000, ..SETUP };
            let clean = setup.run(5).took;
            let lossy = Setup { loss: Ratio::new(1, 20), ..setup }.run(5).took;
            assert!(lossy > clean, "{stack}: the faults fired");
        }
    }
}

#[test]
fn four_processors_divide_the_links_from_the_connections() {
    let costs = Costs { sent: each(10), link_out: each(10), received: each(10), link_in: each(10), ..SETUP.costs };
    for receives in [false, true] {
        let setup = Setup { costs, receives, ..SETUP };
        let [one, four] = [Processors::Packet(1), Processors::Pipeline]
            .map(|processors| Setup { processors, ..setup }.run(1).took.as_secs_f64());
        // Two of them handle outgoing segments, and two incoming ones: half as many
        // acknowledgements.
        let gain = one / four;
        assert!((2.9..3.01).contains(&gain), "{receives}: {gain}");
    }
}

#[test]
fn what_waits_for_its_stage_is_not_sent_again() {
    for micros in [50, 500, 5000] {
        // Acknowledgements, which have no data, overtake waiting segments.
        let stage = SegmentCost { segment: us(0), byte_ps: micros * 1_000_000 / 1460 };
        let costs = Costs { stage, spread_percent: 20, ..SETUP.costs };
        for count in [1, 3] {
            let setup = Setup { costs, processors: Processors::Packet(count), ..SETUP };
            // A tail loss probe may repeat the last segment, because its timer begins with the plan.
            let sent_again = setup.run(1).sent_again;
            assert!(sent_again <= 1460, "{micros} us, {count} processors: {sent_again} bytes");
        }
    }
}
