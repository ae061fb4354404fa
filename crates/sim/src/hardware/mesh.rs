//! What joins the processors of a machine with distributed memory: a linear array, a mesh, a crossbar.
//!
//! Messages go from neighbour to neighbour over links that carry one message at a time, each way by itself. On the way through a mesh
//! they follow the row first and then the column, so no two of them wait for each other in a circle; in an array or a mesh with
//! wrap-around they take the shorter way round.
//!
//! The order of a link is that of asking for it. Under [`Forwarding::Wormhole`] a message asks for all its links when it sets out and
//! keeps each from the moment its head is there until its tail has arrived: its way is known at once, and it costs one event.

use std::cell::RefCell;
use std::rc::Rc;

use units::{Duration, Instant, Rate};

use crate::hardware::ConfigError;
use crate::kernel::Sim;
use crate::observe::{Ledger, Observed, Report};

/// Who has whom for a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// One behind the other.
    LinearArray {
        /// How many.
        processors: usize,
        /// Whether the last is the first one's left neighbour.
        wraps: bool,
    },
    /// In rows; processor `row * columns + column`.
    Mesh {
        /// Processors of a row.
        columns: usize,
        /// Rows.
        rows: usize,
        /// Whether the ends of each row and each column are neighbours.
        wraps: bool,
    },
    /// Each with each. A processor sends one message at a time, and takes one at a time.
    Crossbar {
        /// How many.
        processors: usize,
    },
}

/// How a message gets over several links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// Each processor on the way takes it whole and then hands it on.
    StoreAndForward,
    /// It stretches over its links.
    Wormhole,
}

/// A network of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeshConfig {
    /// Who has whom for a neighbour.
    pub topology: Topology,
    /// How a message gets over several links.
    pub forwarding: Forwarding,
    /// What a link carries.
    pub rate: Rate,
    /// What a message takes above its bytes, once, at its first link.
    pub startup: Duration,
    /// What it takes above its bytes at each link.
    pub hop: Duration,
}

/// A network of processors. Cheap to clone: all clones are the same network.
#[derive(Clone)]
pub struct Mesh {
    inner: Rc<Inner>,
}

struct Inner {
    sim: Sim,
    name: String,
    config: MeshConfig,
    state: RefCell<State>,
}

/// The links of a message on its way, each with the time from which the message has it.
type Kept = Vec<(usize, Instant)>;

struct State {
    links: Vec<Link>,
    /// Memory of ways that were gone, for messages to come: never more of them than messages were under way at once.
    spare: Vec<Kept>,
    ledger: Ledger,
    since: Instant,
}

#[derive(Clone, Default)]
struct Link {
    /// When it will have carried all it was given.
    free_at: Instant,
    /// Nanoseconds that messages which have arrived kept it, since the last reset.
    busy_ns: u128,
}

/// From a processor towards another: four directions of a mesh, out of and into a crossbar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Right,
    Left,
    Down,
    Up,
}

const WAYS: usize = 4;

/// Processors of a network at most: the links of so many take 8 MiB.
pub const PROCESSORS_MAX: usize = 1 << 16;

impl Topology {
    /// How many processors it has; `usize::MAX` if there are more, which no [`Mesh`] has.
    pub const fn processors(self) -> usize {
        match self {
            Self::LinearArray { processors, .. } | Self::Crossbar { processors } => processors,
            Self::Mesh { columns, rows, .. } => columns.saturating_mul(rows),
        }
    }

    /// How many links a message from `from` to `to` crosses. A crossbar counts as one.
    pub fn hops(self, from: usize, to: usize) -> usize {
        if let Self::Crossbar { .. } = self {
            return usize::from(from != to);
        }
        let mut at = from;
        std::iter::from_fn(|| {
            let (_, next) = self.step(at, to)?;
            at = next;
            Some(())
        })
        .count()
    }

