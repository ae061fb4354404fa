//! A machine of the workstation study: the paper's parameters, and our choice of what the paper does not say.

use sim::hardware::fddi::Arrivals;
use sim::hardware::{ConfigError, Schedule, Transactions, Work};
use units::Duration;

use super::paper::{Cost, Costs, Kind, MachineFacts, costs, paper};

/// What others send on the rings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Load {
    /// The same share on all, from beginning to end.
    Uniform(f64),
    /// Shares of the first half of the rings, one after the other, evenly over the run; the second half has their mirror image about
    /// the first of them.
    Steps(Vec<f64>),
}

/// Who keeps timers and resends, who acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scheme {
    /// One window for all; processor 0 of the sender hands packets out and is told of acknowledgements.
    pub(crate) central_sender: bool,
    /// Processor 0 of the receiver is told of packets and acknowledges them.
    pub(crate) central_receiver: bool,
}

/// RFC 793's retransmission timer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Timer {
    /// What the old estimate of the round trip counts for.
    pub(crate) alpha: f64,
    /// The timeout, in estimates.
    pub(crate) beta: f64,
    /// The least timeout (the RFC's LBOUND).
    pub(crate) least: Duration,
    pub(crate) again: Again,
}

/// What is sent again when a packet is late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// That packet alone.
    Late,
    /// All from it on, as after an error. Each packet's timer goes on until its turn comes: those that are late meanwhile have all after
    /// them sent again, too.
    FromLate,
    /// The same, and all their timers begin anew at once.
    FromLateTogether,
}

/// About what a packet takes on the two-bus machine; the paper names none.
const LEAST_TIMEOUT: Duration = Duration::from_millis(2);

impl Timer {
    /// With the paper's filter.
    pub(super) fn of_paper() -> Self {
        let common = &paper().common;
        Self { alpha: common.alpha, beta: common.beta, least: LEAST_TIMEOUT, again: Again::FromLate }
    }

    fn validate(self) -> Result<(), ConfigError> {
        ConfigError::require((0.0..1.0).contains(&self.alpha), "timer.alpha", || {
            format!("{} leaves nothing for new round trips", self.alpha)
        })?;
        ConfigError::require(self.beta.is_finite() && self.beta >= 1.0, "timer.beta", || {
            format!("{} times a round trip is over before an acknowledgement can be there", self.beta)
        })
    }
}

/// Small messages beside the bulk of the data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Small {
    /// Mean time between them; they know nothing of each other.
    pub(crate) interval: Duration,
    pub(crate) bits: u64,
    /// The last processor has them to itself.
    pub(crate) dedicated: bool,
}

/// What stops working when the warm-up is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failure {
    pub(crate) processors: usize,
    pub(crate) interfaces: usize,
}

/// What the paper does not say, the same for all machines unless it says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choices {
    pub(crate) costs: Costs,
    /// Bits of a word of memory and bus.
    pub(crate) word_bits: u64,
    /// Words of a read or write.
    pub(crate) burst_words: u64,
    /// Bus cycles of a single word, without pipelining (serial machine).
    pub(crate) single_cycles: u64,
    /// Segments that are made and not yet taken, the one being made included.
    pub(crate) segments_ahead: usize,
    /// True: acknowledgements wait for tokens like all frames. False: they are back at once.
    pub(crate) acks_on_rings: bool,
    pub(crate) ack_bytes: u64,
    pub(crate) ttrt: Duration,
    pub(crate) background_frame_bytes: u64,
    pub(crate) background_arrivals: Arrivals,
    /// Frames that an interface has fetched and not sent.
    pub(crate) interface_frames: usize,
    /// On the way out and on the way in.
    pub(crate) mux_service: Duration,
    /// Before each transfer of an interface.
    pub(crate) dma_setup: Duration,
    /// Instructions of a processor to go on with another operation, and to take an interrupt, beyond those of the operations.
    pub(crate) switch_instructions: u64,
    /// Station of the receiver; the sender is station 0.
    pub(crate) receiver_station: usize,
    pub(crate) background_station: usize,
    /// How old the scheduler's knowledge of queues and rotations may get. Zero: never.
    pub(crate) stale: Duration,
    /// `None`: only errors have packets sent again.
    pub(crate) timer: Option<Timer>,
    /// Whether the application's processor is told of each segment that is acknowledged, by a message; there its delay ends. False: the
    /// delay ends with the last acknowledgement.
    pub(crate) confirms: bool,
}

