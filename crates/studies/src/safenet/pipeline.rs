//! Hosts, boards and the ring.
//!
//! ```text
//!   application ─▶ host ─▶ to_board ─▶ rate limit, board: XTP and card ─▶ wire ─▶ ring ═▶ inbound ─▶ board ─▶ from_board ─▶ host ─▶ received
//! ```
//!
//! Messages pass the host as a whole, and board and ring in frames. Each box is one processor for
//! both directions.

use std::cell::Cell;
use std::rc::Rc;

use sim::hardware::ConfigError;
use sim::hardware::fddi::{FddiFrame, Ring};
use sim::{Facility, Sim, Store};
use units::{Duration, Instant};

use super::costs::{Costs, ring};
use super::rate::{Limiter, RateLimit};
use crate::conserved::assert_conserved;

/// Queue limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueLimits {
    /// Messages between host and board.
    pub(super) board_messages: usize,
    /// Frames between board and ring.
    pub(super) card_frames: usize,
    /// Frames in flight before the receiver must have taken one: XTP's window.
    pub(super) window_frames: usize,
}

impl Default for QueueLimits {
    /// Returns the limits for a card that fills one frame while it sends the other.
    fn default() -> Self {
        Self { board_messages: 4, card_frames: 2, window_frames: 16 }
    }
}

/// Windows that a card buffers for its board: one per sender, of which there are at most this many.
const INBOUND_WINDOWS: usize = 4;

/// Messages buffered for an application that does not read.
const RECEIVED: usize = 1 << 14;

/// The level at which messages are timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    /// Frames, with no operating system.
    Mac,
    /// XTP's upper interface.
    Transport,
    /// The application.
    User,
}

/// A system of hosts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Setup {
    pub(super) level: Level,
    /// Costs at a sender and at a receiver.
    pub(super) costs: [Costs; 2],
    pub(super) frame_bytes: u64,
    pub(super) limit: Option<RateLimit>,
    /// Number of hosts that receive a message: the group, or one.
    pub(super) receivers: usize,
    pub(super) is_group: bool,
    pub(super) queue_limits: QueueLimits,
    pub(super) ring_m: u64,
}

/// A message or a part of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    bytes: u64,
    is_last: bool,
    message_bytes: u64,
}

/// A message that the board may take at `ready_at`.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    bytes: u64,
    ready_at: Instant,
}

/// A host with its board.
pub(super) struct Node {
    sim: Sim,
    setup: Setup,
    station: usize,
    host: Facility,
    board: Facility,
    to_board: Store<Waiting>,
    wire: Store<Part>,
    inbound: Store<Part>,
    from_board: Store<Waiting>,
    /// Delivered messages: their bytes.
    pub(super) received: Store<u64>,
    /// For each peer, the number of frames that it can buffer.
    permits: Vec<Store<()>>,
    counts: Counts,
}

/// Messages and frames that are in no queue, since the start of the run.
#[derive(Default)]
struct Counts {
    /// Messages sent and delivered.
    sent: Cell<u64>,
    delivered: Cell<u64>,
    /// Messages at the sending board and at the receiving host.
    at_board: Cell<u64>,
    at_host: Cell<u64>,
    /// Messages whose last frame has left the board, and messages received completely.
    left: Cell<u64>,
    came: Cell<u64>,
    /// Frames that had a permit, and frames whose permit was returned.
    permitted: Cell<u64>,
    released: Cell<u64>,
}