    /// The first step from `at` to `to`, and where it leads.
    fn step(self, at: usize, to: usize) -> Option<(Way, usize)> {
        let (columns, rows, wraps) = match self {
            Self::LinearArray { processors, wraps } => (processors, 1, wraps),
            Self::Mesh { columns, rows, wraps } => (columns, rows, wraps),
            Self::Crossbar { .. } => return (at != to).then_some((Way::Right, to)),
        };
        let (row, column) = (at / columns, at % columns);
        if let Some((forwards, next)) = along(column, to % columns, columns, wraps) {
            return Some((if forwards { Way::Right } else { Way::Left }, row * columns + next));
        }
        let (forwards, next) = along(row, to / columns, rows, wraps)?;
        Some((if forwards { Way::Down } else { Way::Up }, next * columns + column))
    }
}

/// The next place on the way from `at` to `to` of `count` in a line, and whether it goes forwards. The shorter way, forwards if both
/// are alike.
fn along(at: usize, to: usize, count: usize, wraps: bool) -> Option<(bool, usize)> {
    if at == to {
        return None;
    }
    let ahead = (to + count - at) % count;
    let forwards = if wraps { ahead * 2 <= count } else { to > at };
    Some((forwards, if forwards { (at + 1) % count } else { (at + count - 1) % count }))
}

impl MeshConfig {
    /// Whether such a network can be.
    ///
    /// # Errors
    /// Names the key that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let processors = self.topology.processors();
        ConfigError::require(processors >= 2, "topology", || format!("{processors} processors need no network"))?;
        ConfigError::require(processors <= PROCESSORS_MAX, "topology", || {
            format!("{:?} has more than {PROCESSORS_MAX} processors", self.topology)
        })?;
        ConfigError::require(!self.rate.is_zero(), "rate", || "a link without a rate carries nothing".to_owned())
    }
}

