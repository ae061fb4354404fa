//! Two hosts that run our own TCP with the times of a setup.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use netem::LinkConfig;
use sim::{Sim, Simulation};
use tcp::{AckPolicy, AckThreshold, AckTimer, TcpConfig};
use tcp_hosts::{Costs, Host, HostConfig, Processors, SegmentCost, Stream, connect};
use units::{Duration, Instant, Rate};

use super::super::paper::Table1;
use super::super::setup::{Application, Placement, Setup, Traffic, micros};
use crate::conserved::check_accounting;
use crate::study::{Effort, Options};

/// IP and TCP headers without options.
const HEADERS_BYTES: usize = 40;

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 5000);

/// Warm-up until windows and queues are in steady state.
const WARM_UP: Duration = Duration::from_secs(1);

/// Segments that an application writes in one call.
const SEGMENTS_PER_WRITE: usize = 8;

/// Returns the distribution of a segment's time over the processors of our host: IP at the
/// interface, TCP with the socket layer in the connection.
fn costs(setup: &Setup, bytes: u64) -> Costs {
    let costs = setup.costs;
    let (read_us, written_us) = match setup.application {
        Application::OnAdapter => (costs.user_task_us + costs.copy_us(), costs.write_us + costs.copy_us()),
        Application::OnWorkstation { .. } => (costs.user_task_us, costs.write_us),
        Application::None => (0.0, 0.0),
    };
    // One processor sees all fields at no cost.
    let pokes = |count: u32| match setup.placement {
        Placement::One => 0.0,
        _ => f64::from(count) * (costs.poke_us + costs.link_word_us),
    };
    let cost = |segment_us: f64, data_us: f64| SegmentCost {
        segment: micros(segment_us),
        byte_ps: (data_us * 1e6 / bytes as f64).round() as u64,
    };
    Costs {
        received: cost(costs.tcp_recv_us + pokes(setup.pokes), read_us),
        sent: cost(costs.tcp_snd_data_us + pokes(setup.pokes_back), written_us),
        link_in: cost(costs.ip_intrsvc_us + costs.ip_demux_us, 0.0),
        link_out: cost(costs.ip_send_us + costs.driver_send_us, 0.0),
        ..Costs::default()
    }
}

/// Returns the classic profile with the acknowledgements of the prototype: by the share of the
/// window.
fn tcp(setup: &Setup, bytes: usize) -> TcpConfig {
    let window = setup.window as usize * bytes;
    let percent = setup.acknowledge_every * 100 / setup.window;
    let acks = AckPolicy {
        threshold: AckThreshold::BufferPercent(percent),
        delay_max: Duration::from_millis(200),
        timer: AckTimer::FromSegment,
    };
    TcpConfig {
        mtu: bytes + HEADERS_BYTES,
        send_buffer: 2 * window,
        receive_buffer: window,
        acks,
        ..TcpConfig::classic()
    }
}

/// Returns the rate of our TCP in this setup, in segments per second of both directions together.
pub(super) fn segments_per_second(table: &Table1, setup: &Setup, options: &Options) -> f64 {
    let processors = match setup.placement {
        Placement::One => Processors::One,
        Placement::Two => Processors::ReceiveAndSend,
        Placement::Four => Processors::Pipeline,
        Placement::Seven => unreachable!("our hosts have four processors at most"),
    };
    let bytes = table.segment_bytes as usize;
    let mut simulation = Simulation::new(options.seed, 0);
    let sim = simulation.sim();
    let host = |name: &str, last: u8, listening: Option<u16>| {
        let (tcp, costs) = (tcp(setup, bytes), costs(setup, table.segment_bytes));
        let address = Ipv4Addr::new(10, 0, 0, last).into();
        // Processes of equal priority share a transputer.
        let config = HostConfig { listening, costs, processors, interrupts_max: 1, ..HostConfig::new(address, tcp) };
        Host::new(&sim, name, config)
    };
    let (client, server) = (host("first", 1, None), host("second", 2, Some(SERVER.port())));
    let word_us = setup.costs.network_word_us;
    let bps = table.word_bytes as f64 * 8.0 * 1e6 / word_us;
    let rate = (word_us > 0.0).then(|| Rate::from_bps(bps as u64));
    let line = LinkConfig { rate, queue_bytes: 1 << 20, ..LinkConfig::default() };
    connect(&sim, "line", [&client, &server], &line, |len| len).expect("the line is valid");
    let received = Rc::new(Cell::new(0));
    let (of_server, counted_there) = (sim.clone(), Rc::clone(&received));
    let is_duplex = setup.traffic == Traffic::BothWays;
    simulation.spawn(async move {
        let stream = Rc::new(server.accept().await);
        of_server.spawn(read(Rc::clone(&stream), counted_there));
        if is_duplex {
            of_server.spawn(write(stream, bytes));
        }
    });
    let (of_client, counted_here) = (sim, Rc::clone(&received));
    simulation.spawn(async move {
        let stream = Rc::new(client.connect(SERVER).await.expect("the server listens"));
        begin(&of_client, &stream, bytes, counted_here);
    });
    simulation.run_until(Instant::ZERO + WARM_UP);
    let before = received.get();
    // On one processor the two directions alternate in long turns.
    let span = Duration::from_secs(if options.effort == Effort::Quick { 3 } else { 10 });
    simulation.run_until(Instant::ZERO + WARM_UP + span);
    check_accounting(&simulation);
    (received.get() - before) as f64 / bytes as f64 / span.as_secs_f64()
}

fn begin(sim: &Sim, stream: &Rc<Stream>, bytes: usize, received: Rc<Cell<usize>>) {
    sim.spawn(write(Rc::clone(stream), bytes));
    sim.spawn(read(Rc::clone(stream), received));
}

async fn write(stream: Rc<Stream>, bytes: usize) {
    let chunk = Bytes::from(vec![0; bytes * SEGMENTS_PER_WRITE]);
    loop {
        stream.write(chunk.clone()).await.expect("nothing is lost");
    }
}

async fn read(stream: Rc<Stream>, received: Rc<Cell<usize>>) {
    while let Some(bytes) = stream.read(usize::MAX).await.expect("nothing is lost") {
        received.set(received.get() + bytes.len());
    }
}
