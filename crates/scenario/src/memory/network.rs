//! The links between the hosts, and the paths over them.

use netem::{Link, LinkStats, Packet};
use units::Instant;

use super::accounting::LinkAccounting;
use super::datagram::{Body, Datagram};
use crate::components::Component;
use crate::faults::scheduled;
use crate::model::Scenario;
use crate::outcome::{LinkOutcome, PathOutcome};
use crate::recording::RecordingWriter;
use crate::seeds::link_rng;
use crate::sent_datagram::{DatagramSink, SentDatagram};
use crate::timeline::Timeline;

pub(crate) struct Network {
    /// The links in use: index in the scenario, and both directions.
    links: Vec<(usize, [Line; 2])>,
    /// For each path, the position of its link in `links`.
    routes: Vec<usize>,
    /// The earliest [`Line::due`].
    due: Option<Instant>,
    outcomes: Vec<PathOutcome>,
    digest: Digest,
    /// The recording of the run, if any.
    pub(crate) recording: Option<Box<RecordingWriter>>,
    /// Receives each sent datagram.
    sink: Option<DatagramSink>,
    bytes: Vec<u8>,
}

/// One direction of a link.
struct Line {
    link: Link<Datagram>,
    accounting: LinkAccounting,
    /// UDP payload that arrived over time; only towards the receiving host.
    delivered: Timeline,
    /// Lower bound of the next arrival. `None` if the link is empty.
    due: Option<Instant>,
}

/// Returns the earlier of two optional times.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A digest of all sent and delivered datagrams, with time, place and order.
#[derive(Clone, Copy, Debug, Default)]
struct Digest(u64);

