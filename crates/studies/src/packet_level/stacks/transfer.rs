//! A transfer over one connection between a host with many processors and a peer that costs no
//! time, like the paper's driver in memory.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use layers::{RecordKey, SharedSecret, Stack};
use netem::LinkConfig;
use sim::{Sim, Simulation};
use tcp::TcpConfig;
use tcp_hosts::{Costs, Host, HostConfig, Layers, Limits, Processors, connect};
use units::{Duration, Instant};

use crate::conserved::check_accounting;

/// IP and TCP headers without options.
const HEADERS_BYTES: usize = 40;

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 5000);

/// The name of the measured host.
const MEASURED: &str = "host";

/// Packets that an application writes in one call.
const PACKETS_PER_WRITE: usize = 4;

/// Time limit that no run reaches.
const END: Duration = Duration::from_secs(100_000);

/// Role of the measured host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Sends,
    Receives,
}

/// An experiment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Transfer {
    pub(super) stack: Stack,
    pub(super) side: Side,
    /// Number of processors of the measured host.
    pub(super) processors: usize,
    pub(super) costs: Costs,
    /// Application bytes in a packet.
    pub(super) packet_bytes: usize,
    /// Size of the send buffer and of the receive buffer in packets.
    pub(super) window: usize,
    /// Number of packets until the queues are in steady state, and number measured after them.
    pub(super) warm_up: usize,
    pub(super) measured: usize,
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Found {
    pub(super) mbps: f64,
    /// Share of the time in which the first processor was busy, and the mean of the others; zero if
    /// there are none.
    pub(super) first_busy: f64,
    pub(super) others_busy: f64,
    /// Bytes that were resent.
    pub(super) sent_again: u64,
}

impl Transfer {
    /// Returns the number of data bytes in a segment: a packet, or the record of one.
    fn segment(&self) -> usize {
        self.stack.cipher.map_or(self.packet_bytes, |layer| RecordKey::sealed_len(layer, self.packet_bytes))
    }

    /// Returns the classic profile, with a window that is larger than the 64 KiB of its time.
    fn tcp(&self, below_bytes: usize) -> TcpConfig {
        let buffer = self.window * self.segment();
        TcpConfig {
            mtu: self.segment() + HEADERS_BYTES + below_bytes,
            send_buffer: buffer,
            receive_buffer: buffer,
            window_scaling: true,
            ..TcpConfig::classic()
        }
    }

    fn host(&self, sim: &Sim, name: &str, last: u8) -> Host {
        let layers = Layers::new(self.stack, SharedSecret::new([0; 32])).with_record_len(self.packet_bytes);
        let tcp = self.tcp(layers.below_len());
        let measured = (self.costs, Processors::Packet(self.processors));
        let (costs, processors) = if name == MEASURED { measured } else { (Costs::default(), Processors::Packet(1)) };
        let waiting = self.window * self.packet_bytes;
        let config = HostConfig {
            listening: Some(SERVER.port()),
            layers: Some(layers),
            costs,
            processors,
            limits: Limits { outbox_bytes_max: waiting, inbox_bytes_max: waiting },
            ..HostConfig::new(Ipv4Addr::new(10, 0, 0, last).into(), tcp)
        };
        Host::new(sim, name, config)
    }

    /// Performs the transfer.
    pub(super) fn run(&self, seed: u64, number: u64) -> Found {
        let mut simulation = Simulation::new(seed, number);
        let sim = simulation.sim();
        let (sender, receiver) = match self.side {
            Side::Sends => (MEASURED, "peer"),
            Side::Receives => ("peer", MEASURED),
        };
        let (sender, receiver) = (self.host(&sim, sender, 1), self.host(&sim, receiver, 2));
        // Memory without a limit.
        let memory = LinkConfig { queue_bytes: u64::MAX, ..LinkConfig::default() };
        connect(&sim, "memory", [&sender, &receiver], &memory, |len| len).expect("the line is valid");
        let (writing, chunk) = (sender.clone(), Bytes::from(vec![0; self.packet_bytes * PACKETS_PER_WRITE]));
        simulation.spawn(async move {
            let stream = writing.connect(SERVER).await.expect("the peer listens");
            loop {
                stream.write(chunk.clone()).await.expect("nothing is lost");
            }
        });
        let read = Rc::new(Cell::new(0));
        // The run is interrupted after this many bytes were read.
        let limit = Rc::new(Cell::new(self.warm_up * self.packet_bytes));
        let (reading, of_reader, counted, until) = (receiver, sim.clone(), Rc::clone(&read), Rc::clone(&limit));
        simulation.spawn(async move {
            let stream = reading.accept().await;
            while let Some(bytes) = stream.read(usize::MAX).await.expect("nothing is lost") {
                counted.set(counted.get() + bytes.len());
                if counted.get() >= until.get() {
                    until.set(usize::MAX);
                    of_reader.stop();
                }
            }
        });
        simulation.run_until(Instant::ZERO + END);
        simulation.reset_statistics();
        let (begun, before) = (sim.now(), read.get());
        limit.set(before + self.measured * self.packet_bytes);
        simulation.run_until(Instant::ZERO + END);
        check_accounting(&simulation);
        let seconds = sim.now().saturating_since(begun).as_secs_f64();
        let reports = simulation.reports();
        let busy = |number: usize| {
            let name = format!("{MEASURED}, processor {number}");
            reports.iter().find(|report| report.name == name).expect("it is a processor of the host").utilisation
        };
        let others = (1..self.processors).map(busy).sum::<f64>();
        let mut sent_again = 0;
        sender.look_at_connections(|connection| sent_again += connection.stats().send.bytes_resent);
        Found {
            mbps: (read.get() - before) as f64 * 8.0 / 1e6 / seconds,
            first_busy: busy(0),
            others_busy: others / self.processors.saturating_sub(1).max(1) as f64,
            sent_again,
        }
    }
}
