//! An experiment: the machine, its schedulers, its load and the assumptions.

use serde::Deserialize;
use sim::hardware::fddi::{Arrivals, Background, RingConfig};
use sim::hardware::{ConfigError, Forwarding, MeshConfig, Topology};
use units::{Duration, Rate};

use super::paper::{Case, Machine};

/// Position of a gateway's station on its ring.
pub(super) const SENDER: usize = 0;

/// The scheduler between the application and the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Application {
    /// Data are given to the TCP of their own gateway.
    Fixed,
    /// Data that find this queue full are passed to the right.
    Adaptive,
}

/// The scheduler between the transport and the network units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Network {
    /// Packets are sent by their own network unit.
    Fixed,
    /// Packets are sent by the better of the network units in reach.
    Adaptive,
}

/// Interconnect of the gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interconnect {
    /// A closed linear array: data move to the right neighbour only.
    Array,
    /// All-to-all: every network unit is in reach.
    Crossbar,
}

/// Way in which the adaptive network scheduler rates a network unit with `q` waiting frames and a
/// last token rotation of `r`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Rule {
    /// Rates by `(q + 1) r`.
    Product,
    /// Rates by `q` times a packet's time on the ring, plus `r`.
    Sum,
    /// Decides by a threshold: a packet that finds this many frames at its own unit goes to the
    /// neighbour or, with a crossbar, to the shortest queue.
    OwnQueue(usize),
}

/// Generators that a full queue stops under the fixed application scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stops {
    /// All generators.
    All,
    /// Only its own.
    Own,
}

/// Treatment of a message whose generator is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// The rest of it is discarded.
    Discarded,
    /// It continues when the generator restarts.
    Continues,
}

/// Queue length of a network unit as seen by an adaptive network scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    /// Frames at the unit.
    AtUnit,
    /// Also packets in transit to it from other gateways.
    WithTransit,
}

/// Meaning of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Acknowledgements {
    /// All packets before a number have arrived, as in TCP: the oldest packet holds the window.
    Cumulative,
    /// One packet has arrived: its window slot is free.
    Each,
}

/// Parameters that the report does not give. All studies use these values; [`super::assumptions`]
/// evaluates alternatives.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Assumed {
    /// Load of each generator relative to the previous one.
    pub(super) share_ratio: f64,
    /// Mean length of a message; lengths are geometrically distributed.
    pub(super) message_bytes: f64,
    /// HIGH: queue length in bytes at which a queue is full.
    pub(super) high_bytes: u64,
    /// LOW: queue length in bytes below which generators restart.
    pub(super) low_bytes: u64,
    /// Background load of an overloaded ring, as a share of the ring.
    pub(super) overload: f64,
    /// Processor time per packet, for sending or receiving.
    pub(super) packet_work: Duration,
    /// Processor time per received acknowledgement.
    pub(super) ack_work: Duration,
    /// Meaning of acknowledgements.
    pub(super) acknowledgements: Acknowledgements,
    /// Packet size; a packet is also a segment and a frame.
    pub(super) packet_bytes: u64,
    /// Size of an acknowledgement with its headers.
    pub(super) ack_bytes: u64,
    /// Rate at which a generator's message arrives: that of a link into the gateway.
    pub(super) generator_rate: Rate,
    /// Rate of the links between gateways.
    pub(super) link_rate: Rate,
    /// Time per message at each link, in addition to its bytes.
    pub(super) link_hop: Duration,
    /// Target token rotation time in excess of the ring latency: the total holding time of all
    /// stations.
    pub(super) holding: Duration,
    /// Position of the peer's station, in stations after the sender's; the background's is half way
    /// back.
    pub(super) peer_station: usize,
    /// Size of a background frame in bytes.
    pub(super) background_frame_bytes: u64,
    /// Rule of adaptive network schedulers.
    pub(super) rule: Rule,
    /// Queue length used by the rule.
    pub(super) counted: Counted,
    /// Generators that a full queue stops under the fixed application scheduler.
    pub(super) stops: Stops,
    /// Treatment of a message whose generator is stopped.
    pub(super) rest: Rest,
    /// Delay of a stop or start signal to the generators.
    pub(super) signal: Duration,
    /// Bit error rate of packets on a ring.
    pub(super) error_rate: f64,
}

