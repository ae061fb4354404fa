//! One run of two hosts in virtual time: its links, applications and measurements. The owner runs
//! the processors of the hosts: [`super::turns`] without processing cost, `simulated` with it.

use std::rc::Rc;
use std::sync::Arc;

use driver::Clock;
use units::{Instant, Rng};

use super::accounting::{Backlog, HostCounts, check_host_conservation};
use super::application::Application;
use super::env::VirtualClock;
use super::network::Network;
use super::runtime::VirtualRuntime;
use super::setup::{EventLog, HostSetup};
use crate::apps::App;
use crate::connection_setup::PathPlan;
use crate::measurements::Measurements;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::proof::Proof;
use crate::recording::RecordingWriter;
use crate::world::{OnProgress, PayloadMode, Progress, RunPlan, WorldError};

pub(crate) struct Run {
    pub(crate) scenario: Rc<Scenario>,
    plan: RunPlan,
    pub(crate) clock: VirtualClock,
    pub(crate) end: Instant,
    /// Applications of the sending host and the receiving host.
    applications: [Application; 2],
    logs: [Arc<EventLog>; 2],
    pub(crate) network: Network,
    measurements: Measurements,
    proof: Proof,
    path_plan: PathPlan,
    connected_at: Option<Instant>,
    failure: Option<String>,
}

/// The counts of the drivers of a host.
#[derive(Debug, Default)]
pub(crate) struct DriverCounts {
    /// The statistics of the connection, unless its driver has removed it.
    pub(crate) connection: Option<quic::Stats>,
    /// Received datagrams that belong to no connection.
    pub(crate) unrouted: u64,
    /// Sent datagrams that belong to no connection.
    pub(crate) replies: u64,
}

impl Run {
    /// Creates a run of hosts with this setup. `runtimes` let the handles reach the hosts' drivers.
    pub(crate) fn new(
        scenario: &Scenario,
        plan: &RunPlan,
        payload_mode: PayloadMode,
        setups: &[HostSetup; 2],
        runtimes: [VirtualRuntime; 2],
    ) -> Self {
        let root = Rng::from_seed(plan.seed);
        let links = scenario.links_under(&plan.paths);
        let [sending, receiving] = [App::sending(scenario, &root), App::receiving(scenario)];
        let [client, server] = runtimes;
        let application = |app: App, host: usize, runtime| {
            Application::new(app.with_payload_mode(payload_mode), Arc::clone(&setups[host].shared), runtime)
        };
        Self {
            scenario: Rc::new(scenario.clone()),
            plan: plan.clone(),
            clock: setups[0].clock.clone(),
            end: Instant::ZERO + scenario.duration,
            applications: [application(sending, 0, client), application(receiving, 1, server)],
            logs: setups.each_ref().map(|setup| Arc::clone(&setup.log)),
            network: Network::new(scenario, &plan.paths, plan.seed),
            measurements: Measurements::new(scenario),
            proof: Proof::new(scenario, &links),
            path_plan: PathPlan::new(scenario, &plan.paths),
            connected_at: None,
            failure: None,
        }
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Begins the handshake at the sending host.
    ///
    /// # Errors
    /// Fails if the connection cannot begin.
    pub(crate) fn begin(&mut self, setups: &[HostSetup; 2]) -> Result<(), WorldError> {
        self.applications[0].connect(setups[0].connect(), self.path_plan.first).map_err(WorldError::Unsuitable)
    }

    /// Returns whether all work is complete or the connection has failed.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.is_some() || self.measurements.is_done()
    }

    /// Records the run from now on.
    pub(crate) fn record(&mut self, recording: Box<RecordingWriter>) {
        self.logs.iter().for_each(|log| log.enable());
        self.network.recording = Some(recording);
    }

    /// Takes the recording, to finish it.
    pub(crate) fn take_recording(&mut self) -> Option<Box<RecordingWriter>> {
        self.network.recording.take()
    }

    /// Records the changes in a host's connection since the last call.
    pub(crate) fn record_connection(&mut self, host: usize, look: impl FnOnce(&mut dyn FnMut(&quic::Connection))) {
        let now = self.now();
        let Some(recording) = &mut self.network.recording else { return };
        for (at, event) in self.logs[host].take() {
            recording.event(at, host, &event);
        }
        look(&mut |connection| recording.connection(now, host, connection));
    }

    /// Reports the progress of the run.
    ///
    /// # Errors
    /// Fails if the callback stops the run, or the recording failed.
    pub(crate) fn report_progress(&self, on_progress: OnProgress<'_>) -> Result<(), WorldError> {
        if let Some(recording) = &self.network.recording {
            recording.check()?;
        }
        let delivered_bytes = self.measurements.delivered_bytes();
        let progress = Progress { now: self.now(), duration: self.scenario.duration, delivered_bytes };
        if on_progress(&progress) { Ok(()) } else { Err(WorldError::Stopped) }
    }