fn up(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

fn down(count: &Cell<u64>) {
    count.set(count.get() - 1);
}

impl Setup {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(self.receivers > 0, "receivers", || "must not be zero".to_owned())?;
        ConfigError::require(self.receivers == 1 || self.is_group, "receivers", || {
            format!("{} without a group: a message has one receiver", self.receivers)
        })?;
        let longest = ring(self.receivers + 1, self.ring_m).frame_bytes_max;
        ConfigError::require((1..=longest).contains(&self.frame_bytes), "frame_bytes", || {
            format!("{} is not between 1 and {longest}", self.frame_bytes)
        })?;
        for (key, limit) in [
            ("board_messages", self.queue_limits.board_messages),
            ("card_frames", self.queue_limits.card_frames),
            ("window_frames", self.queue_limits.window_frames),
        ] {
            ConfigError::require(limit > 0, key, || "must not be zero".to_owned())?;
        }
        for (key, cost) in self.costs.iter().flat_map(Costs::all) {
            ConfigError::require(cost.is_finite() && cost >= 0.0, key, || format!("{cost} is not a valid time"))?;
        }
        let Some(limit) = self.limit else { return Ok(()) };
        ConfigError::require(limit.burst_bytes > 0, "burst_bytes", || "must not be zero".to_owned())?;
        ConfigError::require(limit.rate_bytes_per_second > 0, "rate_bytes_per_second", || "must not be zero".to_owned())
    }
}

/// Creates hosts on a ring. The first one sends, and each of the others answers it.
///
/// # Errors
/// Returns an error that names the invalid key of `setup`.
pub(super) fn system(sim: &Sim, setup: &Setup) -> Result<Vec<Rc<Node>>, ConfigError> {
    setup.validate()?;
    let count = setup.receivers + 1;
    let ring = Ring::new(sim, "ring", ring(count, setup.ring_m))?;
    let nodes: Vec<_> = (0..count).map(|station| Node::new(sim, setup, station)).collect();
    for node in &nodes {
        connect(&ring, node, &nodes);
        sim.spawn(Rc::clone(node).board_out());
        sim.spawn(Rc::clone(node).board_in(nodes.clone()));
        sim.spawn(Rc::clone(node).host_in());
        // A frame passes every station of the ring; the last one of the group delivers it to all.
        let to = if node.station == 0 { count - 1 } else { 0 };
        sim.spawn(Rc::clone(node).wire_out(ring.clone(), to));
    }
    Ok(nodes)
}

/// Checks that messages and permits are neither lost nor duplicated.
///
/// # Panics
/// Panics if this does not hold.
pub(super) fn check_conservation(nodes: &[Rc<Node>]) {
    let (first, others) = (&nodes[0], &nodes[1..]);
    let last = &others[others.len() - 1];
    // The first host sends to all others, the last one to the first.
    for (from, to) in others.iter().map(|to| (first, to)).chain([(last, first)]) {
        let on_the_ring = from.counts.left.get() - to.counts.came.get();
        let places = [
            ("for the board", from.to_board.len() as u64),
            ("at the board", from.counts.at_board.get()),
            ("on the ring", on_the_ring),
            ("for the host", to.from_board.len() as u64),
            ("at the host", to.counts.at_host.get()),
            ("delivered", to.counts.delivered.get()),
        ];
        assert_conserved("messages", from.counts.sent.get(), &places);
    }
    for (peer, permits) in first.permits.iter().enumerate() {
        let in_use = first.counts.permitted.get() - others[peer].counts.released.get();
        let places = [("free", permits.len() as u64), ("in use", in_use)];
        assert_conserved("permits", first.setup.queue_limits.window_frames as u64, &places);
    }
}

/// Passes frames from the ring to the boards that receive them.
fn connect(ring: &Ring<Part>, node: &Rc<Node>, nodes: &[Rc<Node>]) {
    let for_whom: Vec<_> = match node.station {
        0 => vec![Rc::clone(node)],
        station if station + 1 == nodes.len() => nodes[1..].to_vec(),
        _ => return,
    };
    ring.on_delivery(node.station, move |frame: FddiFrame<Part>| {
        for node in &for_whom {
            // There are fewer permits than buffers, so there is space.
            node.inbound.try_put(frame.item).expect("a window fits into the card");
        }
    });
}

