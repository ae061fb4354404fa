//! The experiment: a client sends packets of one length, one after the other, and the server answers
//! each. Both run the real TCP/IP stack with the classic profile.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use netem::LinkConfig;
use sim::{Sim, Simulation};
use tcp::{AckPolicy, Nagle, TcpConfig};
use tcp_hosts::{Costs, Host, HostConfig, SegmentCost, Stream, connect};
use units::{Duration, Rate};

use super::paper::{Action, Setup};
use crate::conserved::check_accounting;
use crate::study::Effort;

/// The headers of an IPv4 packet with TCP without options.
const HEADERS_BYTES: usize = 40;

/// LLC and SNAP headers, and the trailer of AAL5 (RFC 1483).
const AAL5_BYTES: usize = 16;

/// Size of a cell, and of its payload.
const CELL_BYTES: usize = 53;
const CELL_PAYLOAD_BYTES: usize = 48;

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 5000);

/// Rules said to cause the slow pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// Nagle's algorithm, as in RFC 896.
    pub(super) nagle: bool,
    /// Delayed acknowledgements.
    pub(super) delayed: bool,
}

impl Rules {
    pub(super) const BOTH: Self = Self { nagle: true, delayed: true };
}

/// Buffers that become a multiple of the segment size when the connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rounded {
    None,
    Receive,
    Both,
}

/// Parameters that the report does not give, and the length of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Assumed {
    pub(super) rounded: Rounded,
    pub(super) timestamps: bool,
    /// Processor time of a segment, at either end, in microseconds.
    pub(super) segment_us: u64,
    /// Processor time of a call, in microseconds.
    pub(super) call_us: u64,
    /// Sender's time for a byte as a share of the receiver's.
    pub(super) sender_share: f64,
    /// Length of the answer to a packet of action `r`.
    pub(super) answer_bytes: usize,
    /// Time on the link in addition to the transmission, in microseconds.
    pub(super) link_us: u64,
    /// Number of packets in a run.
    pub(super) packets: u32,
}

impl Assumed {
    /// Returns the values for this effort. A quick run sends fewer packets, so the atypical first
    /// packet has more weight.
    pub(super) fn of(effort: Effort) -> Self {
        match effort {
            Effort::Quick => Self { packets: 20, ..Self::default() },
            Effort::Full => Self::default(),
        }
    }
}

impl Default for Assumed {
    fn default() -> Self {
        Self {
            rounded: Rounded::Receive,
            timestamps: true,
            segment_us: 10,
            call_us: 5,
            sender_share: 0.5,
            answer_bytes: 4,
            link_us: 10,
            packets: Setup::load().packets_per_pair,
        }
    }
}

/// One cell of the grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) action: Action,
    pub(super) buffer_bytes: usize,
    pub(super) packet_bytes: usize,
    pub(super) rules: Rules,
    pub(super) assumed: Assumed,
    /// Processor time of a received byte, in picoseconds: the fitted cost.
    pub(super) byte_ps: u64,
}

/// Returns the length of a packet on the line: whole cells.
fn cells(len: usize) -> usize {
    (len + AAL5_BYTES).div_ceil(CELL_PAYLOAD_BYTES) * CELL_BYTES
}

impl Exchange {
    /// Returns the rate in Mb/s. For a request and its response of the same length both directions
    /// count.
    pub(super) fn rate_mbps(&self) -> f64 {
        let setup = Setup::load();
        let directions = if self.action == Action::Rw { 2 } else { 1 };
        let bits = f64::from(self.assumed.packets) * (self.packet_bytes * 8 * directions) as f64;
        bits / 1e6 / self.run(&setup).as_secs_f64()
    }

    const fn answer_bytes(&self) -> usize {
        match self.action {
            Action::Rw => self.packet_bytes,
            Action::R => self.assumed.answer_bytes,
        }
    }