impl Digest {
    /// Adds a datagram by FxHash's rotation and multiplication, which is cheap. It detects
    /// differences, not forgeries. A run of an hour is shorter than 2^42 ns and a datagram shorter
    /// than 2^15 bytes, so time, length and place use separate bits.
    fn add(&mut self, now: Instant, is_sent: bool, direction: usize, datagram: &Datagram) {
        let what = (datagram.path() as u64) << 2 | (direction as u64) << 1 | u64::from(is_sent);
        let word = now.as_nanos() ^ (datagram.len_bytes() as u64) << 42 ^ what << 57;
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Network {
    pub(crate) fn new(scenario: &Scenario, paths: &[usize], seed: u64) -> Self {
        let used = scenario.links_under(paths);
        let routes = paths.iter().map(|&path| used.partition_point(|&link| link < scenario.paths[path].link)).collect();
        let link = |index: usize| {
            let line = |direction| {
                let rng = link_rng(seed, &scenario.links[index].name, direction);
                let link = Link::new(scheduled(scenario, index, direction), rng);
                Line { link, accounting: LinkAccounting::default(), delivered: Timeline::default(), due: None }
            };
            (index, [line(0), line(1)])
        };
        let outcomes = paths.iter().map(|&path| PathOutcome { path, ..PathOutcome::default() }).collect();
        let links = used.into_iter().map(link).collect();
        let digest = Digest::default();
        Self { links, routes, due: None, outcomes, digest, recording: None, sink: None, bytes: Vec::new() }
    }

    /// Passes each datagram that is sent from now on to `sink`.
    pub(crate) fn set_sink(&mut self, sink: DatagramSink) {
        self.sink = Some(sink);
    }

    /// Sends a datagram; direction 0 is towards the receiving host.
    pub(crate) fn send(&mut self, now: Instant, direction: usize, datagram: Datagram) {
        let outcome = &mut self.outcomes[datagram.path()];
        if let Some(sink) = &mut self.sink {
            let (path, number) = (datagram.path(), outcome.datagrams[direction]);
            let datagram = match datagram.body() {
                Body::Bytes(bytes) => bytes,
                Body::Unsealed(in_flight, index) => {
                    self.bytes.clear();
                    in_flight.unsealed().seal_datagram(index, &mut self.bytes);
                    &self.bytes
                }
            };
            sink(&SentDatagram { at: now, direction, path, number, datagram });
        }
        outcome.datagrams[direction] += 1;
        outcome.bytes[direction] += datagram.len_bytes() as u64;
        self.digest.add(now, true, direction, &datagram);
        let place = self.routes[datagram.path()];
        let Line { link, accounting, due, .. } = &mut self.links[place].1[direction];
        if let Some(recording) = &mut self.recording {
            recording.packet(now, place, direction, true, &datagram);
        }
        let overflowed = link.stats().overflowed;
        datagram.leave(now);
        link.send(now, datagram);
        accounting.on_sent(now, link.held(), link.stats().overflowed > overflowed);
        *due = link.poll_timeout();
        self.due = earlier(self.due, *due);
        if let Some(recording) = &mut self.recording {
            recording.link(now, place, direction, link);
        }
    }

    /// Passes all datagrams that have arrived to `take`, with their directions.
    pub(crate) fn receive(&mut self, now: Instant, mut take: impl FnMut(usize, Datagram)) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        for (place, (_, lines)) in self.links.iter_mut().enumerate() {
            for (direction, Line { link, accounting, delivered, due }) in lines.iter_mut().enumerate() {
                if due.is_some_and(|due| due <= now) {
                    // Datagrams nearly always arrive one at a time, so poll again only if another
                    // is due.
                    while due.is_some_and(|due| due <= now) {
                        let datagram = link.poll_deliver(now);
                        *due = link.poll_timeout();
                        let Some(datagram) = datagram else { break };
                        accounting.on_taken(now, link.held(), datagram.since());
                        if direction == 0 {
                            delivered.add(now, datagram.len_bytes() as u64);
                        }
                        self.digest.add(now, false, direction, &datagram);
                        if let Some(recording) = &mut self.recording {
                            recording.packet(now, place, direction, false, &datagram);
                            recording.link(now, place, direction, link);
                        }
                        take(direction, datagram);
                    }
                    accounting.on_level(now, link.held());
                }
                self.due = earlier(self.due, *due);
            }
        }
    }

    /// Advances all links to `now` without delivering packets, so that their counters are current.
    pub(crate) fn catch_up(&mut self, now: Instant) {
        for Line { link, accounting, due, .. } in self.links.iter_mut().flat_map(|(_, lines)| lines) {
            if due.is_none_or(|due| due > now) {
                link.catch_up(now);
                accounting.on_level(now, link.held());
            }
        }
    }

    /// Checks that every sent datagram has arrived, was lost for a known cause, or is in flight,
    /// and that the times in each link are consistent.
    ///
    /// # Errors
    /// Returns the link that violates this, and how.
    pub(crate) fn check_conservation(&self, now: Instant) -> Result<(), String> {
        for (place, (link, lines)) in self.links.iter().enumerate() {
            for (direction, Line { link: line, accounting, .. }) in lines.iter().enumerate() {
                let over = |(route, outcome): (&usize, &PathOutcome)| {
                    if *route == place { outcome.datagrams[direction] } else { 0 }
                };
                let sent: u64 = self.routes.iter().zip(&self.outcomes).map(over).sum();
                let named = |message: String| format!("link {link}, direction {direction}: {message}");
                if sent != line.stats().offered {
                    return Err(named(format!(
                        "its paths sent {sent} datagrams, but it counted {}",
                        line.stats().offered
                    )));
                }
                accounting.check(now, line.stats(), line.held()).map_err(named)?;
            }
        }
        Ok(())
    }

    /// Returns when to [receive](Self::receive) next.
    pub(crate) const fn timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the counters of a link in use, by its index in the scenario.
    pub(crate) fn stats(&self, link: usize) -> [LinkStats; 2] {
        let found = self.links.iter().find(|(index, _)| *index == link);
        let (_, [forward, back]) = found.expect("only links in use are asked about");
        [*forward.link.stats(), *back.link.stats()]
    }

    /// Returns the numbers of datagrams that a host offered to its links, and that they delivered
    /// to it.
    pub(crate) fn totals(&self, host: usize) -> [u64; 2] {
        let sum = |of: fn(&LinkStats) -> u64, direction: usize| {
            self.links.iter().map(|(_, lines)| of(lines[direction].link.stats())).sum()
        };
        [sum(|stats| stats.offered, host), sum(|stats| stats.delivered, 1 - host)]
    }

    /// Returns the digest of all sends and deliveries.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest.0
    }

    /// Returns the statistics of the links until `now`.
    pub(crate) fn components(&self, scenario: &Scenario, now: Instant) -> Vec<Component> {
        let of = |(index, lines): &(usize, [Line; 2])| {
            let name = &scenario.links[*index].name;
            let [forward, back] = lines;
            [Component::link(name, "forward", &forward.link, now), Component::link(name, "back", &back.link, now)]
        };
        self.links.iter().flat_map(of).collect()
    }

    pub(crate) fn outcomes(&self) -> (Vec<PathOutcome>, Vec<LinkOutcome>) {
        let link = |(link, lines): &(usize, [Line; 2])| LinkOutcome {
            link: *link,
            stats: lines.each_ref().map(|line| *line.link.stats()),
            delivered: lines[0].delivered.clone(),
        };
        (self.outcomes.clone(), self.links.iter().map(link).collect())
    }
}
