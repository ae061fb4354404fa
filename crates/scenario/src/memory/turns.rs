//! A run of hosts without processing cost: their processors take all turns at one virtual time,
//! each followed by a turn of the application.

use std::rc::Rc;

use bytes::BytesMut;
use driver::Placement;
use quic::JournalSource;
use quic_driver::ByteDatagrams;
use units::Instant;

use super::accounting::Backlog;
use super::datagram::Datagram;
use super::env::VirtualClock;
use super::host::Host;
use super::lengths::Lengths;
use super::run::Run;
use super::runtime::VirtualRuntime;
use super::setup::HostSetup;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::world::{OnProgress, PayloadMode, RunPlan, WorldError};

/// Number of steps without progress of virtual time that counts as a livelock: far more than can
/// happen at one time.
const STALLED_STEPS_MAX: u32 = 1_000_000;

/// Maximum number of coalesced datagrams at a host: as many as one receive call takes.
pub(crate) const COALESCED_MAX: usize = 64;

/// Steps between two progress reports. One step may move a whole window.
const STEPS_PER_PROGRESS: u64 = 256;

/// A run of hosts without processing cost.
pub(crate) struct FreeRun {
    pub(crate) run: Run,
    hosts: [Host; 2],
    /// Hosts with events since their last turn.
    touched: [bool; 2],
    /// Time of the next turn of each host, as of their last turns.
    timeouts: [Option<Instant>; 2],
    /// Coalesced datagrams at each host, and the time of its interrupt.
    waiting: [Vec<Datagram>; 2],
    interrupt_at: [Option<Instant>; 2],
    stalled_steps: u32,
    /// Whether a host had work without end at one virtual time.
    is_stalled: bool,
    steps: u64,
}

impl FreeRun {
    /// Creates a run of hosts with these placements. `journals` records their connection.
    ///
    /// # Errors
    /// Fails if the scenario does not have these paths, or its settings are invalid.
    pub(crate) fn new(
        scenario: &Scenario,
        plan: &RunPlan,
        payload_mode: PayloadMode,
        placements: [Placement; 2],
        journals: Option<&JournalSource>,
    ) -> Result<Self, WorldError> {
        plan.validate(scenario)?;
        let (clock, path_count) = (VirtualClock::default(), plan.paths.len());
        let setups = [0, 1].map(|host| {
            let drivers = placements[host].driver_count();
            HostSetup::new(scenario, host, path_count, plan.seed, drivers, &clock, journals)
        });
        let host = |host: usize| match payload_mode {
            PayloadMode::Bytes => Host::new::<ByteDatagrams<BytesMut>>(&setups[host], placements[host]),
            PayloadMode::Lengths => Host::new::<Lengths>(&setups[host], placements[host]),
        };
        let hosts = [host(0)?, host(1)?];
        let runtimes = [0, 1].map(|host: usize| VirtualRuntime {
            inline: hosts[host].inline.as_ref().map(Rc::clone),
            local_addrs: setups[host].local_addrs(),
        });
        let mut run = Run::new(scenario, plan, payload_mode, &setups, runtimes);
        run.begin(&setups)?;
        Ok(Self {
            run,
            hosts,
            touched: [true, false],
            timeouts: [None; 2],
            waiting: [Vec::new(), Vec::new()],
            interrupt_at: [None; 2],
            stalled_steps: 0,
            is_stalled: false,
            steps: 0,
        })
    }