impl Default for Assumed {
    fn default() -> Self {
        let delta = Machine::load().delta;
        let delta_link = Rate::from_bps(delta.link_mbytes_per_s * 8_000_000);
        Self {
            share_ratio: 0.75,
            message_bytes: 30_000.0,
            high_bytes: 34_000,
            low_bytes: 16_000,
            overload: 1.2,
            packet_work: Duration::from_micros(5),
            ack_work: Duration::from_micros(5),
            acknowledgements: Acknowledgements::Cumulative,
            packet_bytes: 2_000,
            ack_bytes: 40,
            generator_rate: delta_link,
            link_rate: delta_link,
            link_hop: Duration::from_nanos(delta.hop_ns),
            // 0.78 ms on a ring of 20 stations and 20 km.
            holding: Duration::from_nanos(666_300),
            peer_station: 10,
            background_frame_bytes: 4_500,
            rule: Rule::OwnQueue(3),
            counted: Counted::AtUnit,
            stops: Stops::All,
            rest: Rest::Discarded,
            signal: Duration::ZERO,
            error_rate: 0.0,
        }
    }
}

/// An experiment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Setup {
    /// Number of gateways, each with a ring.
    pub(super) gateways: usize,
    /// Interconnect of the gateways.
    pub(super) interconnect: Interconnect,
    /// Stations of a ring.
    pub(super) stations: usize,
    /// Rate of a ring.
    pub(super) ring_rate: Rate,
    /// Circumference of a ring.
    pub(super) network_km: u64,
    /// Background load of the rings.
    pub(super) case: Case,
    /// Background load of a ring that is not overloaded, if there is background, as a share of the
    /// ring.
    pub(super) uniform: f64,
    /// Total load of all running generators, in Mb/s.
    pub(super) offered_mbps: f64,
    /// Window of a connection in bytes.
    pub(super) window_bytes: u64,
    pub(super) application: Application,
    pub(super) network: Network,
    pub(super) assumed: Assumed,
}

impl Setup {
    /// Returns the report's machine at this share of its capacity, with fixed schedulers.
    pub(super) fn new(offered_percent_of_capacity: f64, case: Case) -> Self {
        let machine = Machine::load();
        assert!(machine.array_wraps, "the model has a closed array");
        Self {
            gateways: machine.gateways,
            interconnect: Interconnect::Array,
            stations: machine.ring.nodes,
            ring_rate: Rate::from_mbps(machine.ring.speed_mbps),
            network_km: machine.network_km,
            case,
            uniform: machine.background_percent / 100.0,
            offered_mbps: machine.capacity_mbps() * offered_percent_of_capacity / 100.0,
            window_bytes: machine.window_bytes,
            application: Application::Fixed,
            network: Network::Fixed,
            assumed: Assumed::default(),
        }
    }

    /// Returns the same setup with these schedulers.
    #[must_use]
    pub(super) fn with(mut self, application: Application, network: Network) -> Self {
        (self.application, self.network) = (application, network);
        self
    }

