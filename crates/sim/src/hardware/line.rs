//! Point-to-point links: one direction, with the link model of [`netem`] and thus its queue, rate,
//! faults, delays and schedules.

use std::cell::RefCell;
use std::rc::Rc;

use netem::{Ecn, Link, LinkConfig, LinkStats, Packet};
use units::{Duration, Instant, Rng};

use super::config_error::ConfigError;
use crate::hardware::component_process::{ComponentProcess, TimedComponent};
use crate::kernel::Sim;
use crate::observe::{Accounting, ComponentReport, Observed, Tally};
use crate::store::Store;

/// A packet that arrives at the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<T> {
    /// Its length in bytes, without the line's overhead.
    pub bytes: usize,
    /// Time at which it was offered.
    pub sent: Instant,
    /// True if a fault corrupted it.
    pub corrupted: bool,
    /// Its ECN codepoint.
    pub ecn: Ecn,
    /// Payload of the model. A duplicated packet has its own clone.
    pub item: T,
}

/// One direction of a link. Cheap to clone: all clones are the same line. Packets carry a `T`,
/// which is cloned when the line duplicates a packet.
pub struct Line<T: Clone + 'static> {
    inner: Rc<Inner<T>>,
}

impl<T: Clone + 'static> Clone for Line<T> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

struct Inner<T: Clone + 'static> {
    sim: Sim,
    name: String,
    link: RefCell<Link<Carried<T>>>,
    stats: Rc<RefCell<LineStats>>,
    process: ComponentProcess<Delivered<T>>,
}

/// Statistics maintained by the packets: a link does not report which packets it drops.
#[derive(Default)]
struct LineStats {
    accounting: Accounting,
    sojourns: Tally,
    /// The link's counters at the end of the warm-up.
    before: LinkStats,
    since: Instant,
}

/// A packet on the line. When it is dropped, by the link or after its arrival, it is counted as
/// departed.
struct Carried<T> {
    packet: Delivered<T>,
    /// Time of its creation; a duplicate is created during the transfer.
    began: Instant,
    sim: Sim,
    stats: Rc<RefCell<LineStats>>,
}

impl<T: Clone> Carried<T> {
    fn new(packet: Delivered<T>, sim: &Sim, stats: &Rc<RefCell<LineStats>>) -> Self {
        stats.borrow_mut().accounting.arrive(sim.now());
        Self { packet, began: sim.now(), sim: sim.clone(), stats: Rc::clone(stats) }
    }
}

impl<T> Drop for Carried<T> {
    fn drop(&mut self) {
        self.stats.borrow_mut().accounting.depart(self.sim.now(), self.began);
    }
}

impl<T: Clone> Packet for Carried<T> {
    fn len_bytes(&self) -> usize {
        self.packet.bytes
    }

    fn duplicate(&self) -> Self {
        Self::new(self.packet.clone(), &self.sim, &self.stats)
    }

    fn corrupt(&mut self, _rng: &mut Rng) {
        self.packet.corrupted = true;
    }

    fn mark_ce(&mut self) -> bool {
        if self.packet.ecn == Ecn::Incapable {
            return false;
        }
        self.packet.ecn = Ecn::Marked;
        true
    }
}