    /// Runs until the end.
    ///
    /// # Errors
    /// Fails if the callback stops the run, the recording fails, or virtual time stops.
    pub(crate) fn finish(mut self, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError> {
        self.go(on_progress)?;
        Ok(self.into_outcome())
    }

    /// Does the same as [`finish`](Self::finish), without the outcome.
    ///
    /// # Errors
    /// Same errors as `finish`.
    pub(crate) fn go(&mut self, on_progress: OnProgress<'_>) -> Result<(), WorldError> {
        loop {
            self.settle_touched();
            if self.run.is_over() || !self.step()? {
                let now = self.run.now();
                self.run.network.catch_up(now);
                return Ok(());
            }
            self.steps += 1;
            if self.steps.is_multiple_of(STEPS_PER_PROGRESS) {
                self.run.report_progress(on_progress)?;
            }
        }
    }

    /// Runs the turns of the hosts that have events. As on a real host, pacing releases data at the
    /// host's own events, not at events elsewhere.
    fn settle_touched(&mut self) {
        for host in 0..2 {
            if std::mem::take(&mut self.touched[host]) {
                self.settle(host);
            }
        }
    }

    /// Runs a host's due application work, then its processors and its application in turn until
    /// all are idle.
    fn settle(&mut self, host: usize) {
        let now = self.run.now();
        self.run.begin_due_items(host);
        // Under `inline`, calls of the application run turns, which may queue events for it.
        self.forward_sent(host);
        for turns in 0_u32.. {
            let due_at = self.hosts[host].processors.due_at(now);
            let is_due = due_at.is_some_and(|at| at <= now);
            if !is_due && !self.run.has_events(host) {
                self.timeouts[host] = due_at;
                return;
            }
            if turns > STALLED_STEPS_MAX {
                self.is_stalled = true;
                return;
            }
            if is_due {
                self.hosts[host].processors.take_turns(now);
                self.forward_sent(host);
            }
            self.run.run_application(host);
            self.forward_sent(host);
            let processors = &self.hosts[host].processors;
            self.run.record_connection(host, |look| processors.look_at_connection(look));
        }
    }

    /// Passes the datagrams that a host has sent to the links.
    fn forward_sent(&mut self, host: usize) {
        let mut sent = self.hosts[host].sent.borrow_mut();
        if sent.is_empty() {
            return;
        }
        let now = self.run.now();
        sent.drain(..).for_each(|datagram| self.run.network.send(now, host, datagram));
    }

    /// Advances to the next event; returns false at the end of the run.
    fn step(&mut self) -> Result<bool, WorldError> {
        let (now, app_at) = (self.run.now(), self.run.app_timeout(0));
        let mut next = self.run.end;
        let mut note = |at: Option<Instant>| next = next.min(at.unwrap_or(next));
        note(self.run.network.timeout());
        note(app_at);
        note(self.run.proof_timeout());
        self.timeouts.into_iter().for_each(&mut note);
        self.interrupt_at.into_iter().for_each(note);
        let next = next.max(now);
        if next >= self.run.end {
            self.run.clock.set(self.run.end);
            // Deliveries at the end time still count.
            self.receive();
            self.settle_touched();
            return Ok(false);
        }
        self.stalled_steps = if next > now { 0 } else { self.stalled_steps + 1 };
        if self.is_stalled || self.stalled_steps > STALLED_STEPS_MAX {
            return Err(WorldError::Livelock { at: now });
        }
        self.run.clock.set(next);
        self.receive();
        self.run.look_at_faults();
        self.touched[0] |= app_at.is_some_and(|at| at <= next);
        for host in 0..2 {
            self.touched[host] |= self.timeouts[host].is_some_and(|at| at <= next);
        }
        Ok(true)
    }

    /// Passes datagrams that arrive to the hosts' sockets, or coalesces them.
    fn receive(&mut self) {
        let now = self.run.now();
        let scenario = Rc::clone(&self.run.scenario);
        self.run.network.receive(now, |direction, datagram| {
            let host = 1 - direction;
            let coalesce = scenario.hosts[host].coalesce;
            if coalesce.is_zero() {
                self.touched[host] = true;
                self.hosts[host].arrivals[datagram.path()].push(datagram);
                return;
            }
            self.interrupt_at[host].get_or_insert(now + coalesce);
            self.waiting[host].push(datagram);
            if self.waiting[host].len() >= COALESCED_MAX {
                self.interrupt_at[host] = Some(now);
            }
        });
        for host in 0..2 {
            if self.interrupt_at[host].is_some_and(|at| at <= now) {
                self.interrupt_at[host] = None;
                self.touched[host] = true;
                for datagram in self.waiting[host].drain(..) {
                    self.hosts[host].arrivals[datagram.path()].push(datagram);
                }
            }
        }
    }

    /// Returns the outcome of the run.
    ///
    /// # Panics
    /// Panics if a datagram is unaccounted for.
    pub(crate) fn into_outcome(self) -> Outcome {
        let hosts = [0, 1].map(|number: usize| {
            let host = &self.hosts[number];
            let (mut in_queues, mut taken) = (0, 0);
            for queue in &host.arrivals {
                (in_queues, taken) = (in_queues + queue.len(), taken + queue.taken());
            }
            let counts = self.run.counts(number, host.processors.counts(), taken);
            (counts, Backlog { unsent: 0, untaken: (in_queues + self.waiting[number].len()) as u64 })
        });
        self.run.into_outcome(hosts)
    }
}