impl Node {
    fn new(sim: &Sim, setup: &Setup, station: usize) -> Rc<Self> {
        let called = |what: &str| format!("{what} {station}");
        let peers = if station == 0 { setup.receivers } else { 1 };
        let permits: Vec<_> = (0..peers)
            .map(|peer| Store::new(sim, &format!("permits of {station} from {peer}"), setup.queue_limits.window_frames))
            .collect();
        for _ in 0..setup.queue_limits.window_frames {
            for permits in &permits {
                permits.try_put(()).expect("the store holds the whole window");
            }
        }
        Rc::new(Self {
            sim: sim.clone(),
            setup: *setup,
            station,
            host: Facility::new(sim, &called("host"), 1),
            board: Facility::new(sim, &called("board"), 1),
            to_board: Store::new(sim, &called("to board"), setup.queue_limits.board_messages),
            wire: Store::new(sim, &called("wire"), setup.queue_limits.card_frames),
            inbound: Store::new(sim, &called("inbound"), setup.queue_limits.window_frames * INBOUND_WINDOWS),
            from_board: Store::new(sim, &called("from board"), RECEIVED),
            received: Store::new(sim, &called("received"), RECEIVED),
            permits,
            counts: Counts::default(),
        })
    }

    /// Returns the costs of an outgoing or incoming message.
    const fn costs(&self, direction: usize) -> &Costs {
        &self.setup.costs[direction]
    }

    /// Sends a message and returns when the host has finished its work.
    pub(super) async fn send(&self, bytes: u64) {
        let costs = self.costs(0);
        if self.setup.level == Level::User {
            self.host.serve(micros(costs.host_us + costs.host_byte_us * bytes as f64)).await;
        }
        let wait = if self.setup.level == Level::Mac { 0.0 } else { costs.xtp_wait_us };
        self.to_board.put(Waiting { bytes, ready_at: self.sim.now() + micros(wait) }).await;
        up(&self.counts.sent);
    }

    async fn board_out(self: Rc<Self>) {
        let mut limiter = Limiter::new(&self.sim, self.setup.limit);
        let costs = *self.costs(0);
        loop {
            let message = self.to_board.take().await;
            up(&self.counts.at_board);
            self.sim.sleep_until(message.ready_at).await;
            let mut left = message.bytes;
            let mut group_us = if self.setup.is_group { costs.group_work_us } else { 0.0 };
            while left > 0 {
                let bytes = limiter.take(left.min(self.setup.frame_bytes)).await;
                left -= bytes;
                for permits in &self.permits {
                    permits.take().await;
                }
                up(&self.counts.permitted);
                self.board.serve(micros(self.board_us(&costs, bytes) + group_us)).await;
                group_us = 0.0;
                self.wire.put(Part { bytes, is_last: left == 0, message_bytes: message.bytes }).await;
            }
            up(&self.counts.left);
            down(&self.counts.at_board);
        }
    }

    async fn wire_out(self: Rc<Self>, ring: Ring<Part>, to: usize) {
        loop {
            let part = self.wire.take().await;
            ring.send(self.station, to, part.bytes, part).await;
        }
    }

    async fn board_in(self: Rc<Self>, nodes: Vec<Rc<Self>>) {
        let costs = *self.costs(1);
        loop {
            let part = self.inbound.take().await;
            self.board.serve(micros(self.board_us(&costs, part.bytes))).await;
            self.give_permit_back(&nodes);
            if part.is_last {
                let group_us = if self.setup.is_group { costs.group_wait_us } else { 0.0 };
                let wait = if self.setup.level == Level::Mac { 0.0 } else { costs.xtp_wait_us + group_us };
                let ready_at = self.sim.now() + micros(wait);
                self.from_board.put(Waiting { bytes: part.message_bytes, ready_at }).await;
                up(&self.counts.came);
            }
        }
    }