impl<T: Clone + 'static> Line<T> {
    /// Creates a line called `name`. Its faults use the random stream `name faults`.
    ///
    /// # Errors
    /// Fails if [`LinkConfig::validate`] rejects `config`; `why` names the field.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: LinkConfig) -> Result<Self, ConfigError> {
        config.validate().map_err(|error| ConfigError::new(name, error.to_string()))?;
        let rng = sim.stream(&format!("{name} faults")).into_rng();
        let inner = Rc::new(Inner {
            sim: sim.clone(),
            name: name.to_owned(),
            link: RefCell::new(Link::new(config, rng)),
            stats: Rc::default(),
            process: ComponentProcess::new(sim),
        });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        ComponentProcess::start(&inner, 1);
        Ok(Self { inner })
    }

    /// Offers a packet of `bytes` bytes that is not ECN-capable. [`stats`](Self::stats) shows
    /// whether the link accepted it.
    pub fn send(&self, bytes: usize, item: T) {
        self.send_with(bytes, Ecn::Incapable, item);
    }

    /// Offers a packet of `bytes` bytes.
    pub fn send_with(&self, bytes: usize, ecn: Ecn, item: T) {
        let Inner { sim, stats, link, process, .. } = &*self.inner;
        let packet = Delivered { bytes, sent: sim.now(), corrupted: false, ecn, item };
        let carried = Carried::new(packet, sim, stats);
        link.borrow_mut().send(sim.now(), carried);
        self.inner.trace_held();
        process.arm(self.inner.next_event());
    }

    /// Calls `receiver` with each packet that arrives. Replaces the previous receiver. Without a
    /// receiver, packets are refused.
    pub fn on_delivery(&self, receiver: impl FnMut(Delivered<T>) + 'static) {
        self.inner.process.set_receiver(0, receiver);
    }

    /// Puts each packet that arrives into `store`. Packets that find it full are refused and
    /// dropped.
    pub fn deliver_into(&self, store: Store<Delivered<T>>) {
        let inner = Rc::downgrade(&self.inner);
        self.on_delivery(move |packet| {
            if store.try_put(packet).is_err()
                && let Some(inner) = inner.upgrade()
            {
                inner.process.refuse();
            }
        });
    }

    /// Changes the configuration from now on, like [`Link::set_config`].
    ///
    /// # Errors
    /// Fails if [`LinkConfig::validate`] rejects `config`.
    pub fn set_config(&self, config: LinkConfig) -> Result<(), ConfigError> {
        config.validate().map_err(|error| ConfigError::new(self.inner.name.clone(), error.to_string()))?;
        self.inner.link.borrow_mut().set_config(self.inner.sim.now(), config);
        self.inner.process.arm(self.inner.next_event());
        Ok(())
    }

    /// Returns the link's counters since the start of the run, as of its last event.
    pub fn stats(&self) -> LinkStats {
        *self.inner.link.borrow().stats()
    }

    /// Returns the number of packets queued, in transmission and in flight, as of the last event.
    pub fn held(&self) -> usize {
        self.inner.link.borrow().held()
    }

    /// Returns the number of packets refused since the start of the run, because there was no
    /// receiver or the store was full.
    pub fn refused(&self) -> u64 {
        self.inner.process.refused()
    }

    /// Returns the statistics since the end of the warm-up. `served` and `mean_sojourn` cover
    /// packets that arrived, `mean_wait` those whose transmission started. The numbers present
    /// include lost packets until the link determines their loss. The utilisation is the share of
    /// time in which sent packets occupied the line, at the rates of that time. It is zero for
    /// lines without a rate or with a trace.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl<T: Clone + 'static> Inner<T> {
    fn trace_held(&self) {
        self.sim.trace(|trace| trace.level(&self.name, self.sim.now(), self.link.borrow().held() as u64));
    }
}

impl<T: Clone + 'static> TimedComponent<Delivered<T>> for Inner<T> {
    fn process(&self) -> &ComponentProcess<Delivered<T>> {
        &self.process
    }

    fn advance(&self, _now: Instant) {}

    fn pop_arrival(&self, now: Instant) -> Option<(usize, Delivered<T>)> {
        let carried = self.link.borrow_mut().poll_deliver(now)?;
        self.trace_held();
        self.stats.borrow_mut().sojourns.add(now.saturating_since(carried.packet.sent).as_nanos() as f64);
        Some((0, carried.packet.clone()))
    }

    fn next_event(&self) -> Option<Instant> {
        self.link.borrow().poll_timeout()
    }
}

impl<T: Clone + 'static> Observed for Inner<T> {
    fn reset(&self, now: Instant) {
        let mut stats = self.stats.borrow_mut();
        stats.accounting.reset(now);
        stats.sojourns = Tally::default();
        stats.before = *self.link.borrow().stats();
        stats.since = now;
    }

    fn report(&self, now: Instant) -> ComponentReport {
        let stats = self.stats.borrow();
        let (counters, before) = (*self.link.borrow().stats(), stats.before);
        // With a trace, packets take no time at their opportunity, which says nothing about
        // utilisation.
        let has_trace = self.link.borrow().config().trace.is_some();
        let on_line = if has_trace { Duration::ZERO } else { counters.on_line.saturating_sub(before.on_line) };
        let mut report = stats.accounting.report(&self.name, now, None, u128::from(on_line.as_nanos()));
        // A packet in transmission at the end of the warm-up is counted in full, so a short
        // measurement could exceed 1.
        report.utilisation = report.utilisation.min(1.0);
        report.served = stats.sojourns.count();
        report.mean_sojourn = Duration::from_nanos(stats.sojourns.mean().round() as u64);
        let waited = counters.queue_delay_sum.saturating_sub(before.queue_delay_sum);
        report.mean_wait = waited / (counters.carried - before.carried).max(1);
        report
    }
}

#[cfg(test)]
mod tests {
    use netem::LengthOnly;
    use units::{Rate, Ratio};

    use super::*;
    use crate::kernel::Simulation;

    fn faulty() -> LinkConfig {
        LinkConfig {
            rate: Some(Rate::from_mbps(10)),
            delay: Duration::from_millis(3),
            loss: Ratio::new(1, 20),
            duplicate: Ratio::new(1, 50),
            reorder: Ratio::new(1, 30),
            reorder_by: Duration::from_millis(2),
            queue_bytes: 20_000,
            ..LinkConfig::default()
        }
    }

