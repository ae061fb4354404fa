//! Interconnects of machines with distributed memory: linear array, mesh, crossbar.
//!
//! Messages travel between neighbours over links that carry one message at a time per direction. In
//! a mesh they follow the row first and then the column, so messages never deadlock. In an array or
//! a mesh with wrap-around they take the shorter direction.
//!
//! Links are assigned in the order of requests. Under [`Forwarding::Wormhole`] a message requests
//! all its links when it is sent and holds each from the arrival of its head until its tail has
//! reached the destination. Its times are known at once, and it costs one event.

use std::cell::RefCell;
use std::rc::Rc;

use units::{Duration, Instant, Rate};

use super::config_error::ConfigError;
use crate::kernel::Sim;
use crate::observe::{Accounting, ComponentReport, Observed};

/// Neighbours of each processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// A line.
    LinearArray {
        /// Number of processors.
        processors: usize,
        /// Whether the first and the last processor are neighbours.
        wraps: bool,
    },
    /// A grid; processor `row * columns + column`.
    Mesh {
        /// Processors per row.
        columns: usize,
        /// Rows.
        rows: usize,
        /// Whether the two ends of each row and column are neighbours.
        wraps: bool,
    },
    /// All-to-all. A processor sends one message and receives one message at a time.
    Crossbar {
        /// Number of processors.
        processors: usize,
    },
}

/// Way in which a message crosses several links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// Each processor on the path receives the whole message and then forwards it.
    StoreAndForward,
    /// The message occupies several links at once.
    Wormhole,
}

/// The configuration of a network of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeshConfig {
    /// Neighbours of each processor.
    pub topology: Topology,
    /// Way in which a message crosses several links.
    pub forwarding: Forwarding,
    /// Link rate.
    pub rate: Rate,
    /// Time per message at its first link, in addition to its bytes.
    pub startup: Duration,
    /// Time per message at each link, in addition to its bytes.
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
    state: RefCell<MeshState>,
}

/// The links of a message in transit, each with the time from which the message holds it.
type HeldLinks = Vec<(usize, Instant)>;

struct MeshState {
    links: Vec<Link>,
    /// Buffers of completed paths, for reuse. There are never more than simultaneous messages.
    spare_buffers: Vec<HeldLinks>,
    accounting: Accounting,
    since: Instant,
}

#[derive(Clone, Default)]
struct Link {
    /// Time at which the link will have carried all accepted messages.
    free_at: Instant,
    /// Time in nanoseconds since the last reset for which messages that have arrived held the link.
    busy_ns: u128,
}

/// Direction of a link from a processor: four in a mesh, out and in for a crossbar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Right,
    Left,
    Down,
    Up,
}

const DIRECTIONS: usize = 4;

/// Maximum number of processors: their links take 8 MiB.
pub const PROCESSORS_MAX: usize = 1 << 16;

impl Topology {
    /// Returns the number of processors; `usize::MAX` on overflow, which no [`Mesh`] accepts.
    pub const fn processors(self) -> usize {
        match self {
            Self::LinearArray { processors, .. } | Self::Crossbar { processors } => processors,
            Self::Mesh { columns, rows, .. } => columns.saturating_mul(rows),
        }
    }

    /// Returns the number of links between `from` and `to`. A crossbar counts as one.
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

    /// Returns the direction of the first link from `at` to `to`, and the processor it leads to.
    fn step(self, at: usize, to: usize) -> Option<(Direction, usize)> {
        let (columns, rows, wraps) = match self {
            Self::LinearArray { processors, wraps } => (processors, 1, wraps),
            Self::Mesh { columns, rows, wraps } => (columns, rows, wraps),
            Self::Crossbar { .. } => return (at != to).then_some((Direction::Right, to)),
        };
        let (row, column) = (at / columns, at % columns);
        if let Some((is_forward, next)) = along(column, to % columns, columns, wraps) {
            return Some((if is_forward { Direction::Right } else { Direction::Left }, row * columns + next));
        }
        let (is_forward, next) = along(row, to / columns, rows, wraps)?;
        Some((if is_forward { Direction::Down } else { Direction::Up }, next * columns + column))
    }
}