    /// Returns the permit of a frame. Only the first host and one other ever send to each other.
    fn give_permit_back(&self, nodes: &[Rc<Self>]) {
        let permits = if self.station == 0 {
            // Answers come from the last host.
            &nodes[nodes.len() - 1].permits[0]
        } else {
            &nodes[0].permits[self.station - 1]
        };
        permits.try_put(()).expect("a permit was taken for each frame");
        up(&self.counts.released);
    }

    async fn host_in(self: Rc<Self>) {
        let costs = *self.costs(1);
        loop {
            let message = self.from_board.take().await;
            up(&self.counts.at_host);
            self.sim.sleep_until(message.ready_at).await;
            if self.setup.level == Level::User {
                self.host.serve(micros(costs.host_us + costs.host_byte_us * message.bytes as f64)).await;
            }
            self.received.put(message.bytes).await;
            down(&self.counts.at_host);
            up(&self.counts.delivered);
        }
    }

    /// Returns the busy time of the board per frame.
    fn board_us(&self, costs: &Costs, bytes: u64) -> f64 {
        let card = costs.card_us + costs.card_byte_us * bytes as f64;
        if self.setup.level == Level::Mac { card } else { card + costs.xtp_work_us + costs.xtp_byte_us * bytes as f64 }
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use sim::Simulation;

    use super::*;
    use crate::safenet::costs::Split;
    use crate::safenet::levels::setup;
    use crate::safenet::paper::Paper;

    fn user() -> Setup {
        let paper = Paper::load();
        setup(&paper, &Split::even(&paper), Level::User)
    }

    #[test]
    fn invalid_systems_are_rejected_by_key() {
        let key = |change: fn(&mut Setup)| {
            let mut setup = user();
            change(&mut setup);
            system(&Simulation::new(1, 0).sim(), &setup).err().expect("the setup is invalid").key
        };
        assert_eq!(key(|setup| setup.receivers = 0), "receivers");
        assert_eq!(key(|setup| setup.receivers = 2), "receivers");
        assert_eq!(key(|setup| setup.frame_bytes = 4_501), "frame_bytes");
        assert_eq!(key(|setup| setup.queue_limits.window_frames = 0), "window_frames");
        assert_eq!(key(|setup| setup.queue_limits.card_frames = 0), "card_frames");
        assert_eq!(key(|setup| setup.queue_limits.board_messages = 0), "board_messages");
        assert_eq!(key(|setup| setup.costs[1].host_us = -0.5), "host_us");
        assert_eq!(key(|setup| setup.costs[0].xtp_byte_us = f64::NAN), "xtp_byte_us");
        assert_eq!(key(|setup| setup.limit.as_mut().unwrap().burst_bytes = 0), "burst_bytes");
        let no_rate = |setup: &mut Setup| setup.limit.as_mut().unwrap().rate_bytes_per_second = 0;
        assert_eq!(key(no_rate), "rate_bytes_per_second");
        assert_eq!(key(|setup| setup.ring_m = 10_000_000), "ttrt");
    }

    fn nodes_in_operation() -> Vec<Rc<Node>> {
        let mut simulation = Simulation::new(1, 0);
        let nodes = system(&simulation.sim(), &Setup { limit: None, ..user() }).unwrap();
        let first = Rc::clone(&nodes[0]);
        simulation.spawn(async move {
            loop {
                first.send(10_000).await;
            }
        });
        simulation.run_until(Instant::from_nanos(50_000_000));
        check_conservation(&nodes);
        nodes
    }

    #[test]
    #[should_panic(expected = "messages are not conserved")]
    fn a_message_received_twice_fails_the_run() {
        let nodes = nodes_in_operation();
        up(&nodes[1].counts.delivered);
        check_conservation(&nodes);
    }

    #[test]
    #[should_panic(expected = "permits are not conserved")]
    fn a_lost_permit_fails_the_run() {
        let nodes = nodes_in_operation();
        down(&nodes[1].counts.released);
        check_conservation(&nodes);
    }
}
