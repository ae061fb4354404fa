//! One run, step by step.

use std::collections::VecDeque;
use std::rc::Rc;

use quic::{Event, Side};
use units::{Instant, Rng};

use super::books::{Inside, check_host};
use super::cells::Cells;
use super::frame::Frame;
use super::network::Network;
use super::node::Node;
use crate::apps::App;
use crate::begin::PathPlan;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::placement::Placement;
use crate::proof::Proof;
use crate::recorder::Recorder;
use crate::tape::Tape;
use crate::world::{Order, Progress, Stages, Watch, WorldError};

/// Steps without time passing after which somebody spins: far more than what can happen in one moment.
const SPIN_MAX: u32 = 1_000_000;

/// Datagrams that wait for others at a host, at most: as many as a call takes.
pub(crate) const COALESCED_MAX: usize = 64;

/// Steps between two looks of whoever watches: one may move a whole window.
const STEPS_BETWEEN_WATCHES: u64 = 256;

pub(crate) struct Run {
    scenario: Rc<Scenario>,
    order: Order,
    /// Which placements the hosts behave as while nothing costs time.
    pub(super) placements: [Placement; 2],
    /// The last turn within a call of the application has left something to do.
    pub(super) is_owed_turn: [bool; 2],
    pub(crate) now: Instant,
    pub(crate) end: Instant,
    /// The sending host, then the other.
    pub(crate) nodes: [Node; 2],
    pub(super) apps: [App; 2],
    pub(super) cells: [Cells; 2],
    pub(crate) network: Network,
    pub(super) recorder: Recorder,
    proof: Proof,
    plan: PathPlan,
    connected_at: Option<Instant>,
    failure: Option<String>,
    /// Hosts at which something has happened since they were visited.
    touched: [bool; 2],
    /// When the connections want to be called, as of their last visits.
    pub(super) timeouts: [Option<Instant>; 2],
    /// Datagrams that have arrived now and were not taken, by host and path.
    pub(super) sockets: [Vec<VecDeque<Frame>>; 2],
    /// Datagrams that wait for others at each host, and when it looks at them.
    waiting: [Vec<Frame>; 2],
    look_at: [Option<Instant>; 2],
    spins: u32,
    steps: u64,
}

impl Run {
    pub(crate) fn new(scenario: &Scenario, order: &Order, stages: Stages) -> Result<Self, WorldError> {
        Self::placed(scenario, order, stages, [Placement::Thread; 2])
    }

    /// Of hosts that do their turns as under these placements.
    pub(crate) fn placed(
        scenario: &Scenario,
        order: &Order,
        stages: Stages,
        placements: [Placement; 2],
    ) -> Result<Self, WorldError> {
        order.validate(scenario)?;
        let root = Rng::from_seed(order.seed);
        let node = |side: Side| {
            let shards = placements[usize::from(side == Side::Server)].shard_count();
            Node::new(scenario, side, order.paths.len(), stages, order.seed, shards)
        };
        let links = scenario.links_under(&order.paths);
        Ok(Self {
            scenario: Rc::new(scenario.clone()),
            order: order.clone(),
            placements,
            is_owed_turn: [false; 2],
            now: Instant::ZERO,
            end: Instant::ZERO + scenario.duration,
            nodes: [node(Side::Client)?, node(Side::Server)?],
            apps: [App::sending(scenario, &root), App::receiving(scenario)].map(|app| app.with_stages(stages)),
            cells: Default::default(),
            network: Network::new(scenario, &order.paths, order.seed),
            recorder: Recorder::new(scenario),
            proof: Proof::new(scenario, &links),
            plan: PathPlan::new(scenario, &order.paths),
            connected_at: None,
            failure: None,
            touched: [true, false],
            timeouts: [None, None],
            sockets: [(); 2].map(|()| order.paths.iter().map(|_| VecDeque::new()).collect()),
            waiting: [Vec::new(), Vec::new()],
            look_at: [None, None],
            spins: 0,
            steps: 0,
        })
    }

