//! What a ring is made of.

use units::{Duration, Rate};

use crate::hardware::ConfigError;

/// Nanoseconds that light in glass takes for a kilometre, as the FDDI standard counts it (5.085 us).
pub const FIBRE_NS_PER_KM: u64 = 5_085;

/// What a station adds to the way round, as the FDDI standard counts it (0.6 us).
pub const STATION_LATENCY: Duration = Duration::from_nanos(600);

/// What a frame costs above its information: preamble 8 bytes, start 1, frame control 1, addresses 12, check sequence 4, end and
/// status 2.
pub const FRAME_OVERHEAD_BYTES: u64 = 28;

/// A token: preamble 8 bytes, start, frame control, end.
pub const TOKEN_BYTES: u64 = 11;

/// The longest information field that rings carry here. The standard's longest frame has 9000 symbols; 4500 bytes is what the papers
/// put into one.
pub const INFORMATION_BYTES_MAX: u64 = 4_500;

/// A ring. [`RingConfig::even`] gives one of the standard.
#[derive(Clone, Debug, PartialEq)]
pub struct RingConfig {
    /// What the fibre carries. The standard: 100 Mb/s.
    pub rate: Rate,
    /// The way round, in metres.
    pub length_m: u64,
    /// Where the stations are: metres from an origin, in the order in which the token passes them.
    pub positions_m: Vec<u64>,
    /// What each station adds to the way round.
    pub station_latency: Duration,
    /// Target token rotation time (`T_Opr`). A short one costs capacity, a long one delay. Default: 8 ms.
    pub ttrt: Duration,
    /// Bytes of the ring that a frame takes above its own.
    pub overhead_bytes: u64,
    /// The longest frame, without overhead.
    pub frame_bytes_max: u64,
    /// Frames that a station holds for each class, with the one that is being sent.
    pub queue_frames: usize,
    /// Stations that may send synchronous frames at each token, and for how long. Default: none.
    pub synchronous: Vec<(usize, Duration)>,
    /// What others send. Default: nothing.
    pub background: Option<Background>,
}

/// All that others send on a ring, as one station that sends asynchronous frames to nobody of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Background {
    /// Its station, which sends nothing else.
    pub station: usize,
    /// The share of the ring's time that its frames ask for, overhead included. May be more than 1: then its queue stays full.
    pub share: f64,
    /// Bytes of each frame, without overhead.
    pub frame_bytes: u64,
    /// When frames come.
    pub arrivals: Arrivals,
    /// Frames that come at once.
    pub batch: u64,
    /// Frames that wait at most; more are dropped, and counted.
    pub queue_frames: u64,
}

/// The law of the times between arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential: arrivals know nothing of each other.
    Exponential,
    /// All alike; the first one falls anywhere into its interval.
    Regular,
}

impl RingConfig {
    /// `stations` stations spread evenly over a ring of `length_m` metres, all else as in the standard, without background. They
    /// hold 64 frames each.
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

    /// What the token takes for the way round if nobody sends (`D_Max`).
    pub fn latency(&self) -> Duration {
        Duration::from_nanos(self.length_m * FIBRE_NS_PER_KM / 1000)
            + self.station_latency * self.positions_m.len() as u64
    }

    /// What a frame of `bytes` bytes takes, overhead included.
    pub fn frame_time(&self, bytes: u64) -> Duration {
        self.rate.time_for(bytes + self.overhead_bytes)
    }

    /// What a token takes that a station issues anew.
    pub fn token_time(&self) -> Duration {
        self.rate.time_for(TOKEN_BYTES)
    }

    /// Whether such a ring can be, and can keep the promise of the timed token: no rotation takes twice the target.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let stations = self.positions_m.len();
        ConfigError::require(stations >= 2, "positions_m", || {
            format!("a ring needs two stations, this has {stations}")
        })?;
        let ordered = self.positions_m.windows(2).all(|pair| pair[0] <= pair[1]);
        ConfigError::require(ordered, "positions_m", || "stations are not in the order of the token".to_owned())?;
        let last = self.positions_m[stations - 1];
        ConfigError::require(last <= self.length_m, "positions_m", || {
            format!("{last} m is beyond the ring of {} m", self.length_m)
        })?;
        ConfigError::require(!self.rate.is_zero(), "rate", || "a ring without a rate carries nothing".to_owned())?;
        ConfigError::require(!self.latency().is_zero(), "length_m", || {
            "a token cannot go round in no time".to_owned()
        })?;
        ConfigError::require(self.queue_frames > 0, "queue_frames", || "a station needs room for a frame".to_owned())?;
        ConfigError::require(self.frame_bytes_max > 0, "frame_bytes_max", || "no frame is that short".to_owned())?;
        let mut promised = self.latency() + self.frame_time(self.frame_bytes_max) + self.token_time() * stations as u64;
        for (index, &(station, allowance)) in self.synchronous.iter().enumerate() {
            ConfigError::require(station < stations, "synchronous", || format!("there is no station {station}"))?;
            let again = self.synchronous[..index].iter().any(|&(other, _)| other == station);
            ConfigError::require(!again, "synchronous", || format!("station {station} has two allowances"))?;
            promised += allowance;
        }
        // The standard's condition: synchronous allowances + D_Max + F_Max + token time <= TTRT.
        ConfigError::require(promised <= self.ttrt, "ttrt", || {
            format!(
                "{} is less than {promised}, the way round, a frame, the tokens and the synchronous allowances",
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
        ConfigError::require(self.batch > 0, "background.batch", || "at least one frame comes at once".to_owned())?;
        ConfigError::require(self.queue_frames >= self.batch, "background.queue_frames", || {
            format!("{} frames that wait are fewer than the {} that come at once", self.queue_frames, self.batch)
        })
    }
}
