//! One stream over several TCP connections with a stack each.

use std::net::IpAddr;

use bytes::Bytes;
use litz::Placement;
use litz::tcp::replicated::{ReplicatedError, ReplicatedReceiver, ReplicatedSender, Scheduling};
use litz::tcp::{IpDevice, Listen, MemoryTun, TcpConfig, TcpStack, TcpStackConfig, TcpStream};
use netem::LinkConfig;
use units::{Duration, Rate, Ratio};

use crate::listening::Listening;
use crate::shaped_line::ShapedLine;
use crate::world::pattern;

const PORT: u16 = 80;
const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(10, 8, 0, 1)), IpAddr::V4(std::net::Ipv4Addr::new(10, 8, 0, 2))];

const SCHEDULINGS: [Scheduling; 3] = [Scheduling::FirstCome, Scheduling::RoundRobin, Scheduling::Adaptive];

fn line(mbps: u64) -> LinkConfig {
    let (rate, delay) = (Rate::from_mbps(mbps), Duration::from_millis(2));
    LinkConfig { rate: Some(rate), delay, queue_bytes: 1 << 20, loss: Ratio::new(1, 200), ..LinkConfig::default() }
}

/// The stacks of both sides, one for each channel, and a connection between the two of a channel.
struct Channels {
    lines: Vec<ShapedLine>,
    _stacks: Vec<Listening>,
    ours: Vec<TcpStream>,
    theirs: Vec<TcpStream>,
}

fn stack(tun: MemoryTun, ip: IpAddr) -> Listening {
    // A silent channel dies after some seconds.
    let tcp = TcpConfig { timeouts_max: 3, ..TcpConfig::default() };
    let config = TcpStackConfig::new(IpDevice::memory(tun, ip), &[ip]).with_tcp(tcp);
    Listening::start_with(config, PORT, Listen::default())
}

impl Channels {
    fn new(rates: &[u64]) -> Self {
        let mut channels = Self { lines: Vec::new(), _stacks: Vec::new(), ours: Vec::new(), theirs: Vec::new() };
        for (seed, mbps) in rates.iter().enumerate() {
            let (line, [one, other]) = ShapedLine::start(&line(*mbps), seed as u64);
            let stacks = [stack(one, ADDRESSES[0]), stack(other, ADDRESSES[1])];
            channels.ours.push(stacks[0].connect((ADDRESSES[1], PORT).into()).expect("connected"));
            channels.theirs.push(stacks[1].accept().expect("a peer"));
            channels._stacks.extend(stacks);
            channels.lines.push(line);
        }
        // In any order.
        channels.theirs.reverse();
        channels
    }

    fn take(&mut self) -> (Vec<TcpStream>, Vec<TcpStream>) {
        (std::mem::take(&mut self.ours), std::mem::take(&mut self.theirs))
    }
}

/// Reads to the end. `at` is called with the number of bytes so far.
fn read_all(receiver: &mut ReplicatedReceiver, mut at: impl FnMut(usize)) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = receiver.read().expect("a channel lives") {
        all.extend_from_slice(&bytes);
        at(all.len());
    }
    all
}

#[test]
fn a_stream_is_whole_and_in_order_over_channels_of_any_rate() {
    for scheduling in SCHEDULINGS {
        let mut channels = Channels::new(&[100, 20, 60]);
        let (ours, theirs) = channels.take();
        let bytes = Bytes::from(pattern(4 << 20, 3));
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut receiver = ReplicatedReceiver::begin(theirs).expect("one stream");
                let all = read_all(&mut receiver, |_| ());
                assert_eq!(receiver.read(), Ok(None), "the end stays");
                all
            });
            let mut sender = ReplicatedSender::begin(ours, scheduling).expect("channels");
            // Writes of any size.
            let (mut rest, mut len) = (bytes.clone(), 1);
            while !rest.is_empty() {
                sender.write(rest.split_to(len.min(rest.len()))).expect("a channel lives");
                len = (len * 3 + 1) % 300_000;
            }
            assert_eq!(sender.living_channels(), 3);
            sender.finish().expect("the peer takes everything");
            assert!(receiving.join().expect("received") == bytes, "{scheduling}");
        });
    }
}

#[test]
fn a_channel_that_dies_costs_its_share_and_no_byte() {
    for scheduling in SCHEDULINGS {
        let mut channels = Channels::new(&[60, 60, 60]);
        let (ours, theirs) = channels.take();
        let bytes = Bytes::from(pattern(8 << 20, 4));
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut receiver = ReplicatedReceiver::begin(theirs).expect("one stream");
                // The line of one channel is cut, in the middle of the stream.
                read_all(&mut receiver, |len| {
                    if len > 2 << 20 {
                        channels.lines[1].cut();
                    }
                })
            });
            let mut sender = ReplicatedSender::begin(ours, scheduling).expect("channels");
            sender.write(bytes.clone()).expect("a channel lives");
            sender.finish().expect("the peer takes everything");
            assert_eq!(sender.living_channels(), 2, "{scheduling}: the channel of the line that was cut has died");
            assert!(receiving.join().expect("received") == bytes, "{scheduling}");
        });
    }
}

#[test]
fn without_channels_the_stream_has_an_error() {
    let mut channels = Channels::new(&[100, 100]);
    let (mut ours, theirs) = channels.take();
    assert_eq!(ReplicatedSender::begin(Vec::new(), Scheduling::FirstCome).err(), Some(ReplicatedError::Channels(0)));
    let [one, other] = MemoryTun::pair();
    let client = TcpStackConfig::new(IpDevice::memory(one, ADDRESSES[0]), &ADDRESSES[..1]);
    let client = TcpStack::start(client.with_placement(Placement::Inline)).expect("a stack");
    let _server = stack(other, ADDRESSES[1]);
    let stream = client.connect((ADDRESSES[1], PORT).into()).expect("connected");
    assert_eq!(ReplicatedSender::begin(vec![stream], Scheduling::FirstCome).err(), Some(ReplicatedError::NeedsThread));
    // Two streams of one channel each do not form one stream of two channels.
    let other = ReplicatedSender::begin(vec![ours.remove(1)], Scheduling::FirstCome).expect("a channel");
    let mut sender = ReplicatedSender::begin(ours, Scheduling::FirstCome).expect("a channel");
    for sender in [&mut sender, &mut { other }] {
        sender.write(Bytes::from_static(b"hello")).expect("it has a channel");
    }
    assert_eq!(ReplicatedReceiver::begin(theirs).err(), Some(ReplicatedError::Mixed));
    // The peer is gone.
    let mut result = Ok(());
    while result.is_ok() {
        result = sender.write(pattern(100_000, 1).into());
    }
    assert!(matches!(result, Err(ReplicatedError::Closed(_))), "{result:?}");
}
