//! Hosts, boards and the ring.
//!
//! ```text
//!   application ─▶ host ─▶ to_board ─▶ rate limit, board: XTP and card ─▶ wire ─▶ ring ═▶ inbound ─▶ board ─▶ from_board ─▶ host ─▶ received
//! ```
//!
//! A message goes through the host whole and through board and ring in frames. Each box is one processor for both directions.

use std::rc::Rc;

use sim::hardware::fddi::{Frame, Ring};
use sim::{Facility, Sim, Store};
use units::{Duration, Instant};

use super::costs::{Costs, ring};
use super::rate::{Limiter, RateLimit};

/// Messages between host and board.
const BOARD_QUEUE: usize = 4;

/// Frames between board and ring: one is filled while the other leaves.
const CARD_BUFFERS: usize = 2;

/// Frames under way before the receiver must have taken one: XTP's window.
const WINDOW_FRAMES: usize = 16;

/// Frames that a card holds for its board: a window of each sender.
const INBOUND: usize = 64;

/// Messages for an application that does not look.
const RECEIVED: usize = 1 << 14;

/// Where messages are timed.
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
    /// At a sender, and at a receiver.
    pub(super) costs: [Costs; 2],
    pub(super) frame_bytes: u64,
    pub(super) limit: Option<RateLimit>,
    /// Hosts that a message goes to: the group, or one.
    pub(super) receivers: usize,
    pub(super) is_group: bool,
}

/// A message, or a part of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    bytes: u64,
    is_last: bool,
    message_bytes: u64,
}

/// A message that the board may take from `ready_at` on.
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
    /// Messages that have come all the way: their bytes.
    pub(super) received: Store<u64>,
    /// For each peer, frames that it has room for.
    permits: Vec<Store<()>>,
}

/// Hosts on a ring: the first sends, and each of the others answers it.
pub(super) fn system(sim: &Sim, setup: &Setup) -> Vec<Rc<Node>> {
    let count = setup.receivers + 1;
    let ring = Ring::new(sim, "ring", ring(count)).expect("a ring of the standard can be");
    let nodes: Vec<_> = (0..count).map(|station| Node::new(sim, setup, station)).collect();
    for node in &nodes {
        connect(&ring, node, &nodes);
        sim.spawn(Rc::clone(node).board_out());
        sim.spawn(Rc::clone(node).board_in(nodes.clone()));
        sim.spawn(Rc::clone(node).host_in());
        // A frame passes every station on its way round; the last one of the group lets all of it have it.
        let to = if node.station == 0 { count - 1 } else { 0 };
        sim.spawn(Rc::clone(node).wire_out(ring.clone(), to));
    }
    nodes
}

/// What the ring brings goes to the boards that it is for.
fn connect(ring: &Ring<Part>, node: &Rc<Node>, nodes: &[Rc<Node>]) {
    let for_whom: Vec<_> = match node.station {
        0 => vec![Rc::clone(node)],
        station if station + 1 == nodes.len() => nodes[1..].to_vec(),
        _ => return,
    };
    ring.on_delivery(node.station, move |frame: Frame<Part>| {
        for node in &for_whom {
            // Permits are fewer than buffers, so there is room.
            node.inbound.try_put(frame.item).expect("a window fits into the card");
        }
    });
}

impl Node {
    fn new(sim: &Sim, setup: &Setup, station: usize) -> Rc<Self> {
        let called = |what: &str| format!("{what} {station}");
        let peers = if station == 0 { setup.receivers } else { 1 };
        let permits: Vec<_> = (0..peers)
            .map(|peer| Store::new(sim, &format!("permits of {station} from {peer}"), WINDOW_FRAMES))
            .collect();
        for _ in 0..WINDOW_FRAMES {
            for permits in &permits {
                permits.try_put(()).expect("there is room for the window");
            }
        }
        Rc::new(Self {
            sim: sim.clone(),
            setup: *setup,
            station,
            host: Facility::new(sim, &called("host"), 1),
            board: Facility::new(sim, &called("board"), 1),
            to_board: Store::new(sim, &called("to board"), BOARD_QUEUE),
            wire: Store::new(sim, &called("wire"), CARD_BUFFERS),
            inbound: Store::new(sim, &called("inbound"), INBOUND),
            from_board: Store::new(sim, &called("from board"), RECEIVED),
            received: Store::new(sim, &called("received"), RECEIVED),
            permits,
        })
    }

    /// What a message passes on its way out, and on its way in.
    const fn costs(&self, way: usize) -> &Costs {
        &self.setup.costs[way]
    }

    /// Sends a message and returns when the host is through with it.
    pub(super) async fn send(&self, bytes: u64) {
        let costs = self.costs(0);
        if self.setup.level == Level::User {
            self.host.serve(micros(costs.host_us + costs.host_byte_us * bytes as f64)).await;
        }
        let wait = if self.setup.level == Level::Mac { 0.0 } else { costs.xtp_wait_us };
        self.to_board.put(Waiting { bytes, ready_at: self.sim.now() + micros(wait) }).await;
    }

    async fn board_out(self: Rc<Self>) {
        let mut limiter = Limiter::new(&self.sim, self.setup.limit);
        let costs = *self.costs(0);
        loop {
            let message = self.to_board.take().await;
            self.sim.sleep_until(message.ready_at).await;
            let mut left = message.bytes;
            let mut group_us = if self.setup.is_group { costs.group_work_us } else { 0.0 };
            while left > 0 {
                let bytes = limiter.take(left.min(self.setup.frame_bytes)).await;
                left -= bytes;
                for permits in &self.permits {
                    permits.take().await;
                }
                self.board.serve(micros(self.board_us(&costs, bytes) + group_us)).await;
                group_us = 0.0;
                self.wire.put(Part { bytes, is_last: left == 0, message_bytes: message.bytes }).await;
            }
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
            }
        }
    }

    /// The frame's buffer is free again. Only the first host and one other ever send to each other.
    fn give_permit_back(&self, nodes: &[Rc<Self>]) {
        let permits = if self.station == 0 {
            // An answer is the last host's.
            &nodes[nodes.len() - 1].permits[0]
        } else {
            &nodes[0].permits[self.station - 1]
        };
        permits.try_put(()).expect("a permit was taken for each frame");
    }

    async fn host_in(self: Rc<Self>) {
        let costs = *self.costs(1);
        loop {
            let message = self.from_board.take().await;
            self.sim.sleep_until(message.ready_at).await;
            if self.setup.level == Level::User {
                self.host.serve(micros(costs.host_us + costs.host_byte_us * message.bytes as f64)).await;
            }
            self.received.put(message.bytes).await;
        }
    }

    /// What a frame keeps the board busy for.
    fn board_us(&self, costs: &Costs, bytes: u64) -> f64 {
        let card = costs.card_us + costs.card_byte_us * bytes as f64;
        if self.setup.level == Level::Mac { card } else { card + costs.xtp_work_us + costs.xtp_byte_us * bytes as f64 }
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1000.0).round() as u64)
}
