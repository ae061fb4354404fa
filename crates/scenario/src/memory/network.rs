//! The links between the hosts, and the paths over them.

use netem::{Link, LinkStats, Packet};
use units::Instant;

use super::books::Books;
use super::frame::{Body, Frame};
use crate::components::Component;
use crate::faults::scheduled;
use crate::model::Scenario;
use crate::outcome::{LinkOutcome, PathOutcome};
use crate::packets::{Sent, Sink, link_rng};
use crate::tape::Tape;

pub(crate) struct Network {
    /// The links in use: which of the scenario's, and both directions.
    links: Vec<(usize, [Line; 2])>,
    /// Per path, the place of its link.
    routes: Vec<usize>,
    /// When something may arrive, as [`Line::due`] of all of them.
    due: Option<Instant>,
    outcomes: Vec<PathOutcome>,
    digest: Digest,
    /// What is written down of the run, if anything is.
    pub(crate) tape: Option<Box<Tape>>,
    /// Who wants to hear of each datagram, and memory for its bytes.
    sink: Option<Sink>,
    bytes: Vec<u8>,
}

/// One direction of a link.
struct Line {
    link: Link<Frame>,
    books: Books,
    /// No packet arrives before, so nobody needs to ask. `None` if none does until it is sent one.
    due: Option<Instant>,
}

/// The earlier of two times, if there are any.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A number that stands for all that was sent and delivered, when and where, in this order.
#[derive(Clone, Copy, Debug, Default)]
struct Digest(u64);

impl Digest {
    /// Adds a datagram: the turn and multiplication of FxHash, which costs next to nothing. It finds differences, not forgers. A run of an
    /// hour is shorter than 2^42 ns, a datagram than 2^15 bytes, so time, length and place do not cover each other.
    fn add(&mut self, now: Instant, is_sent: bool, direction: usize, frame: &Frame) {
        let what = (frame.path() as u64) << 2 | (direction as u64) << 1 | u64::from(is_sent);
        let word = now.as_nanos() ^ (frame.len_bytes() as u64) << 42 ^ what << 57;
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
                Line { link, books: Books::default(), due: None }
            };
            (index, [line(0), line(1)])
        };
        let outcomes = paths.iter().map(|&path| PathOutcome { path, ..PathOutcome::default() }).collect();
        let links = used.into_iter().map(link).collect();
        let digest = Digest::default();
        Self { links, routes, due: None, outcomes, digest, tape: None, sink: None, bytes: Vec::new() }
    }

    /// Tells `sink` of each datagram that is sent from now on.
    pub(crate) fn listen(&mut self, sink: Sink) {
        self.sink = Some(sink);
    }

    /// A datagram leaves; direction 0 leads to the receiving host.
    pub(crate) fn send(&mut self, now: Instant, direction: usize, frame: Frame) {
        let outcome = &mut self.outcomes[frame.path()];
        if let Some(sink) = &mut self.sink {
            let (path, number) = (frame.path(), outcome.datagrams[direction]);
            let datagram = match frame.body() {
                Body::Bytes(bytes) => bytes,
                Body::Unsealed(parcel, datagram) => {
                    self.bytes.clear();
                    parcel.unsealed().seal_datagram(datagram, &mut self.bytes);
                    &self.bytes
                }
            };
            sink(&Sent { at: now, direction, path, number, datagram });
        }
        outcome.datagrams[direction] += 1;
        outcome.bytes[direction] += frame.len_bytes() as u64;
        self.digest.add(now, true, direction, &frame);
        let place = self.routes[frame.path()];
        let Line { link, books, due } = &mut self.links[place].1[direction];
        if let Some(tape) = &mut self.tape {
            tape.packet(now, place, direction, true, &frame);
        }
        let overflowed = link.stats().overflowed;
        frame.leave(now);
        link.send(now, frame);
        books.on_sent(now, link.held(), link.stats().overflowed > overflowed);
        *due = link.poll_timeout();
        self.due = earlier(self.due, *due);
        if let Some(tape) = &mut self.tape {
            tape.link(now, place, direction, link);
        }
    }

    /// Hands out all datagrams that have arrived, with their directions.
    pub(crate) fn receive(&mut self, now: Instant, mut take: impl FnMut(usize, Frame)) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        for (place, (_, lines)) in self.links.iter_mut().enumerate() {
            for (direction, Line { link, books, due }) in lines.iter_mut().enumerate() {
                if due.is_some_and(|due| due <= now) {
                    // Asked for again only if there is another: nearly always they arrive one by one.
                    while due.is_some_and(|due| due <= now) {
                        let frame = link.poll_deliver(now);
                        *due = link.poll_timeout();
                        let Some(frame) = frame else { break };
                        books.on_taken(now, link.held(), frame.since());
                        self.digest.add(now, false, direction, &frame);
                        if let Some(tape) = &mut self.tape {
                            tape.packet(now, place, direction, false, &frame);
                            tape.link(now, place, direction, link);
                        }
                        take(direction, frame);
                    }
                    books.on_looked(now, link.held());
                }
                self.due = earlier(self.due, *due);
            }
        }
    }

    /// Lets all links do what is to be done by `now`, but for handing out what has arrived: their counters are those of this moment then.
    pub(crate) fn catch_up(&mut self, now: Instant) {
        for Line { link, books, due } in self.links.iter_mut().flat_map(|(_, lines)| lines) {
            if due.is_none_or(|due| due > now) {
                link.catch_up(now);
                books.on_looked(now, link.held());
            }
        }
    }

    /// That every datagram sent has arrived, is lost for a known cause, or is under way, and that the time they spent in each link
    /// adds up.
    ///
    /// # Errors
    /// Which link does not, and why.
    pub(crate) fn check_books(&self, now: Instant) -> Result<(), String> {
        for (place, (link, lines)) in self.links.iter().enumerate() {
            for (direction, Line { link: line, books, .. }) in lines.iter().enumerate() {
                let over = |(route, outcome): (&usize, &PathOutcome)| {
                    if *route == place { outcome.datagrams[direction] } else { 0 }
                };
                let sent: u64 = self.routes.iter().zip(&self.outcomes).map(over).sum();
                let named = |words: String| format!("link {link}, direction {direction}: {words}");
                if sent != line.stats().offered {
                    return Err(named(format!("its paths sent {sent} datagrams, it had {}", line.stats().offered)));
                }
                books.check(now, line.stats(), line.held()).map_err(named)?;
            }
        }
        Ok(())
    }

    /// When to [receive](Self::receive) next.
    pub(crate) const fn timeout(&self) -> Option<Instant> {
        self.due
    }

    /// The counters of one of the scenario's links, which is in use.
    pub(crate) fn stats(&self, link: usize) -> [LinkStats; 2] {
        let found = self.links.iter().find(|(index, _)| *index == link);
        let (_, [forward, back]) = found.expect("only links in use are asked about");
        [*forward.link.stats(), *back.link.stats()]
    }

    /// Datagrams that links have got from a host, and that have arrived for it.
    pub(crate) fn totals(&self, host: usize) -> [u64; 2] {
        let sum = |of: fn(&LinkStats) -> u64, direction: usize| {
            self.links.iter().map(|(_, lines)| of(lines[direction].link.stats())).sum()
        };
        [sum(|stats| stats.offered, host), sum(|stats| stats.delivered, 1 - host)]
    }

    /// What stands for all events of the links.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest.0
    }

    /// How busy the links were until `now`.
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
        };
        (self.outcomes.clone(), self.links.iter().map(link).collect())
    }
}