    pub(crate) fn finish(mut self, watch: Watch<'_>) -> Result<Outcome, WorldError> {
        self.go(watch)?;
        let inside = self.inside();
        Ok(self.into_outcome(inside))
    }

    /// Whether datagrams wait for each other at a host, and are joined.
    pub(super) fn joins(&self, host: usize) -> bool {
        !self.scenario.hosts[host].coalesce.is_zero()
    }

    /// How many paths it has.
    pub(crate) fn path_count(&self) -> usize {
        self.order.paths.len()
    }

    /// Runs to the end.
    pub(crate) fn go(&mut self, watch: Watch<'_>) -> Result<(), WorldError> {
        self.begin()?;
        loop {
            self.settle_touched();
            if self.is_over() || !self.step()? {
                self.network.catch_up(self.now);
                return Ok(());
            }
            self.steps += 1;
            if self.steps.is_multiple_of(STEPS_BETWEEN_WATCHES) {
                self.show(watch)?;
            }
        }
    }

    /// The sending host begins.
    pub(crate) fn begin(&mut self) -> Result<(), WorldError> {
        self.nodes[0].connect(self.now, self.plan.first)
    }

    /// All is done, or nothing more can be.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.is_some() || self.recorder.is_done()
    }

    /// Writes down from now on what happens.
    pub(crate) fn record(&mut self, tape: Box<Tape>) {
        self.network.tape = Some(tape);
    }

    /// What was written down, for its end.
    pub(crate) fn take_tape(&mut self) -> Option<Box<Tape>> {
        self.network.tape.take()
    }

    /// Tells whoever watches how far it is.
    ///
    /// # Errors
    /// If that wants no more, or what is written down cannot be written.
    pub(crate) fn show(&self, watch: Watch<'_>) -> Result<(), WorldError> {
        if let Some(tape) = &self.network.tape {
            tape.check()?;
        }
        let delivered_bytes = self.recorder.delivered_bytes();
        let progress = Progress { now: self.now, duration: self.scenario.duration, delivered_bytes };
        if watch(&progress) { Ok(()) } else { Err(WorldError::Stopped) }
    }

    /// When faults begin or end.
    pub(crate) fn proof_timeout(&self) -> Option<Instant> {
        self.proof.timeout()
    }

    /// Looks at the counters of links whose faults begin or end now.
    pub(crate) fn look_at_faults(&mut self) {
        if self.proof.timeout().is_none_or(|at| at > self.now) {
            return;
        }
        self.network.catch_up(self.now);
        let network = &self.network;
        self.proof.look(self.now, &self.scenario, |link| network.stats(link));
    }

    /// When a host's application begins something.
    pub(crate) fn app_timeout(&self, host: usize) -> Option<Instant> {
        self.apps[host].timeout()
    }

    /// Lets a host's application react and begin what is due, and gives the connection what it writes.
    pub(crate) fn visit(&mut self, host: usize) {
        self.tell(host);
        self.pump(host);
        while self.cells[host].has_changed() {
            self.serve(host);
            self.pump(host);
        }
    }

    /// A host's application has had the time to read so many bytes more, and no more than that.
    pub(crate) fn allow_reading(&mut self, host: usize, bytes: usize) {
        self.cells[host].allow_reading(bytes);
    }

    /// Does what a host's application has asked for: its connection gets what was written.
    pub(super) fn serve(&mut self, host: usize) {
        if let Some(connection) = &mut self.nodes[host].connection {
            self.cells[host].serve(self.now, connection);
        }
    }

    /// Tells what happened at a host. What has arrived for the application lies ready for it then.
    pub(crate) fn tell(&mut self, host: usize) {
        while let Some(event) = self.nodes[host].poll_event() {
            self.react(host, event);
        }
    }

    /// Lets a host's application do what it can: hear what happened, go on with what it reads and writes, answer, and begin what is
    /// due.
    pub(super) fn pump(&mut self, host: usize) {
        if self.placements[host] == Placement::Inline {
            return self.pump_inline(host);
        }
        let Some(connection) = &mut self.nodes[host].connection else { return };
        let (app, recorder) = (&mut self.apps[host], &mut self.recorder);
        while let Some(event) = self.cells[host].pop_news() {
            app.on_event(self.now, &event, &mut self.cells[host].over(connection), recorder);
        }
        app.pump(self.now, &mut self.cells[host].over(connection), recorder);
        if let Some(tape) = &mut self.network.tape {
            tape.connection(self.now, host, connection);
        }
    }

    /// Advances to the next thing that happens; false at the end.
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
            // The deliveries of the last moment.
            self.receive();
            self.settle_touched();
            return Ok(false);
        }
        self.spins = if next > self.now { 0 } else { self.spins + 1 };
        if self.spins > SPIN_MAX {
            return Err(WorldError::Spins { at: self.now });
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
        self.network.receive(now, |direction, frame| {
            let host = 1 - direction;
            let coalesce = self.scenario.hosts[host].coalesce;
            if coalesce.is_zero() {
                self.touched[host] = true;
                self.sockets[host][frame.path()].push_back(frame);
                return;
            }
            self.look_at[host].get_or_insert(now + coalesce);
            self.waiting[host].push(frame);
            if self.waiting[host].len() >= COALESCED_MAX {
                self.look_at[host] = Some(now);
            }
        });
        for host in 0..2 {
            if self.look_at[host].is_some_and(|at| at <= self.now) {
                self.look_at[host] = None;
                self.touched[host] = true;
                for frame in self.waiting[host].drain(..) {
                    self.sockets[host][frame.path()].push_back(frame);
                }
            }
        }
    }

    /// Visits the hosts at which something has happened, as a driver does: what may leave in a while leaves then, and not
    /// bit by bit whenever anything happens anywhere.
    fn settle_touched(&mut self) {
        for host in 0..2 {
            if std::mem::take(&mut self.touched[host]) {
                self.settle(host);
            }
        }
    }

    fn react(&mut self, host: usize, event: Event) {
        if let Some(tape) = &mut self.network.tape {
            tape.event(self.now, host, &event);
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
        for &(place, is_backup) in &self.plan.others {
            if let Err(error) = self.nodes[0].open_path(self.now, place, is_backup) {
                let name = &self.scenario.paths[self.order.paths[place]].name;
                self.failure.get_or_insert_with(|| format!("path {name:?} cannot be opened: {error}"));
            }
        }
        if self.plan.is_first_backup {
            self.nodes[0].set_first_backup(self.now);
        }
    }

    /// Datagrams that are on their way inside the hosts, where those take no time.
    pub(crate) fn inside(&self) -> [Inside; 2] {
        [0, 1].map(|host| {
            let in_sockets: usize = self.sockets[host].iter().map(VecDeque::len).sum();
            Inside { unsent: 0, untaken: (in_sockets + self.waiting[host].len()) as u64 }
        })
    }

    /// That nothing was lost or made where nothing may be: in links, and between these and the connections.
    fn check_books(&self, inside: [Inside; 2]) -> Result<(), String> {
        self.network.check_books(self.now)?;
        for (host, inside) in inside.into_iter().enumerate() {
            let [sent, arrived] = self.network.totals(host);
            check_host(self.nodes[host].tally(), inside, sent, arrived)
                .map_err(|words| format!("host {}: {words}", self.scenario.hosts[host].name))?;
        }
        Ok(())
    }

    /// What came of it; `inside` is what is on its way inside the hosts.
    ///
    /// # Panics
    /// If a packet is unaccounted for.
    pub(crate) fn into_outcome(self, inside: [Inside; 2]) -> Outcome {
        if let Err(words) = self.check_books(inside) {
            panic!("{words}");
        }
        let network = self.network;
        let fault_outcomes = self.proof.finish(&self.scenario, |link| network.stats(link));
        let (path_outcomes, link_outcomes) = network.outcomes();
        let components = network.components(&self.scenario, self.now);
        let (parts, foreign_streams) = self.recorder.finish(self.now, self.failure.is_some());
        Outcome {
            scenario: self.scenario.name.clone(),
            world: "memory",
            seed: self.order.seed,
            paths: self.order.paths.clone(),
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
