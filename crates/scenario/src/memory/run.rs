//! One run of two hosts in virtual time, event by event.

use std::collections::VecDeque;
use std::rc::Rc;

use driver::Placement;
use quic::{Event, Side};
use units::{Instant, Rng};

use super::accounting::{Backlog, check_host_conservation};
use super::cells::Cells;
use super::datagram::Datagram;
use super::network::Network;
use super::node::Node;
use crate::apps::App;
use crate::connection_setup::PathPlan;
use crate::measurements::Measurements;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::proof::Proof;
use crate::recording::RecordingWriter;
use crate::world::{OnProgress, PayloadMode, Progress, RunPlan, WorldError};

/// Number of steps without progress of virtual time that counts as a livelock: far more than can
/// happen at one time.
const STALLED_STEPS_MAX: u32 = 1_000_000;

/// Maximum number of coalesced datagrams at a host: as many as one receive call takes.
pub(crate) const COALESCED_MAX: usize = 64;

/// Steps between two progress reports. One step may move a whole window.
const STEPS_PER_PROGRESS: u64 = 256;

pub(crate) struct Run {
    scenario: Rc<Scenario>,
    plan: RunPlan,
    /// The placements whose turns the hosts reproduce, without cost in time.
    pub(super) placements: [Placement; 2],
    /// Whether the last turn within a call of the application left work to do.
    pub(super) is_owed_turn: [bool; 2],
    pub(crate) now: Instant,
    pub(crate) end: Instant,
    /// The sending host and the receiving host.
    pub(crate) nodes: [Node; 2],
    pub(super) apps: [App; 2],
    pub(super) cells: [Cells; 2],
    pub(crate) network: Network,
    pub(super) measurements: Measurements,
    proof: Proof,
    path_plan: PathPlan,
    connected_at: Option<Instant>,
    failure: Option<String>,
    /// Hosts with events since their last turn.
    touched: [bool; 2],
    /// The timeouts of the connections, as of their last turns.
    pub(super) timeouts: [Option<Instant>; 2],
    /// Datagrams that have arrived and are not processed, by host and path.
    pub(super) sockets: [Vec<VecDeque<Datagram>>; 2],
    /// Coalesced datagrams at each host, and the time of its interrupt.
    waiting: [Vec<Datagram>; 2],
    look_at: [Option<Instant>; 2],
    stalled_steps: u32,
    steps: u64,
}

impl Run {
    pub(crate) fn new(scenario: &Scenario, plan: &RunPlan, payload_mode: PayloadMode) -> Result<Self, WorldError> {
        Self::placed(scenario, plan, payload_mode, [Placement::Thread; 2])
    }

    /// A run of hosts that take turns as under these placements.
    pub(crate) fn placed(
        scenario: &Scenario,
        plan: &RunPlan,
        payload_mode: PayloadMode,
        placements: [Placement; 2],
    ) -> Result<Self, WorldError> {
        plan.validate(scenario)?;
        let root = Rng::from_seed(plan.seed);
        let node = |side: Side| {
            let shards = placements[usize::from(side == Side::Server)].driver_count();
            Node::new(scenario, side, plan.paths.len(), payload_mode, plan.seed, shards)
        };
        let links = scenario.links_under(&plan.paths);
        Ok(Self {
            scenario: Rc::new(scenario.clone()),
            plan: plan.clone(),
            placements,
            is_owed_turn: [false; 2],
            now: Instant::ZERO,
            end: Instant::ZERO + scenario.duration,
            nodes: [node(Side::Client)?, node(Side::Server)?],
            apps: [App::sending(scenario, &root), App::receiving(scenario)]
                .map(|app| app.with_payload_mode(payload_mode)),
            cells: Default::default(),
            network: Network::new(scenario, &plan.paths, plan.seed),
            measurements: Measurements::new(scenario),
            proof: Proof::new(scenario, &links),
            path_plan: PathPlan::new(scenario, &plan.paths),
            connected_at: None,
            failure: None,
            touched: [true, false],
            timeouts: [None, None],
            sockets: [(); 2].map(|()| plan.paths.iter().map(|_| VecDeque::new()).collect()),
            waiting: [Vec::new(), Vec::new()],
            look_at: [None, None],
            stalled_steps: 0,
            steps: 0,
        })
    }

