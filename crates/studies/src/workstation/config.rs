//! A machine of the workstation study: the report's parameters, and our choices for those that it
//! does not give.

use sim::hardware::fddi::Arrivals;
use sim::hardware::{ConfigError, Schedule, Transactions, Work};
use units::Duration;

use super::paper::{Cost, Costs, Kind, MachineFacts, costs, paper};

/// Background load of the rings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Load {
    /// The same constant share on all rings.
    Uniform(f64),
    /// Shares of the first half of the rings, in equal time intervals of the run. The second half
    /// is mirrored about the first of them.
    Steps(Vec<f64>),
}

/// Location of retransmission and acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scheme {
    /// One window for all. Processor 0 of the sender distributes packets and receives
    /// acknowledgements.
    pub(crate) central_sender: bool,
    /// Processor 0 of the receiver is notified of packets and acknowledges them.
    pub(crate) central_receiver: bool,
}

/// RFC 793's retransmission timer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Timer {
    /// Weight of the old estimate of the round trip.
    pub(crate) alpha: f64,
    /// Timeout as a multiple of the estimate.
    pub(crate) beta: f64,
    /// Minimum timeout (the RFC's LBOUND).
    pub(crate) minimum: Duration,
    pub(crate) retransmit: Retransmit,
}

/// Packets retransmitted when one is late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retransmit {
    /// Only that packet.
    OnlyLate,
    /// All from it on, as after an error. Each packet's timer continues until its turn; those that
    /// expire in the meantime cause the packets after them to be retransmitted, too.
    FromLate,
    /// The same, but all their timers restart together.
    FromLateTogether,
}

/// About the time of a packet on the two-bus machine; the report gives none.
const MINIMUM_TIMEOUT: Duration = Duration::from_millis(2);

impl Timer {
    /// Returns the timer with the report's filter.
    pub(super) fn of_paper() -> Self {
        let common = &paper().common;
        Self { alpha: common.alpha, beta: common.beta, minimum: MINIMUM_TIMEOUT, retransmit: Retransmit::FromLate }
    }

    fn validate(self) -> Result<(), ConfigError> {
        ConfigError::require((0.0..1.0).contains(&self.alpha), "timer.alpha", || {
            format!("{} gives new round trips no weight", self.alpha)
        })?;
        ConfigError::require(self.beta.is_finite() && self.beta >= 1.0, "timer.beta", || {
            format!("{} round trips is shorter than any acknowledgement", self.beta)
        })
    }
}

/// Small messages in addition to the bulk data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Small {
    /// Mean interval of a Poisson process.
    pub(crate) interval: Duration,
    pub(crate) bits: u64,
    /// The last processor serves only small messages.
    pub(crate) dedicated: bool,
}

/// Components that fail at the end of the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failure {
    pub(crate) processors: usize,
    pub(crate) interfaces: usize,
}

/// Parameters that the report does not give, equal for all machines unless it says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choices {
    pub(crate) costs: Costs,
    /// Bits per word of memory and bus.
    pub(crate) word_bits: u64,
    /// Words per read or write.
    pub(crate) burst_words: u64,
    /// Bus cycles of a single word without pipelining (serial machine).
    pub(crate) single_cycles: u64,
    /// Segments that are generated and not yet taken, including the one being generated.
    pub(crate) segments_ahead: usize,
    /// True: acknowledgements wait for tokens like all frames. False: they return at once.
    pub(crate) acks_on_rings: bool,
    pub(crate) ack_bytes: u64,
    pub(crate) ttrt: Duration,
    pub(crate) background_frame_bytes: u64,
    pub(crate) background_arrivals: Arrivals,
    /// Frames that an interface has fetched and not sent.
    pub(crate) interface_frames: usize,
    /// Service time of the device per packet, outgoing and incoming.
    pub(crate) mux_service: Duration,
    /// Time before each transfer of an interface.
    pub(crate) dma_setup: Duration,
    /// Instructions of a context switch and of an interrupt, in addition to those of the
    /// operations.
    pub(crate) switch_instructions: u64,
    /// Station of the receiver; the sender is station 0.
    pub(crate) receiver_station: usize,
    pub(crate) background_station: usize,
    /// Maximum age of the scheduler's information on queues and rotations. Zero: always current.
    pub(crate) stale: Duration,
    /// Retransmission timer; with `None`, only errors cause retransmissions.
    pub(crate) timer: Option<Timer>,
    /// Whether the application processor is notified of each acknowledged segment by a message,
    /// which ends its delay. False: the delay ends with the last acknowledgement.
    pub(crate) confirms: bool,
}