    /// Returns offers: (time, length).
    fn offers() -> Vec<(Instant, usize)> {
        let mut stream = crate::Stream::new(3, 0, "offers");
        let mut at = Instant::ZERO;
        let mut offer = || {
            at += stream.exponential(Duration::from_micros(700));
            (at, 40 + stream.below(1_460) as usize)
        };
        (0..5_000).map(|_| offer()).collect()
    }

    #[test]
    fn packets_arrive_at_the_times_of_the_bare_link() {
        let mut simulation = Simulation::new(5, 2);
        let sim = simulation.sim();
        let line = Line::new(&sim, "line", faulty()).unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (log, clock, sender) = (Rc::clone(&seen), sim.clone(), line.clone());
        line.on_delivery(move |packet| log.borrow_mut().push((clock.now(), packet.bytes)));
        let clock = sim.clone();
        simulation.spawn(async move {
            for (at, bytes) in offers() {
                clock.sleep_until(at).await;
                sender.send(bytes, ());
            }
        });
        simulation.run();
        // The same link without a simulator.
        let mut link: Link<LengthOnly> = Link::new(faulty(), sim.stream("line faults").into_rng());
        let mut expected = Vec::new();
        let mut to_come = offers().into_iter().peekable();
        loop {
            let offered = to_come.peek().map(|&(at, _)| at);
            let Some(now) = link.poll_timeout().into_iter().chain(offered).min() else { break };
            while let Some(packet) = link.poll_deliver(now) {
                expected.push((now, packet.bytes));
            }
            if offered == Some(now) {
                link.send(now, LengthOnly::new(to_come.next().unwrap().1));
            }
        }
        assert_eq!(*seen.borrow(), expected);
        let (stats, report) = (line.stats(), line.report());
        assert_eq!(stats, *link.stats());
        assert!(stats.lost > 100 && stats.duplicated > 50 && stats.overflowed > 5, "{stats:?}");
        assert_eq!((report.served, line.held()), (stats.delivered, 0));
    }

    #[test]
    fn the_report_matches_the_rate() {
        let config = LinkConfig { loss: Ratio::ZERO, duplicate: Ratio::ZERO, reorder: Ratio::ZERO, ..faulty() };
        let mut simulation = Simulation::new(5, 2);
        let (sim, clock) = (simulation.sim(), simulation.sim());
        let line = Line::new(&sim, "line", config).unwrap();
        let (sender, store) = (line.clone(), Store::new(&sim, "end", 10));
        line.deliver_into(store);
        simulation.spawn(async move {
            loop {
                // Two at a time, 1 ms each; the second one waits.
                for _ in 0..2 {
                    sender.send(1_250, ());
                }
                clock.sleep(Duration::from_millis(4)).await;
            }
        });
        simulation.run_measured(Duration::from_millis(400), Duration::from_millis(400));
        let report = line.report();
        assert_eq!((report.served, report.mean_wait), (200, Duration::from_micros(500)));
        assert_eq!(report.mean_sojourn, Duration::from_micros(4_500));
        assert!((report.utilisation - 0.5).abs() < 0.01, "{report:?}");
        assert!((report.mean_number - 2.25).abs() < 0.02, "{report:?}");
        assert!(line.refused() > 300, "the store is full");
    }

    #[test]
    fn utilisation_uses_the_rate_at_the_time_of_sending() {
        for (before_mbps, after_mbps, expected) in [(10, 20, 0.375), (20, 10, 0.375), (10, 5, 0.75)] {
            let of =
                |mbps| LinkConfig { rate: Some(Rate::from_mbps(mbps)), queue_bytes: 20_000, ..LinkConfig::default() };
            let mut simulation = Simulation::new(5, 2);
            let (sim, clock) = (simulation.sim(), simulation.sim());
            let line = Line::new(&sim, "line", of(before_mbps)).unwrap();
            line.on_delivery(|_| {});
            let sender = line.clone();
            simulation.spawn(async move {
                // 1 ms at 10 Mb/s, every 2 ms.
                for packet in 0..400 {
                    if packet == 200 {
                        sender.set_config(of(after_mbps)).unwrap();
                    }
                    sender.send(1_250, ());
                    clock.sleep(Duration::from_millis(2)).await;
                }
            });
            simulation.run_measured(Duration::ZERO, Duration::from_millis(800));
            let report = line.report();
            assert!((report.utilisation - expected).abs() < 0.005, "{expected}: {report:?}");
        }
    }

    #[test]
    fn an_invalid_link_is_rejected() {
        let simulation = Simulation::new(1, 0);
        let config = LinkConfig { rate: Some(Rate::from_bps(0)), ..LinkConfig::default() };
        let error = Line::<()>::new(&simulation.sim(), "uplink", config).err().unwrap();
        assert_eq!(error.key, "uplink");
        assert!(error.why.contains("rate"), "{error}");
    }
}
