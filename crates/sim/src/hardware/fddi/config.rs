//! The configuration of a ring.

use units::{Duration, Rate};

use crate::hardware::config_error::ConfigError;

/// Propagation delay of fibre in nanoseconds per kilometre, as in the FDDI standard (5.085 us).
pub const FIBRE_NS_PER_KM: u64 = 5_085;

/// Latency of a station, as in the FDDI standard (0.6 us).
pub const STATION_LATENCY: Duration = Duration::from_nanos(600);

/// Overhead of a frame: preamble 8 bytes, start 1, frame control 1, addresses 12, check sequence 4,
/// end and status 2.
pub const FRAME_OVERHEAD_BYTES: u64 = 28;

/// A token: preamble 8 bytes, start, frame control, end.
pub const TOKEN_BYTES: u64 = 11;

/// Maximum length of the information field here. The longest frame of the standard has 9000
/// symbols; the papers use up to 4500 bytes.
pub const INFORMATION_BYTES_MAX: u64 = 4_500;

/// The configuration of a ring. [`RingConfig::even`] follows the standard.
#[derive(Clone, Debug, PartialEq)]
pub struct RingConfig {
    /// Transmission rate. The standard: 100 Mb/s.
    pub rate: Rate,
    /// Circumference in metres.
    pub length_m: u64,
    /// Positions of the stations: metres from an origin, in the order in which the token passes
    /// them.
    pub positions_m: Vec<u64>,
    /// Latency that each station adds.
    pub station_latency: Duration,
    /// Target token rotation time (`T_Opr`). A short one reduces the capacity, a long one increases
    /// the delay. Default: 8 ms.
    pub ttrt: Duration,
    /// Overhead per frame in bytes.
    pub overhead_bytes: u64,
    /// Maximum frame length, without overhead.
    pub frame_bytes_max: u64,
    /// Queue limit per station and class, including the frame in transmission.
    pub queue_frames: usize,
    /// Stations with a synchronous allowance, and its duration. Default: none.
    pub synchronous: Vec<(usize, Duration)>,
    /// Background load. Default: none.
    pub background: Option<Background>,
}

/// The background load of a ring, modelled as one station whose asynchronous frames have no
/// receiver in the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Background {
    /// Its station, which sends nothing else.
    pub station: usize,
    /// Offered load as a share of the ring's time, including overhead. Above 1, the queue stays
    /// full.
    pub share: f64,
    /// Frame length in bytes, without overhead.
    pub frame_bytes: u64,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Frames per arrival.
    pub batch: u64,
    /// Queue limit. Further frames are dropped and counted.
    pub queue_frames: u64,
}

/// Distribution of interarrival times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential: a Poisson process.
    Exponential,
    /// Constant, with a random phase.
    Regular,
}

impl RingConfig {
    /// Returns a ring of `stations` stations, evenly spaced on `length_m` metres, with the values
    /// of the standard, queues of 64 frames and no background.
    pub fn even(stations: usize, length_m: u64) -> Self {
        let count = stations.max(1) as u64;
        Self {
            rate: Rate::from_mbps(100),
            length_m,
            positions_m: (0..stations as u64).map(|index| length_m * index / count).collect(),
            station_latency: STATION_LATENCY,
            ttrt: Duration::from_millis(8),
            overhead_bytes: FRAME_OVERHEAD_BYTES,
            frame_bytes_max: INFORMATION_BYTES_MAX,
            queue_frames: 64,
            synchronous: Vec::new(),
            background: None,
        }
    }

    /// Returns the rotation time of the token if no station sends (`D_Max`).
    pub fn latency(&self) -> Duration {
        Duration::from_nanos(self.length_m * FIBRE_NS_PER_KM / 1000)
            + self.station_latency * self.positions_m.len() as u64
    }

    /// Returns the transmission time of a frame of `bytes` bytes, including overhead.
    pub fn frame_time(&self, bytes: u64) -> Duration {
        self.rate.time_for(bytes + self.overhead_bytes)
    }

    /// Returns the transmission time of a token.
    pub fn token_time(&self) -> Duration {
        self.rate.time_for(TOKEN_BYTES)
    }

    /// Checks the configuration, including the timed-token condition that limits each rotation to
    /// twice the target.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let stations = self.positions_m.len();
        ConfigError::require(stations >= 2, "positions_m", || format!("a ring needs two stations, not {stations}"))?;
        let ordered = self.positions_m.windows(2).all(|pair| pair[0] <= pair[1]);
        ConfigError::require(ordered, "positions_m", || "positions must not decrease".to_owned())?;
        let last = self.positions_m[stations - 1];
        ConfigError::require(last <= self.length_m, "positions_m", || {
            format!("{last} m is beyond the ring of {} m", self.length_m)
        })?;
        ConfigError::require(!self.rate.is_zero(), "rate", || "must not be zero".to_owned())?;
        ConfigError::require(!self.latency().is_zero(), "length_m", || {
            "the token rotation time must not be zero".to_owned()
        })?;
        ConfigError::require(self.queue_frames > 0, "queue_frames", || "must be at least one frame".to_owned())?;
        ConfigError::require(self.frame_bytes_max > 0, "frame_bytes_max", || "must not be zero".to_owned())?;
        let mut required = self.latency() + self.frame_time(self.frame_bytes_max) + self.token_time() * stations as u64;
        for (index, &(station, allowance)) in self.synchronous.iter().enumerate() {
            ConfigError::require(station < stations, "synchronous", || format!("there is no station {station}"))?;
            let again = self.synchronous[..index].iter().any(|&(other, _)| other == station);
            ConfigError::require(!again, "synchronous", || format!("station {station} has two allowances"))?;
            required += allowance;
        }
        // The standard's condition: synchronous allowances + D_Max + F_Max + token time <= TTRT.
        ConfigError::require(required <= self.ttrt, "ttrt", || {
            format!(
                "{} is less than {required}, the sum of ring latency, a frame, the tokens and the synchronous \
                 allowances",
                self.ttrt
            )
        })?;
        self.background.as_ref().map_or(Ok(()), |background| background.validate(self))
    }
}

impl Background {
    fn validate(&self, ring: &RingConfig) -> Result<(), ConfigError> {
        let stations = ring.positions_m.len();
        ConfigError::require(self.station < stations, "background.station", || {
            format!("there is no station {}", self.station)
        })?;
        let is_free = ring.synchronous.iter().all(|&(station, _)| station != self.station);
        ConfigError::require(is_free, "background.station", || {
            format!("station {} has a synchronous allowance", self.station)
        })?;
        ConfigError::require((0.0..=100.0).contains(&self.share), "background.share", || {
            format!("{} is not between 0 and 100 times the ring", self.share)
        })?;
        ConfigError::require((1..=ring.frame_bytes_max).contains(&self.frame_bytes), "background.frame_bytes", || {
            format!("{} is not between 1 and {}", self.frame_bytes, ring.frame_bytes_max)
        })?;
        ConfigError::require(self.batch > 0, "background.batch", || "must be at least one frame".to_owned())?;
        ConfigError::require(self.queue_frames >= self.batch, "background.queue_frames", || {
            format!("{} frames are fewer than the {} of one arrival", self.queue_frames, self.batch)
        })
    }
}