impl Mesh {
    /// A network called `name`.
    ///
    /// # Errors
    /// If [`MeshConfig::validate`] refuses `config`.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: MeshConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let links = vec![Link::default(); config.topology.processors() * WAYS];
        let state = State { links, spare: Vec::new(), ledger: Ledger::default(), since: sim.now() };
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), config, state: RefCell::new(state) });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Ok(Self { inner })
    }

    /// Who is joined.
    pub fn topology(&self) -> Topology {
        self.inner.config.topology
    }

    /// Moves `bytes` bytes from `from` to `to` and waits until they are there. At once if both are the same.
    ///
    /// # Panics
    /// If a processor does not exist.
    pub async fn transfer(&self, from: usize, to: usize, bytes: u64) {
        let processors = self.topology().processors();
        assert!(from < processors && to < processors, "no way from {from} to {to} of {processors}");
        if from == to {
            return;
        }
        let inner = &*self.inner;
        let asked = inner.sim.now();
        inner.state.borrow_mut().ledger.arrive(asked);
        let alone = inner.config.alone(from, to, bytes);
        match (inner.config.topology, inner.config.forwarding) {
            (Topology::LinearArray { .. } | Topology::Mesh { .. }, Forwarding::StoreAndForward) => {
                inner.forward(from, to, bytes).await;
            }
            _ => inner.stretch(from, to, bytes).await,
        }
        let arrived = inner.sim.now();
        let mut state = inner.state.borrow_mut();
        state.ledger.begin(arrived.saturating_since(asked).saturating_sub(alone));
        state.ledger.depart(arrived, asked);
    }

    /// The share of time in which the link from `from` to its neighbour `to` was kept, since the warm-up ended. A message counts
    /// when it has arrived.
    ///
    /// # Panics
    /// If they are no neighbours, or this is a crossbar, which has no such links.
    pub fn link_utilisation(&self, from: usize, to: usize) -> f64 {
        let topology = self.topology();
        let is_crossbar = matches!(topology, Topology::Crossbar { .. });
        let step = topology.step(from, to).filter(|&(_, next)| next == to && !is_crossbar);
        let (way, _) = step.unwrap_or_else(|| panic!("no link from {from} to {to}"));
        let state = self.inner.state.borrow();
        let span = self.inner.sim.now().saturating_since(state.since).as_nanos();
        if span == 0 { 0.0 } else { state.links[link(from, way)].busy_ns as f64 / span as f64 }
    }

    /// What was done since the warm-up ended: customers are messages, the utilisation is that of the mean link.
    pub fn report(&self) -> Report {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl MeshConfig {
    /// What a message takes from `from` to `to` if nobody else is under way.
    fn alone(&self, from: usize, to: usize, bytes: u64) -> Duration {
        let hops = self.topology.hops(from, to) as u64;
        let times = if self.forwarding == Forwarding::StoreAndForward { hops } else { 1 };
        self.startup + self.hop * hops + self.rate.time_for(bytes) * times
    }

    /// How many links there are.
    const fn links(&self) -> u64 {
        match self.topology {
            Topology::LinearArray { processors, wraps } => both_ways(processors, wraps),
            Topology::Mesh { columns, rows, wraps } => {
                both_ways(columns, wraps) * rows as u64 + both_ways(rows, wraps) * columns as u64
            }
            Topology::Crossbar { processors } => 2 * processors as u64,
        }
    }
}

/// Links of `count` in a line, both ways.
const fn both_ways(count: usize, wraps: bool) -> u64 {
    // Two of them are neighbours once, with or without the way round.
    let pairs = if wraps && count > 2 { count } else { count - 1 };
    2 * pairs as u64
}

const fn link(from: usize, way: Way) -> usize {
    from * WAYS + way as usize
}

impl Inner {
    /// Link by link, whole.
    async fn forward(&self, from: usize, to: usize, bytes: u64) {
        let mut at = from;
        let mut extra = self.config.startup;
        while let Some((way, next)) = self.config.topology.step(at, to) {
            let span = extra + self.config.hop + self.config.rate.time_for(bytes);
            let (begin, end) = {
                let link = &mut self.state.borrow_mut().links[link(at, way)];
                let begin = link.free_at.max(self.sim.now());
                link.free_at = begin + span;
                (begin, link.free_at)
            };
            self.sim.sleep_until(end).await;
            self.keep(link(at, way), begin, end);
            (at, extra) = (next, Duration::ZERO);
        }
    }

    /// All links at once: each from the coming of the head to that of the tail at the end.
    async fn stretch(&self, from: usize, to: usize, bytes: u64) {
        let (mut kept, end) = self.reserve(from, to, bytes);
        self.sim.sleep_until(end).await;
        for &(link, begin) in &kept {
            self.keep(link, begin, end);
        }
        kept.clear();
        self.state.borrow_mut().spare.push(kept);
    }

    /// The links with the times from which the message has them, and when it has arrived.
    fn reserve(&self, from: usize, to: usize, bytes: u64) -> (Kept, Instant) {
        let state = &mut *self.state.borrow_mut();
        let hop = self.config.hop;
        let mut head = self.sim.now() + self.config.startup;
        let mut kept = state.spare.pop().unwrap_or_default();
        let links = &state.links;
        let mut ask = |link: usize, hop: Duration| {
            let begin = head.max(links[link].free_at);
            kept.push((link, begin));
            head = begin + hop;
        };
        if let Topology::Crossbar { .. } = self.config.topology {
            // Both ports are one hop.
            ask(link(from, Way::Right), Duration::ZERO);
            ask(link(to, Way::Left), hop);
        } else {
            let mut at = from;
            while let Some((way, next)) = self.config.topology.step(at, to) {
                ask(link(at, way), hop);
                at = next;
            }
        }
        let end = head + self.config.rate.time_for(bytes);
        for &(link, _) in &kept {
            state.links[link].free_at = end;
        }
        (kept, end)
    }

    fn keep(&self, link: usize, begin: Instant, end: Instant) {
        let state = &mut *self.state.borrow_mut();
        let counted = end.saturating_since(begin.max(state.since));
        state.links[link].busy_ns += u128::from(counted.as_nanos());
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.ledger.reset(now);
        state.since = now;
        for link in &mut state.links {
            link.busy_ns = 0;
        }
    }

    fn report(&self, now: Instant) -> Report {
        let state = self.state.borrow();
        let busy_ns = state.links.iter().map(|link| link.busy_ns).sum();
        state.ledger.report(&self.name, now, Some(self.config.links()), busy_ns)
    }
}

#[cfg(test)]
mod tests;