/// A machine, its work and its network.
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
    /// Per bit.
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
    /// The machine of Table 1 under uniform load, round robin, DRDA.
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
            // Held against MSER-5 by 004-table-3. The serial machine's receiver is slower than its sender by a hair, so its queue takes a
            // sixth of a second to fill.
            warm_up: Duration::from_millis(if kind == Kind::Serial { 200 } else { 40 }),
            measured: Duration::from_millis(400),
        }
    }

    /// The same under the paper's nonuniform load; the one-bus machine with the window that its rows were run with.
    pub(crate) fn nonuniform(mut self) -> Self {
        let common = &paper().common;
        self.load = Load::Steps(common.steps.clone());
        if self.kind == Kind::OneBus {
            self.window_bits = common.one_bus_nonuniform_window_kbit * 1000;
        }
        self
    }

    /// The same with the adaptive network scheduler.
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

    /// Whether such a machine can be, as far as its parts do not say so themselves.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(self.protocol_processors > 0, "protocol_processors", || {
            "somebody must run the protocol".to_owned()
        })?;
        ConfigError::require(self.interfaces > 0, "interfaces", || "there is no way out".to_owned())?;
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
            format!("{} is no probability", self.error_rate)
        })?;
        ConfigError::require(self.choices.segments_ahead > 0, "segments_ahead", || {
            "nothing would ever be made".to_owned()
        })?;
        ConfigError::require(self.choices.interface_frames > 0, "interface_frames", || {
            "nothing would ever be sent".to_owned()
        })?;
        ConfigError::require(self.choices.receiver_station != 0, "receiver_station", || {
            "station 0 is the sender".to_owned()
        })?;
        let dead = self.failure;
        ConfigError::require(dead.processors < self.protocol_processors, "failure.processors", || {
            "nobody is left".to_owned()
        })?;
        ConfigError::require(dead.interfaces < self.interfaces, "failure.interfaces", || {
            "no way out is left".to_owned()
        })?;
        ConfigError::require(!self.scheme.central_sender || dead.processors == 0, "failure.processors", || {
            "under central retransmission processors have no connections that could fail".to_owned()
        })?;
        ConfigError::require(!self.measured.is_zero(), "measured", || "no time, no throughput".to_owned())?;
        self.validate_load()?;
        self.choices.timer.map_or(Ok(()), Timer::validate)?;
        self.small.map_or(Ok(()), |small| self.validate_small(&small))
    }

    /// Shares whose mirror image is a share too.
    fn validate_load(&self) -> Result<(), ConfigError> {
        let Load::Steps(steps) = &self.load else { return Ok(()) };
        let first = *steps.first().ok_or_else(|| ConfigError::new("load", "a sequence of shares has a first one"))?;
        let fits = |share: &f64| (0.0..=1.0).contains(share) && (0.0..=1.0).contains(&(2.0 * first - share));
        ConfigError::require(steps.iter().all(fits), "load", || {
            format!("{steps:?} or their mirror image about {first} are no shares of a ring")
        })
    }

    fn validate_small(&self, small: &Small) -> Result<(), ConfigError> {
        ConfigError::require(!small.interval.is_zero(), "small.interval", || "endless messages at once".to_owned())?;
        let fits = (1..=self.packet_bits).contains(&small.bits) && small.bits.is_multiple_of(8);
        ConfigError::require(fits, "small.bits", || format!("{} bits are not bytes of one packet", small.bits))?;
        ConfigError::require(!small.dedicated || self.protocol_processors > 1, "small.dedicated", || {
            "a processor of their own leaves none for the rest".to_owned()
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
            // The serial machine has no application scheduler, so only the segment that is being handed over.
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
    fn machines_that_contradict_themselves_are_refused_by_name() {
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