    /// Returns when the next fault begins or ends.
    pub(crate) fn proof_timeout(&self) -> Option<Instant> {
        self.proof.timeout()
    }

    /// Samples the counters of links whose faults begin or end now.
    pub(crate) fn look_at_faults(&mut self) {
        let now = self.now();
        if self.proof.timeout().is_none_or(|at| at > now) {
            return;
        }
        self.network.catch_up(now);
        let network = &self.network;
        self.proof.observe(now, &self.scenario, |link| network.stats(link));
    }

    /// Returns when a host's application begins its next item.
    pub(crate) fn app_timeout(&self, host: usize) -> Option<Instant> {
        self.applications[host].timeout()
    }

    /// Lets a host's application begin due items, if any are.
    pub(crate) fn begin_due_items(&mut self, host: usize) {
        let now = self.now();
        if self.app_timeout(host).is_some_and(|at| at <= now) {
            self.applications[host].pump(now, &mut self.measurements);
        }
    }

    /// Runs a host's application after a turn of its processors: it handles its events and
    /// continues its work.
    pub(crate) fn run_application(&mut self, host: usize) {
        let (now, application) = (self.now(), &mut self.applications[host]);
        if application.take_established() && host == 0 {
            self.connected_at = Some(now);
            application.on_connected(now);
            if let Err((path, error)) = application.open_paths(&self.path_plan) {
                let name = &self.scenario.paths[self.plan.paths[path]].name;
                self.failure.get_or_insert_with(|| format!("path {name:?} cannot be opened: {error}"));
            }
        }
        application.run(now, &mut self.measurements);
        if let Some(closed) = self.logs[host].closed() {
            self.failure.get_or_insert(closed.reason);
        }
    }

    /// Returns whether a host's application has events to handle.
    pub(crate) fn has_events(&self, host: usize) -> bool {
        self.applications[host].has_events()
    }

    /// Permits a host's application to read `bytes` more bytes.
    pub(crate) fn allow_reading(&mut self, host: usize, bytes: usize) {
        self.applications[host].allow_reading(bytes);
    }

    /// Returns the datagram counts of a host that has received `taken` datagrams.
    pub(crate) fn counts(&self, host: usize, driver: DriverCounts, taken: u64) -> HostCounts {
        let DriverCounts { connection, unrouted, replies } = driver;
        let stats = connection.or_else(|| self.logs[host].closed().map(|closed| closed.stats));
        let (planned, known) = stats.map_or((0, 0), |stats| {
            (stats.send.datagrams_sent, stats.receive.datagrams_received + stats.receive.datagrams_stray)
        });
        HostCounts { planned: planned + replies, taken, accounted: known + unrouted }
    }

    /// Checks that no datagram was lost or invented in links, or between links and connections.
    fn check_conservation(&self, hosts: [(HostCounts, Backlog); 2]) -> Result<(), String> {
        self.network.check_conservation(self.now())?;
        for (host, (counts, backlog)) in hosts.into_iter().enumerate() {
            let [sent, arrived] = self.network.totals(host);
            check_host_conservation(counts, backlog, sent, arrived)
                .map_err(|message| format!("host {}: {message}", self.scenario.hosts[host].name))?;
        }
        Ok(())
    }

    /// Returns the outcome of the run, given the datagrams of the hosts.
    ///
    /// # Panics
    /// Panics if a datagram is unaccounted for.
    pub(crate) fn into_outcome(self, hosts: [(HostCounts, Backlog); 2]) -> Outcome {
        if let Err(message) = self.check_conservation(hosts) {
            panic!("{message}");
        }
        let now = self.now();
        let network = self.network;
        let fault_outcomes = self.proof.finish(&self.scenario, |link| network.stats(link));
        let (path_outcomes, link_outcomes) = network.outcomes();
        let components = network.components(&self.scenario, now);
        let (parts, foreign_streams) = self.measurements.finish(now, self.failure.is_some());
        Outcome {
            scenario: self.scenario.name.clone(),
            world: "memory",
            seed: self.plan.seed,
            paths: self.plan.paths.clone(),
            connected_at: self.connected_at,
            ended_at: now,
            failure: self.failure,
            parts,
            path_outcomes,
            link_outcomes,
            fault_outcomes,
            foreign_streams,
            components,
            events_digest: Some(network.digest()),
            notes: Vec::new(),
        }
    }
}
