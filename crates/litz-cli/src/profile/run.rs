//! One run: transfers bytes from the memory of one thread to that of another over loopback, for a
//! given time.

use std::io::Read;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration as StdDuration;

use bytes::Bytes;
use litz::identity::{self, KeyPair};
use litz::{Activity, ActivityKind, Connection, Costs, Endpoint, EndpointConfig, Placement, TransportConfig};
use net::MonotonicClock;
use rustix::time::{ClockId, clock_gettime};
use transfer::CancelToken;
use units::Duration;

use super::calibrate::{CHUNK_LEN, Calibration, SeparateCosts};
use super::cores::{Cores, stay};
use super::failure::{Failure, to_message};
use super::row::End;
use super::several::end;

/// Time before measuring, in which the congestion window grows, buffers are allocated and
/// processors reach full speed.
pub(crate) const WARM_UP: Duration = Duration::from_millis(200);

/// Flow-control window of the stream: smaller than the requested receive buffer, so that nothing is
/// lost there, and many times the data in flight on loopback.
pub(crate) const WINDOW: u64 = 2 << 20;

/// Application calls between two rounds of calibration: some hundred rounds per second, or a few
/// percent of the time.
const CALLS_PER_ROUND: u32 = 32;

/// How long the two ends wait for the connection.
pub(super) const CONNECT_TIMEOUT: StdDuration = StdDuration::from_secs(10);

/// How often the run checks for an interrupt.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The parameters of both ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunPlan {
    pub(crate) datagram_size: usize,
    pub(crate) time: Duration,
    /// Whether to meter the activities.
    pub(crate) metered: bool,
    /// The placement of both ends.
    pub(crate) placement: Placement,
}

/// The costs of one end during the measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    /// Data packets sent at the sending end, received at the receiving end.
    pub(crate) packets: f64,
    pub(crate) packets_lost: u64,
    pub(crate) wall: Duration,
    /// CPU time of the thread according to the system, less that of calibration.
    pub(crate) cpu: Duration,
    pub(crate) costs: Option<Costs>,
    /// Time spent on calibration, which [`Activity::Application`] holds.
    pub(crate) calibrating: Duration,
    /// The calibrated costs; none for a run without the meter.
    pub(crate) alone: Option<SeparateCosts>,
}

/// Both ends of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) sending: Spent,
    pub(crate) receiving: Spent,
}

impl Spent {
    /// CPU time per packet, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.packets
    }

    /// Metered time of all activities with work.
    pub(crate) fn busy(&self) -> Duration {
        let costs = self.costs.unwrap_or_default();
        let work = Activity::ALL.into_iter().filter(|activity| activity.kind() != ActivityKind::Idle);
        let spent = work.map(|activity| costs.spent(activity)).fold(Duration::ZERO, |sum, spent| sum + spent);
        spent.saturating_sub(self.calibrating)
    }
}

/// The phase of a run: the caller sets it, the ends read it.
#[derive(Default)]
pub(super) struct Phase(AtomicU8);

impl Phase {
    // Zero is the warm-up.
    const MEASURE: u8 = 1;
    pub(super) const OVER: u8 = 2;

    fn is(&self, phase: u8) -> bool {
        self.0.load(Ordering::Relaxed) == phase
    }

    pub(super) fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }
}

/// Runs once.
pub(crate) fn run(plan: &RunPlan, cancel: &CancelToken) -> Result<Run, Failure> {
    let key = KeyPair::generate().map_err(|error| Failure::Error(format!("cannot make a key: {error}")))?;
    let tls = |error: identity::TlsError| Failure::Error(error.to_string());
    let server_tls = identity::server_config(&key, ["litz-profile/1"]).map_err(tls)?;
    let client_tls = identity::client_config(&key, &[key.public().fingerprint()], ["litz-profile/1"]).map_err(tls)?;
    let cores = Cores::of_this_machine();
    let server = Cores::bind(&cores.receiving, config(plan).with_server_tls(server_tls))?;
    let client = Cores::bind(&cores.sending, config(plan))?;
    let address = server.local_addr();
    let phase = Phase::default();
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            stay(&cores.receiving)?;
            let connection = server.accept_timeout(CONNECT_TIMEOUT).map_err(to_message)?.ok_or(NOT_CONNECTED)?;
            receive(plan, &server, &connection, &phase)
        });
        let sending = scope.spawn(|| {
            stay(&cores.sending)?;
            let connection = client.connect(address, "litz.invalid", client_tls.config.clone()).map_err(to_message)?;
            send(plan, &client, &connection, &phase)
        });
        let waited = conduct(plan, &phase, cancel, || sending.is_finished() || receiving.is_finished());
        phase.set(Phase::OVER);
        let (sending, receiving) = (sending.join(), receiving.join());
        waited?;
        let idle = "a run was too short to transfer data: use a longer --time";
        Ok(Run { sending: end(sending, idle)?, receiving: end(receiving, idle)? })
    })
}

pub(super) const NOT_CONNECTED: &str = "the connection was not established in time";

pub(super) fn config(plan: &RunPlan) -> EndpointConfig {
    EndpointConfig::loopback()
        .with_placement(plan.placement)
        .with_transport(
            TransportConfig::default()
                .with_datagram_size(plan.datagram_size)
                .with_stream_window(WINDOW)
                .with_stream_window_max(WINDOW)
                .with_connection_window(2 * WINDOW)
                .with_connection_window_max(2 * WINDOW),
        )
        .with_measure(plan.metered)
}