/// A machine, its load and its network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) kind: Kind,
    pub(crate) protocol_processors: usize,
    pub(crate) interfaces: usize,
    pub(crate) mips: f64,
    pub(crate) abus_mbps: u64,
    pub(crate) nbus_mbps: u64,
    pub(crate) memory_ns: u64,
    pub(crate) ring_mbps: u64,
    pub(crate) ring_m: u64,
    pub(crate) segment_bits: u64,
    pub(crate) window_bits: u64,
    pub(crate) packet_bits: u64,
    /// Error rate per bit.
    pub(crate) error_rate: f64,
    pub(crate) transactions: Transactions,
    pub(crate) schedule: Schedule,
    pub(crate) load: Load,
    pub(crate) scheme: Scheme,
    pub(crate) small: Option<Small>,
    pub(crate) failure: Failure,
    pub(crate) choices: Choices,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

impl Config {
    /// Returns the machine of Table 1 under uniform load, with round robin and DRDA.
    pub(crate) fn new(kind: Kind) -> Self {
        let facts = match kind {
            Kind::TwoBus => &paper().machines.two_bus,
            Kind::OneBus => &paper().machines.one_bus,
            Kind::Serial => &paper().machines.serial,
        };
        let transactions = match kind {
            Kind::TwoBus | Kind::OneBus => Transactions::Split,
            Kind::Serial => Transactions::Single,
        };
        Self::of(kind, facts, transactions)
    }

    fn of(kind: Kind, facts: &MachineFacts, transactions: Transactions) -> Self {
        let common = &paper().common;
        Self {
            kind,
            protocol_processors: facts.protocol_processors,
            interfaces: facts.interfaces,
            mips: facts.mips,
            abus_mbps: facts.abus_mbps,
            nbus_mbps: facts.nbus_mbps.unwrap_or(facts.abus_mbps),
            memory_ns: facts.memory_ns,
            ring_mbps: facts.ring_mbps,
            ring_m: common.ring_m,
            segment_bits: facts.segment_kbit * 1000,
            window_bits: facts.window_kbit * 1000,
            packet_bits: common.packet_kbit * 1000,
            error_rate: common.error_rate,
            transactions,
            schedule: Schedule::RoundRobin,
            load: Load::Uniform(common.uniform),
            scheme: Scheme { central_sender: false, central_receiver: false },
            small: None,
            failure: Failure::default(),
            choices: Choices::of(kind),
            // Checked against MSER-5 by 004-table-3. The serial machine's receiver is slightly
            // slower than its sender, so its queue takes a sixth of a second to fill.
            warm_up: Duration::from_millis(if kind == Kind::Serial { 200 } else { 40 }),
            measured: Duration::from_millis(400),
        }
    }

    /// Returns the same machine under the report's nonuniform load. The one-bus machine gets the
    /// window of those rows.
    pub(crate) fn nonuniform(mut self) -> Self {
        let common = &paper().common;
        self.load = Load::Steps(common.steps.clone());
        if self.kind == Kind::OneBus {
            self.window_bits = common.one_bus_nonuniform_window_kbit * 1000;
        }
        self
    }

    /// Returns the same machine with the adaptive network scheduler.
    pub(crate) fn adaptive(mut self) -> Self {
        self.schedule = Schedule::Adaptive;
        self
    }

    pub(super) const fn window_packets(&self) -> u64 {
        self.window_bits / self.packet_bits
    }

    pub(super) const fn words(&self, bits: u64) -> u64 {
        bits.div_ceil(self.choices.word_bits)
    }

    pub(super) const fn work(&self, cost: Cost, bits: u64) -> Work {
        Work {
            instructions: cost.instructions,
            data_words: cost.data_words,
            stream_words: self.words(bits) * cost.passes,
        }
    }

