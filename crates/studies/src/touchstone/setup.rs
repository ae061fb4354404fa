//! An experiment: the machine, its schedulers, its load, and what had to be assumed.

use serde::Deserialize;
use sim::hardware::fddi::{Arrivals, Background, RingConfig};
use sim::hardware::{ConfigError, Forwarding, MeshConfig, Topology};
use units::{Duration, Rate};

use super::paper::{Case, Machine};

/// Where a gateway's station is on its ring.
pub(super) const SENDER: usize = 0;

/// The scheduler between the application and the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Application {
    /// Data go to the own gateway's TCP.
    Fixed,
    /// What finds that queue full goes on to the right.
    Adaptive,
}

/// The scheduler between the transport and the network units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Network {
    /// Packets go to the own network unit.
    Fixed,
    /// Packets go to the better of the network units in reach.
    Adaptive,
}

/// What joins the gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Joined {
    /// A line that closes: data go to the right neighbour, and no farther in a step.
    Array,
    /// Each with each: every network unit is in reach.
    Crossbar,
}

/// How the adaptive network scheduler judges a network unit of which `q` frames wait and whose token last took `r` to come again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Judgement {
    /// By `(q + 1) r`.
    Product,
    /// By `q` times a packet's time on the ring, plus `r`.
    Sum,
    /// Not at all: a packet that finds so many frames at the own unit goes to the neighbour. With a crossbar, to the shortest queue.
    OwnQueue(usize),
}

/// Whom a full queue stops under the fixed application scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stops {
    /// All generators.
    All,
    /// Its own.
    Own,
}

/// What becomes of a message whose generator is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// What is left of it is given up.
    GivenUp,
    /// It goes on when generators start again.
    GoesOn,
}

/// What an adaptive network scheduler counts as a network unit's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    /// Frames that are there.
    There,
    /// Packets on their way to it from other gateways as well.
    Coming,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Acknowledgements {
    /// That all packets before one have come, as TCP's do: the oldest packet keeps the window.
    Cumulative,
    /// That one packet has come: its place in the window is free.
    Each,
}

/// What the document does not say. The values are those of all studies, but for [`super::assumptions`], which asks what others do.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Assumed {
    /// Each generator offers this much of what the one before offers.
    pub(super) share_ratio: f64,
    /// Mean length of a message; lengths are geometric.
    pub(super) message_bytes: f64,
    /// Bytes of a queue at which it takes no more.
    pub(super) high_bytes: u64,
    /// Bytes of a queue below which generators start again.
    pub(super) low_bytes: u64,
    /// What an overloaded ring's background asks for, as a share of the ring.
    pub(super) overload: f64,
    /// A processor's work for a packet, to send it or to take it.
    pub(super) packet_work: Duration,
    /// A processor's work for an acknowledgement that has come.
    pub(super) ack_work: Duration,
    /// What acknowledgements say.
    pub(super) acknowledgements: Acknowledgements,
    /// A packet, which is a segment and a frame as well.
    pub(super) packet_bytes: u64,
    /// An acknowledgement with its headers.
    pub(super) ack_bytes: u64,
    /// How fast a generator's message comes: what a link into the gateway carries.
    pub(super) generator_rate: Rate,
    /// What links between gateways carry.
    pub(super) link_rate: Rate,
    /// What a message takes at each link above its bytes.
    pub(super) link_hop: Duration,
    /// A ring's target token rotation time above what the token takes for the way round: what all stations may hold it together.
    pub(super) holding: Duration,
    /// Where the peer's station is, in stations behind the sender's; the background's is half way back.
    pub(super) peer_station: usize,
    /// Bytes of a background frame.
    pub(super) background_frame_bytes: u64,
    /// How adaptive network schedulers judge.
    pub(super) judgement: Judgement,
    /// What they count as a queue.
    pub(super) counted: Counted,
    /// Whom a full queue stops under the fixed application scheduler.
    pub(super) stops: Stops,
    /// What becomes of a message whose generator is stopped.
    pub(super) rest: Rest,
    /// What a stop or start signal takes to reach the generators.
    pub(super) signal: Duration,
    /// Of each bit of a packet on a ring.
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
            judgement: Judgement::OwnQueue(3),
            counted: Counted::There,
            stops: Stops::All,
            rest: Rest::GivenUp,
            signal: Duration::ZERO,
            error_rate: 0.0,
        }
    }
}

/// An experiment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Setup {
    /// Gateways, each with a ring.
    pub(super) gateways: usize,
    /// What joins them.
    pub(super) joined: Joined,
    /// Stations of a ring.
    pub(super) stations: usize,
    /// What a ring carries.
    pub(super) ring_rate: Rate,
    /// The way round a ring.
    pub(super) network_km: u64,
    /// What the rings carry beside this.
    pub(super) case: Case,
    /// What the background of a ring asks for that is not overloaded, if there is background, as a share of the ring.
    pub(super) uniform: f64,
    /// What all generators offer while they run, in Mb/s.
    pub(super) offered_mbps: f64,
    /// Bytes of a connection that may be under way.
    pub(super) window_bytes: u64,
    pub(super) application: Application,
    pub(super) network: Network,
    pub(super) assumed: Assumed,
}