    fn tcp(&self, setup: &Setup) -> TcpConfig {
        let classic = TcpConfig::classic();
        let segment = setup.mtu_bytes - HEADERS_BYTES;
        // A buffer smaller than a segment is not rounded.
        let round = |bytes: usize| if bytes < segment { bytes } else { bytes.next_multiple_of(segment) };
        let (rounds_send, rounds_receive) = match self.assumed.rounded {
            Rounded::None => (false, false),
            Rounded::Receive => (false, true),
            Rounded::Both => (true, true),
        };
        let size = |is_rounded: bool| if is_rounded { round(self.buffer_bytes) } else { self.buffer_bytes };
        let period = if self.rules.delayed { Duration::from_millis(setup.ack_period_ms) } else { Duration::ZERO };
        TcpConfig {
            mtu: setup.mtu_bytes,
            timestamps: self.assumed.timestamps,
            send_buffer: size(rounds_send),
            receive_buffer: size(rounds_receive),
            nagle: if self.rules.nagle { classic.nagle } else { Nagle::Off },
            acks: AckPolicy { delay_max: period, ..classic.acks },
            ..classic
        }
    }

    fn costs(&self) -> Costs {
        let Assumed { segment_us, call_us, sender_share, .. } = self.assumed;
        let (segment, call) = (Duration::from_micros(segment_us), Duration::from_micros(call_us));
        let received = SegmentCost { segment, byte_ps: self.byte_ps };
        let sent = SegmentCost { segment, byte_ps: (self.byte_ps as f64 * sender_share).round() as u64 };
        Costs { sent, received, call, ..Costs::default() }
    }

    /// Returns the line: cells at the rate of the link, or of the card if that is slower.
    fn line(&self, setup: &Setup) -> LinkConfig {
        let card_bps = setup.card_mbytes_per_second * 8e6 * CELL_BYTES as f64 / CELL_PAYLOAD_BYTES as f64;
        let bps = card_bps.min(setup.link_gbps * 1e9);
        LinkConfig {
            rate: Some(Rate::from_bps(bps as u64)),
            delay: Duration::from_micros(self.assumed.link_us),
            // More than any window, so that nothing is lost.
            queue_bytes: 1 << 20,
            ..LinkConfig::default()
        }
    }

    fn hosts(&self, sim: &Sim, setup: &Setup) -> [Host; 2] {
        let host = |name: &str, last: u8, listening: Option<u16>| {
            let address = Ipv4Addr::new(10, 0, 0, last).into();
            let (tcp, costs) = (self.tcp(setup), self.costs());
            // Kernels of that time take interrupts before all other work, which is the default.
            Host::new(sim, name, HostConfig { listening, costs, ..HostConfig::new(address, tcp) })
        };
        let hosts = [host("client", 1, None), host("server", 2, Some(SERVER.port()))];
        connect(sim, "atm", [&hosts[0], &hosts[1]], &self.line(setup), cells).expect("the line is valid");
        hosts
    }

    /// Returns the time of all packets.
    fn run(&self, setup: &Setup) -> Duration {
        let mut simulation = Simulation::new(0, 0);
        let sim = simulation.sim();
        let [client, server] = self.hosts(&sim, setup);
        let (packet, answer, packets) = (self.packet_bytes, self.answer_bytes(), self.assumed.packets);
        simulation.spawn(async move {
            let stream = server.accept().await;
            while stream.read_exact(packet).await.expect("nothing is lost") {
                stream.write(Bytes::from(vec![0; answer])).await.expect("nothing is lost");
            }
        });
        let took = Rc::new(Cell::new(None));
        let (of_client, result) = (sim, Rc::clone(&took));
        simulation.spawn(async move {
            let stream = client.connect(SERVER).await.expect("the server listens");
            let start = of_client.now();
            for _ in 0..packets {
                request(&stream, packet, answer).await;
            }
            result.set(Some(of_client.now().saturating_since(start)));
            of_client.stop();
        });
        simulation.run();
        check_accounting(&simulation);
        took.get().expect("every packet is answered")
    }
}

/// Sends a packet and waits for the answer.
async fn request(stream: &Stream, packet: usize, answer: usize) {
    stream.write(Bytes::from(vec![0; packet])).await.expect("nothing is lost");
    assert!(stream.read_exact(answer).await.expect("nothing is lost"), "the server answers");
}