    /// Checks the configuration, apart from the checks of its components.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(self.protocol_processors > 0, "protocol_processors", || "must not be zero".to_owned())?;
        ConfigError::require(self.interfaces > 0, "interfaces", || "must not be zero".to_owned())?;
        ConfigError::require(self.packet_bits > 0 && self.packet_bits.is_multiple_of(8), "packet_bits", || {
            format!("{} is not a number of bytes", self.packet_bits)
        })?;
        ConfigError::require(
            self.segment_bits > 0 && self.segment_bits.is_multiple_of(self.packet_bits),
            "segment_bits",
            || format!("{} is not a number of packets of {}", self.segment_bits, self.packet_bits),
        )?;
        ConfigError::require(self.window_bits >= self.segment_bits, "window_bits", || {
            format!("{} is less than a segment, {}", self.window_bits, self.segment_bits)
        })?;
        ConfigError::require((0.0..1.0).contains(&self.error_rate), "error_rate", || {
            format!("{} is not a probability", self.error_rate)
        })?;
        ConfigError::require(self.choices.segments_ahead > 0, "segments_ahead", || "must not be zero".to_owned())?;
        ConfigError::require(self.choices.interface_frames > 0, "interface_frames", || "must not be zero".to_owned())?;
        ConfigError::require(self.choices.receiver_station != 0, "receiver_station", || {
            "station 0 is the sender".to_owned()
        })?;
        let failure = self.failure;
        ConfigError::require(failure.processors < self.protocol_processors, "failure.processors", || {
            "all processors would fail".to_owned()
        })?;
        ConfigError::require(failure.interfaces < self.interfaces, "failure.interfaces", || {
            "all interfaces would fail".to_owned()
        })?;
        ConfigError::require(!self.scheme.central_sender || failure.processors == 0, "failure.processors", || {
            "must be zero under central retransmission, where processors have no connections".to_owned()
        })?;
        ConfigError::require(!self.measured.is_zero(), "measured", || "must not be zero".to_owned())?;
        self.validate_load()?;
        self.choices.timer.map_or(Ok(()), Timer::validate)?;
        self.small.map_or(Ok(()), |small| self.validate_small(&small))
    }

    /// Checks that the shares and their mirror image are valid.
    fn validate_load(&self) -> Result<(), ConfigError> {
        let Load::Steps(steps) = &self.load else { return Ok(()) };
        let first = *steps.first().ok_or_else(|| ConfigError::new("load", "must not be empty"))?;
        let fits = |share: &f64| (0.0..=1.0).contains(share) && (0.0..=1.0).contains(&(2.0 * first - share));
        ConfigError::require(steps.iter().all(fits), "load", || {
            format!("{steps:?} or their mirror image about {first} are not valid shares")
        })
    }

    fn validate_small(&self, small: &Small) -> Result<(), ConfigError> {
        ConfigError::require(!small.interval.is_zero(), "small.interval", || "must not be zero".to_owned())?;
        let fits = (1..=self.packet_bits).contains(&small.bits) && small.bits.is_multiple_of(8);
        ConfigError::require(fits, "small.bits", || {
            format!("{} bits are not a number of bytes within one packet", small.bits)
        })?;
        ConfigError::require(!small.dedicated || self.protocol_processors > 1, "small.dedicated", || {
            "a dedicated processor leaves none for bulk data".to_owned()
        })
    }
}

impl Choices {
    fn of(kind: Kind) -> Self {
        let serial = kind == Kind::Serial;
        Self {
            costs: costs(),
            word_bits: 32,
            // A quarter of a packet.
            burst_words: 282,
            single_cycles: 4,
            // The serial machine has no application scheduler, so only the segment that is being
            // copied.
            segments_ahead: if serial { 1 } else { 2 },
            acks_on_rings: false,
            ack_bytes: 60,
            ttrt: Duration::from_millis(8),
            background_frame_bytes: 180,
            background_arrivals: Arrivals::Exponential,
            interface_frames: if serial { 8 } else { 1 },
            mux_service: Duration::from_micros(1),
            dma_setup: Duration::ZERO,
            switch_instructions: 0,
            receiver_station: 10,
            background_station: 15,
            stale: Duration::ZERO,
            timer: None,
            confirms: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_machines_are_rejected_by_key() {
        let key = |change: fn(&mut Config)| {
            let mut config = Config::new(Kind::TwoBus);
            change(&mut config);
            config.validate().unwrap_err().key
        };
        assert_eq!(key(|config| config.window_bits = 35_999), "window_bits");
        assert_eq!(key(|config| config.segment_bits = 40_000), "segment_bits");
        assert_eq!(key(|config| config.protocol_processors = 0), "protocol_processors");
        assert_eq!(key(|config| config.failure.interfaces = 6), "failure.interfaces");
        assert_eq!(key(|config| config.choices.receiver_station = 0), "receiver_station");
        assert_eq!(key(|config| config.load = Load::Steps(Vec::new())), "load");
        assert_eq!(key(|config| config.load = Load::Steps(vec![0.3, 0.7])), "load");
        let timer = |alpha, beta| Some(Timer { alpha, beta, ..Timer::of_paper() });
        let mut config = Config::new(Kind::TwoBus);
        config.choices.timer = timer(1.0, 2.0);
        assert_eq!(config.validate().unwrap_err().key, "timer.alpha");
        config.choices.timer = timer(0.2, 0.5);
        assert_eq!(config.validate().unwrap_err().key, "timer.beta");
        let small = |interval, bits| Some(Small { interval, bits, dedicated: false });
        let mut config = Config::new(Kind::OneBus);
        config.small = small(Duration::ZERO, 8);
        assert_eq!(config.validate().unwrap_err().key, "small.interval");
        config.small = small(Duration::from_micros(1), 36_008);
        assert_eq!(config.validate().unwrap_err().key, "small.bits");
        for kind in [Kind::TwoBus, Kind::OneBus, Kind::Serial] {
            Config::new(kind).validate().unwrap();
            Config::new(kind).nonuniform().adaptive().validate().unwrap();
        }
    }
}