impl Setup {
    /// The document's machine under so much of its capacity, with fixed schedulers.
    pub(super) fn new(offered_percent_of_capacity: f64, case: Case) -> Self {
        let machine = Machine::load();
        assert!(machine.array_wraps, "a line that closes is what the model has");
        Self {
            gateways: machine.gateways,
            joined: Joined::Array,
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

    /// The same with these schedulers.
    #[must_use]
    pub(super) fn with(mut self, application: Application, network: Network) -> Self {
        (self.application, self.network) = (application, network);
        self
    }

    /// Whether such a machine can be, as far as its rings and links do not say so themselves.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let assumed = &self.assumed;
        ConfigError::require(self.gateways > 0, "gateways", || "there is no way out".to_owned())?;
        ConfigError::require((1..self.stations).contains(&assumed.peer_station), "peer_station", || {
            format!("{} is not one of the stations 1 to {} before the last", assumed.peer_station, self.stations)
        })?;
        ConfigError::require(self.receiver() != self.background_station(), "peer_station", || {
            format!("{} is the background's station as well", self.receiver())
        })?;
        ConfigError::require(assumed.packet_bytes > 0, "packet_bytes", || {
            "packets of nothing carry nothing".to_owned()
        })?;
        ConfigError::require(self.window_packets() > 0, "window_bytes", || {
            format!("a window of {} bytes holds no packet of {}", self.window_bytes, assumed.packet_bytes)
        })?;
        ConfigError::require(assumed.low_bytes <= assumed.high_bytes, "low_bytes", || {
            format!(
                "{} is above high_bytes, {}: who is stopped would start at once",
                assumed.low_bytes, assumed.high_bytes
            )
        })?;
        ConfigError::require(self.offered_mbps.is_finite() && self.offered_mbps > 0.0, "offered_mbps", || {
            format!("{} is no load", self.offered_mbps)
        })?;
        ConfigError::require(assumed.share_ratio.is_finite() && assumed.share_ratio > 0.0, "share_ratio", || {
            format!("{} is no proportion", assumed.share_ratio)
        })?;
        ConfigError::require(assumed.message_bytes >= assumed.packet_bytes as f64, "message_bytes", || {
            format!("{} is less than a packet, {}", assumed.message_bytes, assumed.packet_bytes)
        })?;
        ConfigError::require(!assumed.generator_rate.is_zero(), "generator_rate", || {
            "no message would ever come".to_owned()
        })?;
        ConfigError::require((0.0..1.0).contains(&assumed.error_rate), "error_rate", || {
            format!("{} is no probability", assumed.error_rate)
        })
    }

    /// Where the background is: half way back from the peer.
    const fn background_station(&self) -> usize {
        usize::midpoint(self.receiver(), self.stations)
    }

    /// What the background of ring `index` asks for. The first rings are those that are overloaded: their generators offer most.
    fn background(&self, index: usize) -> f64 {
        let (elsewhere, overloaded) = match self.case {
            Case::Quiet => (0.0, 0),
            Case::Uniform => (self.uniform, 0),
            Case::OneOverloaded => (self.uniform, 1),
            Case::TwoOverloaded => (self.uniform, 2),
        };
        if index < overloaded { self.assumed.overload } else { elsewhere }
    }

    /// The peer's station.
    pub(super) const fn receiver(&self) -> usize {
        self.assumed.peer_station
    }

    /// Packets that a window holds.
    pub(super) const fn window_packets(&self) -> u64 {
        self.window_bytes / self.assumed.packet_bytes
    }

    /// Segments of a queue at which it takes no more.
    pub(super) fn high(&self) -> usize {
        (self.assumed.high_bytes / self.assumed.packet_bytes).max(1) as usize
    }

    /// Segments of a queue below which generators start again; an empty queue is below any mark.
    pub(super) fn low(&self) -> usize {
        (self.assumed.low_bytes / self.assumed.packet_bytes).max(1) as usize
    }

    /// Mean segments of a message.
    pub(super) fn message_segments(&self) -> f64 {
        self.assumed.message_bytes / self.assumed.packet_bytes as f64
    }

    /// What each generator offers, as a share of all.
    pub(super) fn shares(&self) -> Vec<f64> {
        let weights: Vec<f64> = (0..self.gateways).map(|index| self.assumed.share_ratio.powi(index as i32)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    /// The ring of gateway `index`.
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

    /// What joins the gateways.
    pub(super) const fn mesh(&self) -> MeshConfig {
        let topology = match self.joined {
            Joined::Array => Topology::LinearArray { processors: self.gateways, wraps: true },
            Joined::Crossbar => Topology::Crossbar { processors: self.gateways },
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

/// Background frames that wait at a ring at most: no ring that is not asked for more than it has comes near it.
const BACKGROUND_FRAMES_MAX: u64 = 10_000;
