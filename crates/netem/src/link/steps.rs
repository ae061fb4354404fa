//! Events between two calls, processed one by one as of their times.

use units::Instant;

use super::{Link, PACKETS_HELD_MAX};
use crate::config::{Discipline, LinkConfig};
use crate::packet::Packet;
use crate::queue::Waiting;
use crate::schedule::LineState;

impl<P: Packet> Link<P> {
    /// Processes all events up to `now`: at most two per packet over its lifetime, and one per
    /// scheduled change while packets wait or are in transmission.
    #[inline]
    pub(super) fn advance(&mut self, now: Instant) {
        if now >= self.idle_until {
            self.step_until(now);
        }
    }

    fn step_until(&mut self, now: Instant) {
        loop {
            let change_at = self.next_change_at();
            // At equal times the departure comes first, then the change, then the start: see
            // `Link`.
            let departure = self.line.departure();
            let start = if departure.is_none() { self.next_start() } else { None };
            if let Some(departure) = departure
                && departure <= now
                && change_at.is_none_or(|change_at| departure <= change_at)
            {
                self.depart(departure);
            } else if let Some(start) = start
                && start <= now
                && change_at.is_none_or(|change_at| start < change_at)
            {
                self.start(start);
            } else if let Some(change_at) = change_at
                && change_at <= now
            {
                self.change(change_at, now);
            } else {
                let next = departure.or(start).into_iter().chain(change_at).min();
                self.idle_until = next.unwrap_or(Instant::from_nanos(u64::MAX));
                self.arrival_from_line = self.next_arrival_from_line();
                return;
            }
        }
    }

    /// Returns a lower bound of the arrival of all packets that wait or are in transmission. `None`
    /// if none will arrive.
    pub(super) fn next_arrival_from_line(&self) -> Option<Instant> {
        let change_at = self.next_change_at();
        let Some(step) = self.line.departure().or_else(|| self.next_start()) else {
            let waits = !self.line.is_idle() || !self.queue.is_empty();
            return change_at.filter(|_| waits && self.will_resume());
        };
        let config = &self.config;
        let arrival = match &config.jitter {
            None => step + config.delay,
            Some(jitter) if jitter.reorders => step + jitter.shortest(config.delay),
            Some(jitter) => (step + jitter.shortest(config.delay)).max(self.order_floor),
        };
        // A change may make packets arrive earlier or later, but not before the change.
        Some(change_at.map_or(arrival, |change_at| arrival.min(change_at)))
    }

    fn next_change_at(&self) -> Option<Instant> {
        let schedule = self.config.schedule.as_ref()?;
        self.cursor.next_change(schedule).map(|(at, _)| at)
    }

    fn will_resume(&self) -> bool {
        self.config.schedule.as_ref().is_some_and(|schedule| self.cursor.resumes(schedule))
    }

    /// Returns the start of the next transmission; `None` if no packet waits, or the line is busy
    /// or stopped.
    fn next_start(&self) -> Option<Instant> {
        self.line.ready_at(self.queue.first_since()?)
    }

    fn start(&mut self, at: Instant) {
        let waiting = match &self.config.discipline {
            Discipline::DropTail => self.queue.pop(),
            Discipline::CoDel(codel) => self.codel.dequeue(at, codel, &mut self.queue, &mut self.stats),
            Discipline::Step(threshold) => {
                let mut waiting = self.queue.pop();
                if let Some(Waiting { since, packet, .. }) = &mut waiting {
                    let is_late = at.saturating_since(*since) > *threshold && packet.is_scalable();
                    self.stats.marked += u64::from(is_late && packet.mark_ce());
                }
                waiting
            }
        };
        let Some(Waiting { since, line_bytes, packet }) = waiting else { return };
        let waited = at.saturating_since(since);
        self.stats.carried += 1;
        self.stats.carried_bytes += line_bytes;
        self.stats.queue_delay_sum += waited;
        self.stats.queue_delay_max = self.stats.queue_delay_max.max(waited);
        self.drops_on_departure = self.config.state == LineState::Silent;
        self.line.start(since, at, line_bytes, packet);
        self.on_line_since = at;
    }