/// Advances the phases by the clock.
pub(super) fn conduct(
    plan: &RunPlan,
    phase: &Phase,
    cancel: &CancelToken,
    is_over: impl Fn() -> bool,
) -> Result<(), Failure> {
    let clock = MonotonicClock::start();
    for (next, time) in [(Phase::MEASURE, WARM_UP), (Phase::OVER, plan.time)] {
        let until = clock.now() + time;
        loop {
            let left = until.saturating_since(clock.now());
            if left.is_zero() || is_over() {
                break;
            }
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            #[expect(clippy::disallowed_methods, reason = "the measuring threads use the processors meanwhile")]
            std::thread::sleep(left.min(LOOK_INTERVAL).into());
        }
        phase.set(next);
    }
    Ok(())
}

pub(super) fn send(
    plan: &RunPlan,
    endpoint: &Endpoint,
    connection: &Connection,
    phase: &Phase,
) -> Result<Option<Spent>, String> {
    let mut window = Window::new(End::Sending, plan, endpoint, connection, |stats| {
        (stats.send.packets_sent, stats.send.packets_lost)
    })?;
    let mut stream = connection.open_uni().map_err(to_message)?;
    let chunk = Bytes::from(vec![7; CHUNK_LEN]);
    while window.look(phase) {
        if let Err(error) = stream.write_chunk(chunk.clone()) {
            window.end(phase, error)?;
        }
    }
    connection.close(0, "");
    window.spent()
}

pub(super) fn receive(
    plan: &RunPlan,
    endpoint: &Endpoint,
    connection: &Connection,
    phase: &Phase,
) -> Result<Option<Spent>, String> {
    let mut window =
        Window::new(End::Receiving, plan, endpoint, connection, |stats| (stats.receive.packets_received, 0))?;
    let mut stream = connection.accept_uni().map_err(to_message)?;
    let mut buffer = vec![0; CHUNK_LEN];
    while window.look(phase) {
        if let Err(error) = stream.read(&mut buffer) {
            window.end(phase, error)?;
        }
    }
    connection.close(0, "");
    window.spent()
}

/// The measured part of a run, as seen by a thread.
struct Window<'a> {
    endpoint: &'a Endpoint,
    connection: &'a Connection,
    clock: MonotonicClock,
    /// Packets moved and packets lost.
    count: fn(&litz::Stats) -> (u64, u64),
    begin: Option<Sample>,
    end: Option<Sample>,
    calibration: Option<Calibration>,
    calls: u32,
}

#[derive(Clone, Copy)]
struct Sample {
    wall: units::Instant,
    cpu: Duration,
    packets: (u64, u64),
    costs: Option<Costs>,
    calibrating: Duration,
}

impl<'a> Window<'a> {
    fn new(
        end: End,
        plan: &RunPlan,
        endpoint: &'a Endpoint,
        connection: &'a Connection,
        count: fn(&litz::Stats) -> (u64, u64),
    ) -> Result<Self, String> {
        let calibration = plan.metered.then(|| Calibration::new(end, plan.datagram_size)).transpose()?;
        let clock = MonotonicClock::start();
        Ok(Self { endpoint, connection, clock, count, begin: None, end: None, calibration, calls: 0 })
    }

    fn sample(&self) -> Sample {
        let packets = (self.count)(&self.connection.stats());
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::from_secs(cpu.tv_sec as u64) + Duration::from_nanos(cpu.tv_nsec as u64);
        let calibrating = self.calibration.as_ref().map_or(Duration::ZERO, Calibration::spent);
        Sample { wall: self.clock.now(), cpu, packets, costs: self.endpoint.costs(), calibrating }
    }

    /// Takes a sample when the phase has changed, and calibrates periodically. False once the run
    /// is over.
    fn look(&mut self, phase: &Phase) -> bool {
        if self.end.is_some() {
            return false;
        }
        if phase.is(Phase::OVER) {
            self.end = Some(self.sample());
            return false;
        }
        if self.begin.is_none() && phase.is(Phase::MEASURE) {
            self.begin = Some(self.sample());
        }
        self.calls += 1;
        if let Some(calibration) = &mut self.calibration
            && self.calls % CALLS_PER_ROUND == 1
        {
            calibration.round();
        }
        true
    }

    /// Handles the end of the connection: expected after the run, an error before.
    fn end(&mut self, phase: &Phase, error: impl std::fmt::Display) -> Result<(), String> {
        if phase.is(Phase::OVER) {
            return Ok(());
        }
        Err(error.to_string())
    }

    /// The difference between the samples; none if they were not taken or no data was transferred.
    fn spent(&self) -> Result<Option<Spent>, String> {
        let Some((begin, end)) = self.begin.zip(self.end) else { return Ok(None) };
        let packets = end.packets.0 - begin.packets.0;
        let calibrating = end.calibrating.saturating_sub(begin.calibrating);
        let alone = self.calibration.as_ref().map(Calibration::result).transpose()?;
        Ok((packets > 0).then(|| Spent {
            packets: packets as f64,
            packets_lost: end.packets.1 - begin.packets.1,
            wall: end.wall.saturating_since(begin.wall),
            cpu: end.cpu.saturating_sub(begin.cpu).saturating_sub(calibrating),
            costs: end.costs.zip(begin.costs).map(|(end, begin)| end.since(&begin)),
            calibrating,
            alone,
        }))
    }
}