    pub(crate) fn finish(mut self, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError> {
        self.go(on_progress)?;
        let backlog = self.backlog();
        Ok(self.into_outcome(backlog))
    }

    /// Whether a host coalesces datagrams and joins them into batches.
    pub(super) fn joins(&self, host: usize) -> bool {
        !self.scenario.hosts[host].coalesce.is_zero()
    }

    /// The number of paths.
    pub(crate) fn path_count(&self) -> usize {
        self.plan.paths.len()
    }

    /// Runs until the end.
    pub(crate) fn go(&mut self, on_progress: OnProgress<'_>) -> Result<(), WorldError> {
        self.begin()?;
        loop {
            self.settle_touched();
            if self.is_over() || !self.step()? {
                self.network.catch_up(self.now);
                return Ok(());
            }
            self.steps += 1;
            if self.steps.is_multiple_of(STEPS_PER_PROGRESS) {
                self.report_progress(on_progress)?;
            }
        }
    }

    /// Begins the handshake at the sending host.
    pub(crate) fn begin(&mut self) -> Result<(), WorldError> {
        self.nodes[0].connect(self.now, self.path_plan.first)
    }

    /// Whether all work is complete or the connection has failed.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.is_some() || self.measurements.is_done()
    }

    /// Records the run from now on.
    pub(crate) fn record(&mut self, recording: Box<RecordingWriter>) {
        self.network.recording = Some(recording);
    }

    /// Takes the recording, to finish it.
    pub(crate) fn take_recording(&mut self) -> Option<Box<RecordingWriter>> {
        self.network.recording.take()
    }

    /// Reports the progress of the run.
    ///
    /// # Errors
    /// If the callback stops the run, or the recording failed.
    pub(crate) fn report_progress(&self, on_progress: OnProgress<'_>) -> Result<(), WorldError> {
        if let Some(recording) = &self.network.recording {
            recording.check()?;
        }
        let delivered_bytes = self.measurements.delivered_bytes();
        let progress = Progress { now: self.now, duration: self.scenario.duration, delivered_bytes };
        if on_progress(&progress) { Ok(()) } else { Err(WorldError::Stopped) }
    }

    /// When the next fault begins or ends.
    pub(crate) fn proof_timeout(&self) -> Option<Instant> {
        self.proof.timeout()
    }

    /// Samples the counters of links whose faults begin or end now.
    pub(crate) fn look_at_faults(&mut self) {
        if self.proof.timeout().is_none_or(|at| at > self.now) {
            return;
        }
        self.network.catch_up(self.now);
        let network = &self.network;
        self.proof.observe(self.now, &self.scenario, |link| network.stats(link));
    }

    /// When a host's application begins its next item.
    pub(crate) fn app_timeout(&self, host: usize) -> Option<Instant> {
        self.apps[host].timeout()
    }

    /// Passes events to a host's application, lets it begin due items, and passes its writes to the
    /// connection.
    pub(crate) fn visit(&mut self, host: usize) {
        self.process_events(host);
        self.pump(host);
        while self.cells[host].has_changed() {
            self.serve(host);
            self.pump(host);
        }
    }

    /// Allows a host's application to read `bytes` more bytes.
    pub(crate) fn allow_reading(&mut self, host: usize, bytes: usize) {
        self.cells[host].allow_reading(bytes);
    }

    /// Passes the application's writes to the connection.
    pub(super) fn serve(&mut self, host: usize) {
        if let Some(connection) = &mut self.nodes[host].connection {
            self.cells[host].serve(self.now, connection);
        }
    }

    /// Processes the events of a host's connection, which makes arrived data available to the
    /// application.
    pub(crate) fn process_events(&mut self, host: usize) {
        while let Some(event) = self.nodes[host].poll_event() {
            self.handle_event(host, event);
        }
    }

    /// Lets a host's application handle its events, continue reads and writes, answer requests, and
    /// begin due items.
    pub(super) fn pump(&mut self, host: usize) {
        if self.placements[host] == Placement::Inline {
            return self.pump_inline(host);
        }
        let Some(connection) = &mut self.nodes[host].connection else { return };
        let (app, measurements) = (&mut self.apps[host], &mut self.measurements);
        while let Some(event) = self.cells[host].pop_event() {
            app.on_event(self.now, &event, &mut self.cells[host].handles(connection), measurements);
        }
        app.pump(self.now, &mut self.cells[host].handles(connection), measurements);
        if let Some(recording) = &mut self.network.recording {
            recording.connection(self.now, host, connection);
        }
    }

