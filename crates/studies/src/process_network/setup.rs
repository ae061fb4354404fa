//! An experiment: the machine, the placement of processes, their costs.

use sim::hardware::ConfigError;
use units::Duration;

use super::paper::{Figures, Table1};

/// The time of each step on one generation of processors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Costs {
    pub(super) ip_intrsvc_us: f64,
    pub(super) ip_demux_us: f64,
    pub(super) tcp_recv_us: f64,
    pub(super) user_task_us: f64,
    pub(super) write_us: f64,
    /// Copying one word between shared memory and the application's buffer, on either side.
    pub(super) copy_word_us: f64,
    pub(super) tcp_snd_data_us: f64,
    pub(super) ip_send_us: f64,
    pub(super) driver_send_us: f64,
    /// One word from the transmit memory to the network.
    pub(super) network_word_us: f64,
    /// Time of a poke on the calling processor.
    pub(super) poke_us: f64,
    /// One word over a link between processors.
    pub(super) link_word_us: f64,
    /// Software checksum over a segment, at either end.
    pub(super) checksum_us: f64,
    pub(super) words: u64,
}

/// Placement of processes on the processors of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// All on one.
    One,
    /// One for each side.
    Two,
    /// One for IP and one for TCP and above, on each side: the prototype.
    Four,
    /// One per process with work.
    Seven,
}

/// Direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Traffic {
    OneWay,
    BothWays,
}

/// Location of the application.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Application {
    /// Scenario 1: on the adapter, whose processors copy.
    OnAdapter,
    /// Scenario 2: on the workstation, which copies in parallel with the protocol and takes this
    /// many microseconds per segment and end.
    OnWorkstation { us_per_segment: f64 },
    /// No socket layer: the protocol alone.
    None,
}

/// Component that moves packets from the transmit memory to the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mover {
    /// The network interface, in parallel with the processor.
    Interface,
    /// The processor, word by word.
    Processor,
}

/// An experiment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Setup {
    pub(super) costs: Costs,
    pub(super) placement: Placement,
    pub(super) traffic: Traffic,
    pub(super) application: Application,
    pub(super) mover: Mover,
    /// Shared fields that the receive side writes per incoming segment, one poke each. With zero,
    /// the sides see each other's fields at no cost.
    pub(super) pokes: u32,
    /// Counterpart for the transmit side, per outgoing segment.
    pub(super) pokes_back: u32,
    /// Time of a poke on the processor that is poked, in microseconds.
    pub(super) poked_us: f64,
    /// Time of passing a packet to a process on another processor, on both, in addition to Table 1,
    /// in microseconds.
    pub(super) handoff_us: f64,
    /// Time of a process switch, in addition to Table 1, in microseconds.
    pub(super) switch_us: f64,
    /// Segments that may be in flight.
    pub(super) window: u32,
    /// Segments received, or read, per separate acknowledgement.
    pub(super) acknowledge_every: u32,
    /// Interval between segments of the application, in microseconds; 0 if data are always
    /// available.
    pub(super) pause_us: f64,
}

/// Maximum window in segments: the window and its acknowledgements fit in the receive memory.
const WINDOW_SEGMENTS_MAX: u32 = super::node::RECEIVE_BUFFERS as u32 / 2 - 2;

/// The largest window of TCP without scaling (RFC 793), in bytes.
const WINDOW_BYTES: u64 = 65_535;

/// Divisor of the window that gives the number of segments per acknowledgement.
const THRESHOLD_DIVISOR: u32 = 2;

/// Shared fields that the receive side writes per segment: for data the next expected segment and
/// the granted window, for acknowledgements the acknowledged segment and the received window.
pub(super) const POKES: u32 = 2;

/// Shared field that the transmit side writes: the last segment sent, with the acknowledgement it
/// carried.
const POKES_BACK: u32 = 1;

impl Costs {
    /// Returns Table 1 as printed, which is scenario 1.
    pub(super) fn of_scenario_1(table: &Table1) -> Self {
        let fixed = |process: &str| table.of(process).us_per_segment;
        Self {
            ip_intrsvc_us: fixed("ip_intrsvc"),
            ip_demux_us: fixed("ip_demux"),
            tcp_recv_us: fixed("tcp_recv"),
            user_task_us: fixed("user_task"),
            write_us: fixed("write"),
            copy_word_us: table.of("user_task").us_per_word,
            tcp_snd_data_us: fixed("tcp_snd_data"),
            ip_send_us: fixed("ip_send"),
            driver_send_us: fixed("driver_send"),
            network_word_us: table.of("driver_send").us_per_word,
            poke_us: fixed("poke"),
            link_word_us: table.of("poke").us_per_word,
            checksum_us: 0.0,
            words: table.words(),
        }
    }

    /// Returns the same with less contention for the shared memory. Network and links are
    /// unchanged.
    pub(super) fn of_scenario_2(table: &Table1) -> Self {
        Self::of_scenario_1(table).with_processors_times(1.0 - table.scenario_2.percent_lower / 100.0)
    }

