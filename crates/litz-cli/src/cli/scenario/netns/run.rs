//! One run, from the first packet to the outcome.

use std::sync::Arc;

use litz::Placement;
use net::MonotonicClock;
use scenario::apps::App;
use scenario::measurements::Measurements;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::proof::Proof;
use scenario::timeline::Timeline;
use scenario::world::{OnProgress, Progress, RunPlan, WorldError};
use units::{Duration, Instant, Rng};

use super::NAME;
use super::host::{Host, hosts};
use super::network::{Network, Setup, world_error};
use super::packet_file::PacketFile;
use super::wakeups::{WakeQueue, Wakeup};

/// Interval at which the run calls its observer and checks the links.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Interval at which the run reads what the links have delivered. Shorter ones would take time from the
/// links, which are emulated on the same processors; the plot of a run of ten seconds shows 70 ms at a time.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Where the packets of a run go.
pub(super) struct Captured {
    pub(super) file: Arc<PacketFile>,
    /// The keys go there, too.
    pub(super) has_keys: bool,
}

/// A running scenario.
pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    plan: &'a RunPlan,
    /// The clock of the run and of the links.
    clock: MonotonicClock,
    end: Instant,
    /// The sending host, then the receiving host.
    hosts: [Host; 2],
    apps: [App; 2],
    wake_queue: Arc<WakeQueue>,
    measurements: Measurements,
    proof: Proof,
    connected_at: Option<Instant>,
    failure: Option<String>,
    next_watch: Instant,
    /// Bytes that each link has delivered, and when to read the counters next.
    delivered: Vec<Timeline>,
    next_read: Instant,
    /// The last field, because connections send their close over it.
    network: Network,
}

impl<'a> Run<'a> {
    /// Creates everything, then starts the clock and sends the first packet.
    pub(super) fn begin(
        scenario: &'a Scenario,
        plan: &'a RunPlan,
        placement: Option<Placement>,
        captured: Option<&Captured>,
    ) -> Result<Self, WorldError> {
        let wake_queue = Arc::new(WakeQueue::default());
        let root = Rng::from_seed(plan.seed);
        let mut setup = Setup::set(scenario, &plan.paths, plan.seed)?;
        if let Some(captured) = captured {
            setup.capture(&captured.file);
        }
        let keys = captured.filter(|captured| captured.has_keys).map(|captured| &captured.file);
        let mut hosts = hosts(scenario, plan, placement, &wake_queue, setup.take_sockets(), keys)?;
        let clock = MonotonicClock::start();
        let network = setup.run(clock)?;
        // The listening host first.
        let links = scenario.links_under(&plan.paths);
        let failure = hosts.iter_mut().rev().find_map(|host| host.poll_connected().err());
        Ok(Self {
            scenario,
            plan,
            clock,
            end: Instant::ZERO + scenario.duration,
            hosts,
            apps: [App::sending(scenario, &root), App::receiving(scenario)],
            wake_queue,
            measurements: Measurements::new(scenario),
            proof: Proof::new(scenario, &links),
            connected_at: None,
            failure,
            next_watch: Instant::ZERO,
            delivered: vec![Timeline::default(); links.len()],
            next_read: Instant::ZERO,
            network,
        })
    }

    /// The current time, limited to the end of the run.
    fn now(&self) -> Instant {
        self.clock.now().min(self.end)
    }

    pub(super) fn finish(mut self, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError> {
        loop {
            let now = self.now();
            self.look_at_faults(now);
            if now >= self.next_read {
                self.next_read = now + READ_INTERVAL;
                self.network.reports().read_deliveries(now, &mut self.delivered);
            }
            if now >= self.next_watch {
                self.next_watch = now + WATCH_INTERVAL;
                self.check_links()?;
                let delivered_bytes = self.measurements.delivered_bytes();
                if !on_progress(&Progress { now, duration: self.scenario.duration, delivered_bytes }) {
                    return Err(WorldError::Stopped);
                }
            }
            if now >= self.end || self.failure.is_some() || self.measurements.is_done() {
                return self.into_outcome(now);
            }
            match self.wake_queue.pop() {
                Some((host, wakeup)) => self.react(now, host, &wakeup),
                None => self.wake_queue.wait(self.timeout().saturating_since(now)),
            }
            self.pump();
        }
    }

    /// When the next timed action is due, for which there is no wakeup.
    fn timeout(&self) -> Instant {
        let due = self.apps.iter().filter_map(App::timeout).chain(self.proof.timeout());
        due.chain([self.next_watch, self.next_read, self.end]).min().unwrap_or(self.end)
    }

    fn look_at_faults(&mut self, now: Instant) {
        if self.proof.timeout().is_some_and(|at| at <= now) {
            let reports = self.network.reports();
            self.proof.observe(now, self.scenario, |link| reports.of(link));
        }
    }

    fn check_links(&self) -> Result<(), WorldError> {
        if self.network.has_fault() {
            return Err(world_error("a link failed during the run: its device was removed"));
        }
        Ok(())
    }

    fn react(&mut self, now: Instant, host: usize, wakeup: &Wakeup) {
        match wakeup {
            Wakeup::Begin => match self.hosts[host].poll_connected() {
                Ok(true) if host == 0 => self.connected(now),
                Ok(_) => {}
                Err(message) => self.fail(message),
            },
            Wakeup::End => {
                if let Some(message) = self.hosts[host].ended() {
                    self.fail(message);
                }
            }
            Wakeup::Stream(event) => {
                if let Some(streams) = &mut self.hosts[host].streams {
                    streams.begin_turn();
                    self.apps[host].on_event(now, event, streams, &mut self.measurements);
                }
            }
        }
    }

    fn connected(&mut self, now: Instant) {
        self.connected_at = Some(now);
        self.apps[0].on_connected(now);
        if let Err(message) = self.hosts[0].open_paths(self.scenario, self.plan) {
            self.fail(message);
        }
    }

    /// Records a failure; only the first is kept.
    fn fail(&mut self, message: String) {
        self.failure.get_or_insert(message);
    }

    fn pump(&mut self) {
        let now = self.now();
        for (host, app) in self.hosts.iter_mut().zip(&mut self.apps) {
            if let Some(streams) = &mut host.streams {
                streams.begin_turn();
                app.pump(now, streams, &mut self.measurements);
            }
        }
    }

    fn into_outcome(mut self, now: Instant) -> Result<Outcome, WorldError> {
        self.check_links()?;
        let reports = self.network.reports();
        reports.read_deliveries(now, &mut self.delivered);
        let (parts, foreign_streams) = self.measurements.finish(now, self.failure.is_some());
        Ok(Outcome {
            scenario: self.scenario.name.clone(),
            world: NAME,
            seed: self.plan.seed,
            paths: self.plan.paths.clone(),
            connected_at: self.connected_at,
            ended_at: now,
            failure: self.failure,
            parts,
            path_outcomes: self.network.path_outcomes(&self.plan.paths),
            link_outcomes: reports.link_outcomes(self.delivered),
            fault_outcomes: self.proof.finish(self.scenario, |link| reports.of(link)),
            foreign_streams,
            components: Vec::new(),
            events_digest: None,
            notes: reports.notes(self.scenario),
        })
    }
}