    /// Advances to the next event; false at the end of the run.
    fn step(&mut self) -> Result<bool, WorldError> {
        let app_at = self.apps[0].timeout();
        let mut next = self.end;
        let mut note = |at: Option<Instant>| next = next.min(at.unwrap_or(next));
        note(self.network.timeout());
        note(app_at);
        note(self.proof.timeout());
        self.timeouts.into_iter().for_each(&mut note);
        self.look_at.into_iter().for_each(note);
        let next = next.max(self.now);
        if next >= self.end {
            self.now = self.end;
            // Deliveries at the end time still count.
            self.receive();
            self.settle_touched();
            return Ok(false);
        }
        self.stalled_steps = if next > self.now { 0 } else { self.stalled_steps + 1 };
        if self.stalled_steps > STALLED_STEPS_MAX {
            return Err(WorldError::Livelock { at: self.now });
        }
        self.now = next;
        self.receive();
        self.look_at_faults();
        self.touched[0] |= app_at.is_some_and(|at| at <= next);
        for host in 0..2 {
            self.touched[host] |= self.timeouts[host].is_some_and(|at| at <= next);
        }
        Ok(true)
    }

    fn receive(&mut self) {
        let now = self.now;
        self.network.receive(now, |direction, datagram| {
            let host = 1 - direction;
            let coalesce = self.scenario.hosts[host].coalesce;
            if coalesce.is_zero() {
                self.touched[host] = true;
                self.sockets[host][datagram.path()].push_back(datagram);
                return;
            }
            self.look_at[host].get_or_insert(now + coalesce);
            self.waiting[host].push(datagram);
            if self.waiting[host].len() >= COALESCED_MAX {
                self.look_at[host] = Some(now);
            }
        });
        for host in 0..2 {
            if self.look_at[host].is_some_and(|at| at <= self.now) {
                self.look_at[host] = None;
                self.touched[host] = true;
                for datagram in self.waiting[host].drain(..) {
                    self.sockets[host][datagram.path()].push_back(datagram);
                }
            }
        }
    }

    /// Runs the turns of the hosts that have events. As with a driver, pacing releases data at the
    /// host's own events, not at events elsewhere.
    fn settle_touched(&mut self) {
        for host in 0..2 {
            if std::mem::take(&mut self.touched[host]) {
                self.settle(host);
            }
        }
    }

    fn handle_event(&mut self, host: usize, event: Event) {
        if let Some(recording) = &mut self.network.recording {
            recording.event(self.now, host, &event);
        }
        match &event {
            Event::Connected if host == 0 => {
                self.connected_at = Some(self.now);
                self.apps[0].on_connected(self.now);
            }
            Event::Confirmed if host == 0 => self.open_paths(),
            Event::Closed(error) => {
                self.failure.get_or_insert_with(|| error.to_string());
            }
            _ => {}
        }
        if let Some(connection) = &mut self.nodes[host].connection {
            self.cells[host].on_event(self.now, event, connection);
        }
    }

    fn open_paths(&mut self) {
        for &(place, is_backup) in &self.path_plan.others {
            if let Err(error) = self.nodes[0].open_path(self.now, place, is_backup) {
                let name = &self.scenario.paths[self.plan.paths[place]].name;
                self.failure.get_or_insert_with(|| format!("path {name:?} cannot be opened: {error}"));
            }
        }
        if self.path_plan.is_first_backup {
            self.nodes[0].set_first_backup(self.now);
        }
    }

    /// Datagrams inside the hosts, for hosts that take no time.
    pub(crate) fn backlog(&self) -> [Backlog; 2] {
        [0, 1].map(|host| {
            let in_sockets: usize = self.sockets[host].iter().map(VecDeque::len).sum();
            Backlog { unsent: 0, untaken: (in_sockets + self.waiting[host].len()) as u64 }
        })
    }

    /// Checks that no datagram was lost or invented in links, or between links and connections.
    fn check_conservation(&self, backlog: [Backlog; 2]) -> Result<(), String> {
        self.network.check_conservation(self.now)?;
        for (host, backlog) in backlog.into_iter().enumerate() {
            let [sent, arrived] = self.network.totals(host);
            check_host_conservation(self.nodes[host].counts(), backlog, sent, arrived)
                .map_err(|message| format!("host {}: {message}", self.scenario.hosts[host].name))?;
        }
        Ok(())
    }

    /// The outcome of the run, given the datagrams inside the hosts.
    ///
    /// # Panics
    /// If a datagram is unaccounted for.
    pub(crate) fn into_outcome(self, backlog: [Backlog; 2]) -> Outcome {
        if let Err(message) = self.check_conservation(backlog) {
            panic!("{message}");
        }
        let network = self.network;
        let fault_outcomes = self.proof.finish(&self.scenario, |link| network.stats(link));
        let (path_outcomes, link_outcomes) = network.outcomes();
        let components = network.components(&self.scenario, self.now);
        let (parts, foreign_streams) = self.measurements.finish(self.now, self.failure.is_some());
        Outcome {
            scenario: self.scenario.name.clone(),
            world: "memory",
            seed: self.plan.seed,
            paths: self.plan.paths.clone(),
            connected_at: self.connected_at,
            ended_at: self.now,
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