/// Returns the next position from `at` to `to` on a line of `count`, and whether it is forwards.
/// Takes the shorter direction, forwards if both are equal.
fn along(at: usize, to: usize, count: usize, wraps: bool) -> Option<(bool, usize)> {
    if at == to {
        return None;
    }
    let ahead = (to + count - at) % count;
    let is_forward = if wraps { ahead * 2 <= count } else { to > at };
    Some((is_forward, if is_forward { (at + 1) % count } else { (at + count - 1) % count }))
}

impl MeshConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let processors = self.topology.processors();
        ConfigError::require(processors >= 2, "topology", || format!("{processors} is fewer than two processors"))?;
        ConfigError::require(processors <= PROCESSORS_MAX, "topology", || {
            format!("{:?} has more than {PROCESSORS_MAX} processors", self.topology)
        })?;
        ConfigError::require(!self.rate.is_zero(), "rate", || "must not be zero".to_owned())
    }
}

impl Mesh {
    /// Creates a network called `name`.
    ///
    /// # Errors
    /// Fails if [`MeshConfig::validate`] rejects `config`.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: MeshConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let links = vec![Link::default(); config.topology.processors() * DIRECTIONS];
        let state = MeshState { links, spare_buffers: Vec::new(), accounting: Accounting::default(), since: sim.now() };
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), config, state: RefCell::new(state) });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Ok(Self { inner })
    }

    /// Returns the topology.
    pub fn topology(&self) -> Topology {
        self.inner.config.topology
    }

    /// Sends `bytes` bytes from `from` to `to` and waits for their arrival. Returns at once if both
    /// are the same.
    ///
    /// # Panics
    /// Panics if a processor does not exist.
    pub async fn transfer(&self, from: usize, to: usize, bytes: u64) {
        let processors = self.topology().processors();
        assert!(from < processors && to < processors, "invalid processors: from {from} to {to} of {processors}");
        if from == to {
            return;
        }
        let inner = &*self.inner;
        let asked = inner.sim.now();
        inner.state.borrow_mut().accounting.arrive(asked);
        let unloaded_time = inner.config.unloaded_time(from, to, bytes);
        match (inner.config.topology, inner.config.forwarding) {
            (Topology::LinearArray { .. } | Topology::Mesh { .. }, Forwarding::StoreAndForward) => {
                inner.store_and_forward(from, to, bytes).await;
            }
            _ => inner.wormhole(from, to, bytes).await,
        }
        let arrived = inner.sim.now();
        let mut state = inner.state.borrow_mut();
        state.accounting.begin(arrived.saturating_since(asked).saturating_sub(unloaded_time));
        state.accounting.depart(arrived, asked);
    }

    /// Returns the share of the time since the end of the warm-up in which the link from `from` to
    /// its neighbour `to` was held. Messages are counted on arrival.
    ///
    /// # Panics
    /// Panics if they are not neighbours, or this is a crossbar, which has no such links.
    pub fn link_utilisation(&self, from: usize, to: usize) -> f64 {
        let topology = self.topology();
        let is_crossbar = matches!(topology, Topology::Crossbar { .. });
        let step = topology.step(from, to).filter(|&(_, next)| next == to && !is_crossbar);
        let (direction, _) = step.unwrap_or_else(|| panic!("no link from {from} to {to}"));
        let state = self.inner.state.borrow();
        let span = self.inner.sim.now().saturating_since(state.since).as_nanos();
        if span == 0 { 0.0 } else { state.links[link(from, direction)].busy_ns as f64 / span as f64 }
    }

    /// Returns the statistics since the end of the warm-up. Customers are messages; the utilisation
    /// is the mean over the links.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl MeshConfig {
    /// Returns the time of a message from `from` to `to` in an otherwise idle network.
    fn unloaded_time(&self, from: usize, to: usize, bytes: u64) -> Duration {
        let hops = self.topology.hops(from, to) as u64;
        let times = if self.forwarding == Forwarding::StoreAndForward { hops } else { 1 };
        self.startup + self.hop * hops + self.rate.time_for(bytes) * times
    }

    /// Returns the number of links.
    const fn links(&self) -> u64 {
        match self.topology {
            Topology::LinearArray { processors, wraps } => line_links(processors, wraps),
            Topology::Mesh { columns, rows, wraps } => {
                line_links(columns, wraps) * rows as u64 + line_links(rows, wraps) * columns as u64
            }
            Topology::Crossbar { processors } => 2 * processors as u64,
        }
    }
}