    /// Multiplies the processor time per segment by `factor`. Pokes, links and the network are
    /// unchanged.
    pub(super) fn with_processors_times(self, factor: f64) -> Self {
        Self {
            ip_intrsvc_us: self.ip_intrsvc_us * factor,
            ip_demux_us: self.ip_demux_us * factor,
            tcp_recv_us: self.tcp_recv_us * factor,
            user_task_us: self.user_task_us * factor,
            write_us: self.write_us * factor,
            copy_word_us: self.copy_word_us * factor,
            tcp_snd_data_us: self.tcp_snd_data_us * factor,
            ip_send_us: self.ip_send_us * factor,
            driver_send_us: self.driver_send_us * factor,
            checksum_us: self.checksum_us * factor,
            ..self
        }
    }

    /// Returns all times with their names.
    const fn times(&self) -> [(&'static str, f64); 13] {
        [
            ("ip_intrsvc_us", self.ip_intrsvc_us),
            ("ip_demux_us", self.ip_demux_us),
            ("tcp_recv_us", self.tcp_recv_us),
            ("user_task_us", self.user_task_us),
            ("write_us", self.write_us),
            ("copy_word_us", self.copy_word_us),
            ("tcp_snd_data_us", self.tcp_snd_data_us),
            ("ip_send_us", self.ip_send_us),
            ("driver_send_us", self.driver_send_us),
            ("network_word_us", self.network_word_us),
            ("poke_us", self.poke_us),
            ("link_word_us", self.link_word_us),
            ("checksum_us", self.checksum_us),
        ]
    }

    /// Returns the time to copy the data of a segment.
    pub(super) fn copy_us(&self) -> f64 {
        self.copy_word_us * self.words as f64
    }

    /// Returns the time of the receive side per segment, without socket layer and pokes.
    pub(super) fn receive_us(&self) -> f64 {
        self.ip_intrsvc_us + self.ip_demux_us + self.tcp_recv_us
    }

    /// Returns the time of the transmit side per segment, without socket layer and data movement.
    pub(super) fn transmit_us(&self) -> f64 {
        self.tcp_snd_data_us + self.ip_send_us + self.driver_send_us
    }
}

impl Setup {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        // A window and its acknowledgements must fit: lost packets are not retransmitted here.
        ConfigError::require((1..=WINDOW_SEGMENTS_MAX).contains(&self.window), "window", || {
            format!("{} segments are not between 1 and {WINDOW_SEGMENTS_MAX}, half of the receive memory", self.window)
        })?;
        ConfigError::require((1..=self.window).contains(&self.acknowledge_every), "acknowledge_every", || {
            format!("{} is not between 1 and the window of {}", self.acknowledge_every, self.window)
        })?;
        let mut times = vec![
            ("poked_us", self.poked_us),
            ("handoff_us", self.handoff_us),
            ("switch_us", self.switch_us),
            ("pause_us", self.pause_us),
        ];
        if let Application::OnWorkstation { us_per_segment } = self.application {
            times.push(("us_per_segment", us_per_segment));
        }
        times.extend(self.costs.times());
        for (key, us) in times {
            ConfigError::require(us.is_finite() && us >= 0.0, key, || format!("{us} is not a valid time"))?;
        }
        Ok(())
    }

    /// Returns scenario 1 on the prototype: the application on the adapter.
    pub(super) fn scenario_1(table: &Table1) -> Self {
        let window = u32::try_from(WINDOW_BYTES / table.segment_bytes).expect("a segment is longer than a few bytes");
        Self {
            costs: Costs::of_scenario_1(table),
            placement: Placement::Four,
            traffic: Traffic::OneWay,
            application: Application::OnAdapter,
            mover: Mover::Interface,
            pokes: POKES,
            pokes_back: POKES_BACK,
            poked_us: 0.0,
            handoff_us: 0.0,
            switch_us: 0.0,
            window,
            acknowledge_every: window.div_ceil(THRESHOLD_DIVISOR),
            pause_us: 0.0,
        }
    }

    /// Returns scenario 2 on the prototype: the workstation copies and is never the limit.
    pub(super) fn scenario_2(table: &Table1) -> Self {
        Self {
            costs: Costs::of_scenario_2(table),
            application: Application::OnWorkstation { us_per_segment: 0.0 },
            ..Self::scenario_1(table)
        }
    }

    /// Returns the protocol alone: no socket layer, and pokes at no cost.
    pub(super) fn protocol_alone(table: &Table1) -> Self {
        Self {
            costs: Costs::of_scenario_1(table),
            application: Application::None,
            pokes: 0,
            pokes_back: 0,
            ..Self::scenario_1(table)
        }
    }

    /// Returns scenario 2 with T9000s: processors `t9000_factor` times as fast, links faster by
    /// their own ratio, a network that is never the limit, checksums and header extraction in
    /// hardware.
    pub(super) fn t9000(table: &Table1, figures: &Figures) -> Self {
        let base = Self::scenario_2(table);
        let faster = base.costs.with_processors_times(1.0 / figures.t9000_factor);
        let costs = Costs {
            poke_us: faster.poke_us / figures.t9000_factor,
            link_word_us: faster.link_word_us * figures.t425_link_mbps / figures.t9000_link_mbps,
            network_word_us: 0.0,
            ..faster
        };
        Self { costs, placement: Placement::Two, ..base }
    }
}

/// Converts microseconds to a duration, to the nanosecond.
pub(super) fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1000.0).round() as u64)
}