    /// Applies the next change of the schedule, at `at`.
    fn change(&mut self, at: Instant, now: Instant) {
        let Some(schedule) = self.config.schedule.clone() else { return };
        let is_at_rest = self.line.is_idle() && self.queue.is_empty();
        if is_at_rest || (self.line.is_stopped() && !self.will_resume()) {
            self.cursor.skip_rounds(now, &schedule);
        }
        let Some((_, change)) = self.cursor.next_change(&schedule) else { return };
        let mut config = self.config.clone();
        change.apply(&mut config);
        self.cursor.advance(&schedule);
        self.apply_config(at, config);
    }

    /// Replaces the settings at `at` and updates the dependent state.
    pub(super) fn apply_config(&mut self, at: Instant, config: LinkConfig) {
        let old = core::mem::replace(&mut self.config, config);
        let new = &self.config;
        if (old.rate, &old.trace) != (new.rate, &new.trace) {
            self.line.set_capacity(at, new.rate, new.trace.as_ref());
        }
        match (old.state == LineState::Held, new.state == LineState::Held) {
            (false, true) => self.line.stop(at),
            (true, false) => self.line.resume(at),
            _ => {}
        }
        self.drops_on_departure |= new.state == LineState::Silent;
        self.has_faults = new.has_faults();
        if old.discipline != new.discipline {
            self.codel = Default::default();
        }
        if old.burst_loss.is_none() {
            self.faults.bursts.recover();
        }
        if (old.delay, old.jitter) != (new.delay, new.jitter) {
            // The delay belongs to a new route: packets on the old one do not constrain the order
            // on the new one.
            self.order_floor = Instant::ZERO;
        }
        self.queue_bytes_max = new.queue_bytes_max();
        self.idle_until = Instant::ZERO;
    }

    /// Processes the departure of a packet with its faults, which occur after the line: a lost
    /// packet has consumed the line's rate, a copy does not.
    fn depart(&mut self, departure: Instant) {
        let Some(packet) = self.line.finish() else { return };
        self.stats.on_line += departure.saturating_since(self.on_line_since);
        if !self.has_faults && !self.drops_on_departure {
            // This has the same effect as the code below if no fault is set and nothing is drawn.
            self.flight.push(departure + self.config.delay, packet);
            return;
        }
        // Each fault is drawn for every packet, so that a change of one probability does not change
        // which packets another affects.
        let lost = self.faults.loss.chance(self.config.loss);
        let lost_in_burst = self.config.burst_loss.as_ref().is_some_and(|loss| self.faults.bursts.step(loss));
        let duplicated = self.faults.duplicate.chance(self.config.duplicate);
        if core::mem::take(&mut self.drops_on_departure) {
            self.stats.vanished += 1;
            return;
        }
        if lost_in_burst {
            self.stats.lost_in_bursts += 1;
            return;
        }
        if lost {
            self.stats.lost += 1;
            return;
        }
        let copy = (duplicated && self.held() + 1 < PACKETS_HELD_MAX).then(|| packet.duplicate());
        self.propagate(departure, packet);
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.propagate(departure, copy);
        }
    }

    fn propagate(&mut self, departure: Instant, mut packet: P) {
        if self.faults.corrupt.chance(self.config.corrupt) && packet.len_bytes() > 0 {
            packet.corrupt(&mut self.faults.corrupt_where);
            self.stats.corrupted += 1;
        }
        let arrival = self.arrival(departure);
        if self.faults.reorder.chance(self.config.reorder) {
            self.stats.reordered += 1;
            self.flight.push_late(arrival + self.config.reorder_by, packet);
        } else {
            self.flight.push(arrival, packet);
        }
    }

    fn arrival(&mut self, departure: Instant) -> Instant {
        let Some(jitter) = &self.config.jitter else { return departure + self.config.delay };
        let arrival = departure + jitter.draw(self.config.delay, &mut self.faults.jitter);
        if jitter.reorders {
            return arrival;
        }
        self.order_floor = self.order_floor.max(arrival);
        self.order_floor
    }
}
