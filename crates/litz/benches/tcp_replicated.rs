//! One stream over 1 to 4 channels of equal rate, each a TCP connection with two stacks of its own, for
//! each scheduling. The lines are in memory, with a rate and a delay in real time.
//!
//! `cargo bench -p litz --bench tcp_replicated` measures. `cargo test -p litz --benches` only runs it briefly.
#![expect(clippy::print_stdout, reason = "a benchmark reports")]

#[path = "../tests/shaped_line.rs"]
mod shaped_line;

use std::net::IpAddr;

use bytes::Bytes;
use litz::tcp::replicated::{ReplicatedReceiver, ReplicatedSender, Scheduling};
use litz::tcp::{IpDevice, MemoryTun, TcpStack, TcpStackConfig};
use net::MonotonicClock;
use netem::LinkConfig;
use units::{Duration, Instant, Rate};

use self::shaped_line::ShapedLine;

const PORT: u16 = 80;
const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(10, 8, 0, 1)), IpAddr::V4(std::net::Ipv4Addr::new(10, 8, 0, 2))];

/// The rate of a channel, megabits a second.
const MBPS: u64 = 50;

/// Before the measurement, so that slow start is over, and its length.
const TIMES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// The same without a measurement.
const BRIEF: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

const CHANNELS_MAX: usize = 4;

fn stack(tun: MemoryTun, ip: IpAddr) -> TcpStack {
    let config = TcpStackConfig::new(IpDevice::memory(tun, ip), &[ip]);
    TcpStack::start(config).expect("a stack")
}

/// The goodput that the receiver sees.
fn goodput(channels: usize, scheduling: Scheduling, [warm_up, time]: [Duration; 2]) -> Rate {
    let (rate, delay) = (Rate::from_mbps(MBPS), Duration::from_millis(2));
    let line = LinkConfig { rate: Some(rate), delay, queue_bytes: 256 << 10, ..LinkConfig::default() };
    let (mut stacks, mut lines, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for seed in 0..channels {
        let (line, [one, other]) = ShapedLine::start(&line, seed as u64);
        let [client, server] = [stack(one, ADDRESSES[0]), stack(other, ADDRESSES[1])];
        let listener = server.listen(PORT).expect("the port is free");
        ours.push(client.connect((ADDRESSES[1], PORT).into()).expect("connected"));
        theirs.push(listener.accept().expect("a peer"));
        stacks.extend([client, server]);
        lines.push(line);
    }
    let clock = MonotonicClock::start();
    std::thread::scope(|scope| {
        let (clock, begins) = (&clock, Instant::ZERO + warm_up);
        scope.spawn(move || {
            let mut sender = ReplicatedSender::begin(ours, scheduling).expect("channels");
            let chunk = Bytes::from(vec![7; 256 << 10]);
            while clock.now() < begins + time + Duration::from_millis(500) {
                sender.write(chunk.clone()).expect("a channel lives");
            }
            sender.finish().expect("the peer takes everything");
        });
        let mut receiver = ReplicatedReceiver::begin(theirs).expect("one stream");
        let (mut bytes, mut span) = (0, None);
        while let Some(piece) = receiver.read().expect("a channel lives") {
            let now = clock.now();
            if now >= begins && now < begins + time {
                let (first, _) = *span.get_or_insert((now, now));
                span = Some((first, now));
                bytes += piece.len() as u64;
            }
        }
        let (first, last) = span.expect("the measurement has begun");
        Rate::from_transfer(bytes, last.saturating_since(first)).expect("a span")
    })
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let times = if is_measured { TIMES } else { BRIEF };
    println!("{MBPS} Mb/s and 2 ms for each channel; goodput as the receiving application sees it");
    for scheduling in [Scheduling::FirstCome, Scheduling::RoundRobin, Scheduling::Adaptive] {
        let mut one = 0.0;
        for channels in 1..=CHANNELS_MAX {
            let goodput = goodput(channels, scheduling, times);
            if channels == 1 {
                one = goodput.as_bps() as f64;
            }
            let share = 100.0 * goodput.as_bps() as f64 / (channels as f64 * one);
            println!("{:>12}  {channels} channels  {goodput:>12}  {share:5.1} % of n x one", scheduling.to_string());
        }
    }
}