/// Returns the number of links of a line of `count`, counting both directions.
const fn line_links(count: usize, wraps: bool) -> u64 {
    // Two processors are neighbours only once, with or without wrap-around.
    let pairs = if wraps && count > 2 { count } else { count - 1 };
    2 * pairs as u64
}

const fn link(from: usize, direction: Direction) -> usize {
    from * DIRECTIONS + direction as usize
}

impl Inner {
    /// Transfers a message with store-and-forward: one link after the other.
    async fn store_and_forward(&self, from: usize, to: usize, bytes: u64) {
        let mut at = from;
        let mut extra = self.config.startup;
        while let Some((direction, next)) = self.config.topology.step(at, to) {
            let span = extra + self.config.hop + self.config.rate.time_for(bytes);
            let (begin, end) = {
                let link = &mut self.state.borrow_mut().links[link(at, direction)];
                let begin = link.free_at.max(self.sim.now());
                link.free_at = begin + span;
                (begin, link.free_at)
            };
            self.sim.sleep_until(end).await;
            self.add_held_time(link(at, direction), begin, end);
            (at, extra) = (next, Duration::ZERO);
        }
    }

    /// Transfers a message with wormhole routing: holds each link from the arrival of the head
    /// until the tail reaches the destination.
    async fn wormhole(&self, from: usize, to: usize, bytes: u64) {
        let (mut held, end) = self.reserve(from, to, bytes);
        self.sim.sleep_until(end).await;
        for &(link, begin) in &held {
            self.add_held_time(link, begin, end);
        }
        held.clear();
        self.state.borrow_mut().spare_buffers.push(held);
    }

    /// Reserves the links of a path. Returns them with the times from which they are held, and the
    /// arrival time.
    fn reserve(&self, from: usize, to: usize, bytes: u64) -> (HeldLinks, Instant) {
        let state = &mut *self.state.borrow_mut();
        let hop = self.config.hop;
        let mut head = self.sim.now() + self.config.startup;
        let mut held = state.spare_buffers.pop().unwrap_or_default();
        let links = &state.links;
        let mut request = |link: usize, hop: Duration| {
            let begin = head.max(links[link].free_at);
            held.push((link, begin));
            head = begin + hop;
        };
        if let Topology::Crossbar { .. } = self.config.topology {
            // The two ports of a crossbar count as one hop.
            request(link(from, Direction::Right), Duration::ZERO);
            request(link(to, Direction::Left), hop);
        } else {
            let mut at = from;
            while let Some((direction, next)) = self.config.topology.step(at, to) {
                request(link(at, direction), hop);
                at = next;
            }
        }
        let end = head + self.config.rate.time_for(bytes);
        for &(link, _) in &held {
            state.links[link].free_at = end;
        }
        (held, end)
    }

    fn add_held_time(&self, link: usize, begin: Instant, end: Instant) {
        let state = &mut *self.state.borrow_mut();
        let counted = end.saturating_since(begin.max(state.since));
        state.links[link].busy_ns += u128::from(counted.as_nanos());
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.accounting.reset(now);
        state.since = now;
        for link in &mut state.links {
            link.busy_ns = 0;
        }
    }

    fn report(&self, now: Instant) -> ComponentReport {
        let state = self.state.borrow();
        let busy_ns = state.links.iter().map(|link| link.busy_ns).sum();
        state.accounting.report(&self.name, now, Some(self.config.links()), busy_ns)
    }
}

#[cfg(test)]
mod tests;