    /// Checks the configuration, apart from the checks of its rings and links.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let assumed = &self.assumed;
        ConfigError::require(self.gateways > 0, "gateways", || "must not be zero".to_owned())?;
        ConfigError::require((1..self.stations).contains(&assumed.peer_station), "peer_station", || {
            format!("{} is not one of the stations 1 to {} before the last", assumed.peer_station, self.stations)
        })?;
        ConfigError::require(self.receiver() != self.background_station(), "peer_station", || {
            format!("{} is also the background's station", self.receiver())
        })?;
        ConfigError::require(assumed.packet_bytes > 0, "packet_bytes", || "must not be zero".to_owned())?;
        ConfigError::require(self.window_packets() > 0, "window_bytes", || {
            format!("a window of {} bytes is smaller than a packet of {}", self.window_bytes, assumed.packet_bytes)
        })?;
        ConfigError::require(assumed.low_bytes <= assumed.high_bytes, "low_bytes", || {
            format!(
                "{} is above high_bytes, {}: stopped generators would restart at once",
                assumed.low_bytes, assumed.high_bytes
            )
        })?;
        ConfigError::require(self.offered_mbps.is_finite() && self.offered_mbps > 0.0, "offered_mbps", || {
            format!("{} is not a valid load", self.offered_mbps)
        })?;
        ConfigError::require(assumed.share_ratio.is_finite() && assumed.share_ratio > 0.0, "share_ratio", || {
            format!("{} is not a valid ratio", assumed.share_ratio)
        })?;
        ConfigError::require(assumed.message_bytes >= assumed.packet_bytes as f64, "message_bytes", || {
            format!("{} is less than a packet, {}", assumed.message_bytes, assumed.packet_bytes)
        })?;
        ConfigError::require(!assumed.generator_rate.is_zero(), "generator_rate", || "must not be zero".to_owned())?;
        ConfigError::require((0.0..1.0).contains(&assumed.error_rate), "error_rate", || {
            format!("{} is not a probability", assumed.error_rate)
        })
    }

    /// Returns the station of the background: half way back from the peer.
    const fn background_station(&self) -> usize {
        usize::midpoint(self.receiver(), self.stations)
    }

    /// Returns the background load of ring `index`. The first rings are the overloaded ones: their
    /// generators offer most.
    fn background(&self, index: usize) -> f64 {
        let (elsewhere, overloaded) = match self.case {
            Case::Quiet => (0.0, 0),
            Case::Uniform => (self.uniform, 0),
            Case::OneOverloaded => (self.uniform, 1),
            Case::TwoOverloaded => (self.uniform, 2),
        };
        if index < overloaded { self.assumed.overload } else { elsewhere }
    }

    /// Returns the station of the peer.
    pub(super) const fn receiver(&self) -> usize {
        self.assumed.peer_station
    }

    /// Returns the window in packets.
    pub(super) const fn window_packets(&self) -> u64 {
        self.window_bytes / self.assumed.packet_bytes
    }

    /// Returns the queue length in segments at which a queue is full.
    pub(super) fn high(&self) -> usize {
        (self.assumed.high_bytes / self.assumed.packet_bytes).max(1) as usize
    }

    /// Returns the queue length in segments below which generators restart; an empty queue is
    /// always below.
    pub(super) fn low(&self) -> usize {
        (self.assumed.low_bytes / self.assumed.packet_bytes).max(1) as usize
    }

    /// Returns the mean message length in segments.
    pub(super) fn message_segments(&self) -> f64 {
        self.assumed.message_bytes / self.assumed.packet_bytes as f64
    }

    /// Returns the load of each generator as a share of the total.
    pub(super) fn shares(&self) -> Vec<f64> {
        let weights: Vec<f64> = (0..self.gateways).map(|index| self.assumed.share_ratio.powi(index as i32)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    /// Returns the ring of gateway `index`.
    pub(super) fn ring(&self, index: usize) -> RingConfig {
        let background = Background {
            station: self.background_station(),
            share: self.background(index),
            frame_bytes: self.assumed.background_frame_bytes,
            arrivals: Arrivals::Exponential,
            batch: 1,
            queue_frames: BACKGROUND_FRAMES_MAX,
        };
        let even = RingConfig::even(self.stations, self.network_km * 1000);
        RingConfig {
            rate: self.ring_rate,
            ttrt: even.latency() + self.assumed.holding,
            // All windows may be at one network unit.
            queue_frames: (self.window_packets().max(1) as usize) * self.gateways,
            background: Some(background),
            ..even
        }
    }

    /// Returns the interconnect of the gateways.
    pub(super) const fn mesh(&self) -> MeshConfig {
        let topology = match self.interconnect {
            Interconnect::Array => Topology::LinearArray { processors: self.gateways, wraps: true },
            Interconnect::Crossbar => Topology::Crossbar { processors: self.gateways },
        };
        MeshConfig {
            topology,
            forwarding: Forwarding::StoreAndForward,
            rate: self.assumed.link_rate,
            startup: Duration::ZERO,
            hop: self.assumed.link_hop,
        }
    }
}

/// Queue limit of the background on a ring. It is only reached with an offered load above the
/// ring's capacity.
const BACKGROUND_FRAMES_MAX: u64 = 10_000;
