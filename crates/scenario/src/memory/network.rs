//! The links between the hosts, and the paths over them.

use netem::{Link, LinkStats, Packet};
use units::{Instant, Rng};

use crate::faults::scheduled;
use crate::model::Scenario;
use crate::outcome::{LinkOutcome, PathOutcome};

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// Of the run's paths.
    pub(super) path: usize,
    pub(super) bytes: Vec<u8>,
}

impl Packet for Frame {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn corrupt(&mut self, rng: &mut Rng) {
        self.bytes.corrupt(rng);
    }
}

#[derive(Debug)]
pub(super) struct Network {
    /// The links in use: which of the scenario's, and both directions.
    links: Vec<(usize, [Link<Frame>; 2])>,
    /// Per path, the place of its link.
    routes: Vec<usize>,
    outcomes: Vec<PathOutcome>,
}

impl Network {
    pub(super) fn new(scenario: &Scenario, paths: &[usize], rng: &Rng) -> Self {
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
    pub(super) fn send(&mut self, now: Instant, direction: usize, frame: Frame) {
        let outcome = &mut self.outcomes[frame.path];
        outcome.datagrams[direction] += 1;
        outcome.bytes[direction] += frame.bytes.len() as u64;
        self.links[self.routes[frame.path]].1[direction].send(now, frame);
    }

    /// The next datagram that has arrived, and in which direction. Call it until there is none: only then all counters are
    /// those of `now`.
    pub(super) fn receive(&mut self, now: Instant) -> Option<(usize, Frame)> {
        for (_, link) in &mut self.links {
            for (direction, link) in link.iter_mut().enumerate() {
                if let Some(frame) = link.poll_deliver(now) {
                    return Some((direction, frame));
                }
            }
        }
        None
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        self.links.iter().flat_map(|(_, link)| link).filter_map(Link::poll_timeout).min()
    }

    /// The counters of one of the scenario's links, which is in use.
    pub(super) fn stats(&self, link: usize) -> [LinkStats; 2] {
        let found = self.links.iter().find(|(index, _)| *index == link);
        let (_, [forward, back]) = found.expect("only links in use are asked about");
        [*forward.stats(), *back.stats()]
    }

    pub(super) fn outcomes(&self) -> (Vec<PathOutcome>, Vec<LinkOutcome>) {
        let link = |(link, directions): &(usize, [Link<Frame>; 2])| LinkOutcome {
            link: *link,
            stats: [*directions[0].stats(), *directions[1].stats()],
        };
        (self.outcomes.clone(), self.links.iter().map(link).collect())
    }
}
