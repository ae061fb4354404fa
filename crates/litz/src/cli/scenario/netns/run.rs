//! One run, from the first packet to the outcome.

use std::sync::Arc;

use litz::Placement;
use net::MonotonicClock;
use scenario::apps::App;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::proof::Proof;
use scenario::recorder::Recorder;
use scenario::world::{Order, Progress, Watch, WorldError};
use units::{Duration, Instant, Rng};

use super::NAME;
use super::host::{Host, hosts};
use super::inbox::{Happening, Inbox};
use super::network::{Network, Stage, broken};

/// Between two looks of whoever watches, and at whether the links are well.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// A run under way.
pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    order: &'a Order,
    /// The run's time, which is that of the links.
    clock: MonotonicClock,
    end: Instant,
    /// The sending host, then the other.
    hosts: [Host; 2],
    apps: [App; 2],
    inbox: Arc<Inbox>,
    recorder: Recorder,
    proof: Proof,
    connected_at: Option<Instant>,
    failure: Option<String>,
    next_watch: Instant,
    /// Last: connections say goodbye over it.
    network: Network,
}

impl<'a> Run<'a> {
    /// Makes everything; then the clock starts and the first packet leaves.
    pub(super) fn begin(
        scenario: &'a Scenario,
        order: &'a Order,
        placement: Option<Placement>,
    ) -> Result<Self, WorldError> {
        let inbox = Arc::new(Inbox::default());
        let root = Rng::from_seed(order.seed);
        let mut stage = Stage::set(scenario, &order.paths, order.seed)?;
        let mut hosts = hosts(scenario, order, placement, &inbox, stage.take_sockets())?;
        let clock = MonotonicClock::start();
        let network = stage.run(clock)?;
        // The one that listens first.
        let failure = hosts.iter_mut().rev().find_map(|host| host.ask().err());
        Ok(Self {
            scenario,
            order,
            clock,
            end: Instant::ZERO + scenario.duration,
            hosts,
            apps: [App::sending(scenario, &root), App::receiving(scenario)],
            inbox,
            recorder: Recorder::new(scenario),
            proof: Proof::new(scenario, &scenario.links_under(&order.paths)),
            connected_at: None,
            failure,
            next_watch: Instant::ZERO,
            network,
        })
    }

    /// What comes after the end does not count.
    fn now(&self) -> Instant {
        self.clock.now().min(self.end)
    }

    pub(super) fn finish(mut self, watch: Watch<'_>) -> Result<Outcome, WorldError> {
        loop {
            let now = self.now();
            self.look_at_faults(now);
            if now >= self.next_watch {
                self.next_watch = now + WATCH_INTERVAL;
                self.check_links()?;
                let delivered_bytes = self.recorder.delivered_bytes();
                if !watch(&Progress { now, duration: self.scenario.duration, delivered_bytes }) {
                    return Err(WorldError::Stopped);
                }
            }
            if now >= self.end || self.failure.is_some() || self.recorder.is_done() {
                return self.into_outcome(now);
            }
            match self.inbox.pop() {
                Some((host, happening)) => self.react(now, host, &happening),
                None => self.inbox.wait(self.timeout().saturating_since(now)),
            }
            self.pump();
        }
    }

    /// When something is due that nobody wakes us for.
    fn timeout(&self) -> Instant {
        let due = self.apps.iter().filter_map(App::timeout).chain(self.proof.timeout());
        due.chain([self.next_watch, self.end]).min().unwrap_or(self.end)
    }

    fn look_at_faults(&mut self, now: Instant) {
        if self.proof.timeout().is_some_and(|at| at <= now) {
            let reports = self.network.reports();
            self.proof.look(now, self.scenario, |link| reports.of(link));
        }
    }

    fn check_links(&self) -> Result<(), WorldError> {
        if self.network.has_fault() {
            return Err(broken("a link has ended during the run: its device is gone"));
        }
        Ok(())
    }

    fn react(&mut self, now: Instant, host: usize, happening: &Happening) {
        match happening {
            Happening::Begin => match self.hosts[host].ask() {
                Ok(true) if host == 0 => self.connected(now),
                Ok(_) => {}
                Err(words) => self.fail(words),
            },
            Happening::End => {
                if let Some(words) = self.hosts[host].ended() {
                    self.fail(words);
                }
            }
            Happening::Stream(event) => {
                if let Some(streams) = &mut self.hosts[host].streams {
                    streams.begin_turn();
                    self.apps[host].on_event(now, event, streams, &mut self.recorder);
                }
            }
        }
    }

    fn connected(&mut self, now: Instant) {
        self.connected_at = Some(now);
        self.apps[0].on_connected(now);
        if let Err(words) = self.hosts[0].open_paths(self.scenario, self.order) {
            self.fail(words);
        }
    }

    /// The first reason counts.
    fn fail(&mut self, words: String) {
        self.failure.get_or_insert(words);
    }

    fn pump(&mut self) {
        let now = self.now();
        for (host, app) in self.hosts.iter_mut().zip(&mut self.apps) {
            if let Some(streams) = &mut host.streams {
                streams.begin_turn();
                app.pump(now, streams, &mut self.recorder);
            }
        }
    }

    fn into_outcome(self, now: Instant) -> Result<Outcome, WorldError> {
        self.check_links()?;
        let reports = self.network.reports();
        let (parts, foreign_streams) = self.recorder.finish(now, self.failure.is_some());
        Ok(Outcome {
            scenario: self.scenario.name.clone(),
            world: NAME,
            seed: self.order.seed,
            paths: self.order.paths.clone(),
            connected_at: self.connected_at,
            ended_at: now,
            failure: self.failure,
            parts,
            path_outcomes: self.network.path_outcomes(&self.order.paths),
            link_outcomes: reports.link_outcomes(),
            fault_outcomes: self.proof.finish(self.scenario, |link| reports.of(link)),
            foreign_streams,
            components: Vec::new(),
            events_digest: None,
            notes: reports.notes(self.scenario),
        })
    }
}
