//! The links between the hosts, and the paths over them.

use std::rc::Rc;

use netem::{Link, LinkStats, Packet};
use quic::Unsealed;
use units::{Instant, Rng};

use crate::faults::scheduled;
use crate::model::Scenario;
use crate::outcome::{LinkOutcome, PathOutcome};

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Of the run's paths.
    pub(crate) path: usize,
    pub(crate) body: Body,
}

/// What a datagram is.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Bytes(Vec<u8>),
    /// This datagram of a plan, never sealed.
    Unsealed(Rc<Unsealed>, usize),
}

impl Packet for Frame {
    fn len_bytes(&self) -> usize {
        match &self.body {
            Body::Bytes(bytes) => bytes.len(),
            Body::Unsealed(unsealed, datagram) => unsealed.len_bytes(*datagram),
        }
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        if let Body::Unsealed(unsealed, datagram) = &self.body {
            let mut bytes = Vec::with_capacity(self.len_bytes());
            unsealed.seal_datagram(*datagram, &mut bytes);
            self.body = Body::Bytes(bytes);
        }
        if let Body::Bytes(bytes) = &mut self.body {
            bytes.corrupt(rng);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Network {
    /// The links in use: which of the scenario's, and both directions.
    links: Vec<(usize, [Link<Frame>; 2])>,
    /// Per path, the place of its link.
    routes: Vec<usize>,
    outcomes: Vec<PathOutcome>,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario, paths: &[usize], rng: &Rng) -> Self {
        let used = scenario.links_under(paths);
        let routes = paths.iter().map(|&path| used.partition_point(|&link| link < scenario.paths[path].link)).collect();
        let link = |index: usize| {
            let rng = rng.split(&format!("link {}", scenario.links[index].name));
            let direction = |direction, name| Link::new(scheduled(scenario, index, direction), rng.split(name));
            (index, [direction(0, "forward"), direction(1, "back")])
        };
        let outcomes = paths.iter().map(|&path| PathOutcome { path, ..PathOutcome::default() }).collect();
        Self { links: used.into_iter().map(link).collect(), routes, outcomes }
    }

    /// A datagram leaves; direction 0 leads to the receiving host.
    pub(crate) fn send(&mut self, now: Instant, direction: usize, frame: Frame) {
        let outcome = &mut self.outcomes[frame.path];
        outcome.datagrams[direction] += 1;
        outcome.bytes[direction] += frame.len_bytes() as u64;
        self.links[self.routes[frame.path]].1[direction].send(now, frame);
    }

    /// Hands out all datagrams that have arrived, with their directions. The counters are those of `now` then.
    pub(crate) fn receive(&mut self, now: Instant, mut take: impl FnMut(usize, Frame)) {
        for (_, directions) in &mut self.links {
            for (direction, link) in directions.iter_mut().enumerate() {
                while let Some(frame) = link.poll_deliver(now) {
                    take(direction, frame);
                }
            }
        }
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        let mut earliest: Option<Instant> = None;
        for (_, directions) in &self.links {
            for at in directions.iter().filter_map(Link::poll_timeout) {
                earliest = Some(earliest.map_or(at, |earliest| earliest.min(at)));
            }
        }
        earliest
    }

    /// The counters of one of the scenario's links, which is in use.
    pub(crate) fn stats(&self, link: usize) -> [LinkStats; 2] {
        let found = self.links.iter().find(|(index, _)| *index == link);
        let (_, [forward, back]) = found.expect("only links in use are asked about");
        [*forward.stats(), *back.stats()]
    }

    pub(crate) fn outcomes(&self) -> (Vec<PathOutcome>, Vec<LinkOutcome>) {
        let link = |(link, directions): &(usize, [Link<Frame>; 2])| LinkOutcome {
            link: *link,
            stats: [*directions[0].stats(), *directions[1].stats()],
        };
        (self.outcomes.clone(), self.links.iter().map(link).collect())
    }
}
