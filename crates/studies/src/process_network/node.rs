//! An adapter: its processors, processes and shared state.
//!
//! ```text
//!   network ─▶ input ─▶ ip_intrsvc ─▶ ip_demux ─▶ tcp_recv ─▶ received ─▶ user_task ─▶ read ─▶ workstation      receive side
//!                                                  │  │  ▲                  │
//!                                     pokes, calls ▼  ▼  │ pokes back       ▼ calls
//!   network ◀─ output ◀───────── ip_send ◀───────── xtask ◀──────── write ◀─────── workstation                 transmit side
//! ```
//!
//! Arrows between processes are synchronous channels, except for `input`, `received`, `read` and
//! `output`, which are bounded queues in shared memory.

mod receive;
mod transmit;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sim::hardware::{Channel, Priority, Process, Transputer};
use sim::{Facility, Sim, Store};
use units::{Duration, Instant};

use super::setup::{Placement, Setup, micros};
use crate::conserved::assert_conserved;

/// Packets that the receive memory holds for `ip_intrsvc`. Two windows with their acknowledgements
/// fit, so no packet is lost.
pub(super) const RECEIVE_BUFFERS: usize = 64;

/// Packets that wait for the network interface. With one, it would idle between packets.
const TRANSMIT_BUFFERS: usize = 2;

/// Size of the send buffer in windows.
const SEND_BUFFER_WINDOWS: u32 = 2;

/// Words of an IP and a TCP header without options.
const HEADER_WORDS: u64 = 10;

/// Words of a remote call and of its answer: the request, and whether it was done.
const CALL_WORDS: u64 = 1;

/// Delay after which the timer of `rtask` acknowledges data that are not yet acknowledged (RFC
/// 1122, 4.2.3.2: less than half a second).
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(200);

const WORD_BYTES: u64 = 4;

/// A packet in transit between adapters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) has_data: bool,
    /// Segments that the sender of this packet has received.
    acknowledged: u64,
    /// Segments that its sender can accept, counted from the first one.
    edge: u64,
}

/// Fields that one side has written into its copy of the connection state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Fields {
    /// Segments received in order, and segments read by the application.
    received: u64,
    read: u64,
    /// Segments acknowledged by the peer, and the right edge of its window.
    acknowledged: u64,
    edge: u64,
}

/// Reason for sending an acknowledgement in a separate packet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Acknowledgements {
    /// Enough segments were received.
    pub(super) by_receipt: u64,
    /// The application read enough to open the window.
    pub(super) by_reading: u64,
    /// The timer expired first.
    pub(super) by_timer: u64,
}

impl Acknowledgements {
    /// Returns the counts since `before`.
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            by_receipt: self.by_receipt - before.by_receipt,
            by_reading: self.by_reading - before.by_reading,
            by_timer: self.by_timer - before.by_timer,
        }
    }

    /// Returns the total.
    pub(super) const fn total(self) -> u64 {
        self.by_receipt + self.by_reading + self.by_timer
    }
}

/// An adapter and its workstation, shared by all processes.
pub(super) struct Node {
    sim: Sim,
    setup: Setup,
    pub(super) processors: Vec<Transputer>,
    pub(super) work: Work,
    pub(super) input: Store<Packet>,
    output: Store<Packet>,
    to_demux: Channel<Packet>,
    to_tcp: Channel<Packet>,
    received: Store<()>,
    read: Store<()>,
    to_driver: Channel<Packet>,
    pokes: Channel<Option<Fields>>,
    pokes_back: Channel<Option<Fields>>,
    calls: Channel<Fields>,
    answers: Channel<()>,
    send_buffer: Store<()>,
    unsent: Cell<u64>,
    sent: Cell<u64>,
    /// A token: the state of `xtask` has changed.
    doorbell: Store<()>,
    must_acknowledge: Cell<bool>,
    receive_side: RefCell<Fields>,
    /// Copy on the transmit side of the fields written by the receive side.
    transmit_side: RefCell<Fields>,
    /// The acknowledgement in the last packet, and the amount of reading that it reported, as known
    /// at the receive side.
    reported: Cell<u64>,
    reported_read: Cell<u64>,
    reported_at: Cell<Instant>,
    pub(super) workstation: Facility,
    pub(super) delivered: Cell<u64>,
    /// Time at which the last one was delivered.
    pub(super) delivered_at: Cell<Instant>,
    pub(super) dropped: Cell<u64>,
    /// Segments that the application has begun to write, and segments being written or passed up.
    written: Cell<u64>,
    in_progress: Cell<u64>,
    /// Slots of the send buffer that were released, and segments being passed up.
    freed: Cell<u64>,
    being_delivered: Cell<u64>,
    pub(super) acknowledgements: Cell<Acknowledgements>,
}

/// The processes with work, named as in Table 1.
pub(super) struct Work {
    pub(super) ip_intrsvc: Process,
    pub(super) ip_demux: Process,
    pub(super) tcp_recv: Process,
    pub(super) user_task: Process,
    pub(super) write: Process,
    pub(super) xtask: Process,
    pub(super) ip_send: Process,
    /// Processes on the receive side and on the transmit side.
    pub(super) peek_poke: [Process; 2],
    pub(super) rpc_process: Process,
}

impl Work {
    /// Assigns every process to a processor. Component names begin with `node`.
    fn place(sim: &Sim, node: &str, setup: &Setup) -> (Vec<Transputer>, Self) {
        // Processors of ip_intrsvc, ip_demux, tcp_recv, user_task, write, xtask, ip_send.
        let processor_of: [usize; 7] = match setup.placement {
            Placement::One => [0; 7],
            Placement::Two => [0, 0, 0, 0, 1, 1, 1],
            Placement::Four => [0, 0, 1, 1, 2, 2, 3],
            Placement::Seven => [0, 1, 2, 3, 4, 5, 6],
        };
        let count = processor_of.iter().max().map_or(0, |index| index + 1);
        let new = |index| Transputer::new(sim, &format!("{node}, processor {index}"), micros(setup.switch_us));
        let processors: Vec<_> = (0..count).map(new).collect();
        let at = |index: usize, priority| processors[index].process(priority);
        let [intrsvc, demux, tcp, user, write, xtask, send] = processor_of;
        let work = Self {
            ip_intrsvc: at(intrsvc, Priority::High),
            ip_demux: at(demux, Priority::Low),
            tcp_recv: at(tcp, Priority::Low),
            user_task: at(user, Priority::Low),
            write: at(write, Priority::Low),
            xtask: at(xtask, Priority::Low),
            ip_send: at(send, Priority::Low),
            peek_poke: [at(tcp, Priority::High), at(xtask, Priority::High)],
            rpc_process: at(xtask, Priority::High),
        };
        (processors, work)
    }
}

impl Node {
    /// Creates an adapter called `name`, without its processes.
    pub(super) fn new(sim: &Sim, name: &str, setup: &Setup) -> Rc<Self> {
        let (processors, work) = Work::place(sim, name, setup);
        let byte = micros(setup.costs.link_word_us / WORD_BYTES as f64);
        let local = Duration::ZERO;
        let called = |what: &str| format!("{name}, {what}");
        let queue = |what: &str, len: u32| Store::new(sim, &called(what), len as usize);
        let fields = Fields { edge: u64::from(setup.window), ..Fields::default() };
        Rc::new(Self {
            sim: sim.clone(),
            setup: *setup,
            processors,
            work,
            input: Store::new(sim, &called("input"), RECEIVE_BUFFERS),
            output: Store::new(sim, &called("output"), TRANSMIT_BUFFERS),
            to_demux: Channel::new(sim, &called("to demux"), local),
            to_tcp: Channel::new(sim, &called("to tcp"), local),
            received: queue("received", setup.window),
            read: queue("read", setup.window),
            to_driver: Channel::new(sim, &called("to driver"), local),
            pokes: Channel::new(sim, &called("pokes"), byte),
            pokes_back: Channel::new(sim, &called("pokes back"), byte),
            calls: Channel::new(sim, &called("calls"), byte),
            answers: Channel::new(sim, &called("answers"), byte),
            send_buffer: queue("send buffer", setup.window * SEND_BUFFER_WINDOWS),
            unsent: Cell::new(0),
            sent: Cell::new(0),
            doorbell: Store::new(sim, &called("doorbell"), 1),
            must_acknowledge: Cell::new(false),
            receive_side: RefCell::new(fields),
            transmit_side: RefCell::new(fields),
            reported: Cell::new(0),
            reported_read: Cell::new(0),
            reported_at: Cell::default(),
            workstation: Facility::new(sim, &called("workstation"), 1),
            delivered: Cell::new(0),
            delivered_at: Cell::default(),
            dropped: Cell::new(0),
            written: Cell::new(0),
            in_progress: Cell::new(0),
            freed: Cell::new(0),
            being_delivered: Cell::new(0),
            acknowledgements: Cell::default(),
        })
    }

    /// Checks that segments from this node to `peer`, and slots of the send buffer, are neither
    /// lost nor duplicated. Packets carry no numbers, so the accounts of both sides are compared.
    ///
    /// # Panics
    /// Panics if this does not hold.
    pub(super) fn check_conservation(&self, peer: &Self) {
        let received = peer.receive_side.borrow().received;
        let on_the_way = self.sent.get().checked_sub(received + peer.dropped.get());
        let on_the_way =
            on_the_way.unwrap_or_else(|| panic!("{received} segments were received, {} sent", self.sent.get()));
        // The window is never exceeded.
        assert!(on_the_way <= u64::from(self.setup.window), "{on_the_way} segments are in flight: more than a window");
        let places = [
            ("being written", self.in_progress.get()),
            ("unsent", self.unsent.get()),
            ("in flight", on_the_way),
            ("dropped", peer.dropped.get()),
            ("received", peer.received.len() as u64 + peer.read.len() as u64 + peer.being_delivered.get()),
            ("delivered", peer.delivered.get()),
        ];
        assert_conserved("segments", self.written.get(), &places);
        let buffered = self.written.get() - self.freed.get();
        assert_conserved("slots of the send buffer", buffered, &[("taken", self.send_buffer.len() as u64)]);
        let known = self.transmit_side.borrow().acknowledged;
        assert!(known <= received, "{known} segments are acknowledged, {received} received");
    }

    /// Starts all processes. Packets are sent to `peer`.
    pub(super) fn start(self: &Rc<Self>, peer: &Rc<Self>, sends: bool) {
        let sim = &self.sim;
        sim.spawn(Rc::clone(self).ip_intrsvc());
        sim.spawn(Rc::clone(self).ip_demux());
        sim.spawn(Rc::clone(self).tcp_recv());
        sim.spawn(Rc::clone(self).user_task());
        sim.spawn(Rc::clone(self).reading_workstation());
        sim.spawn(Rc::clone(self).rtask());
        sim.spawn(Rc::clone(self).peek_poke_of_receive_side());
        sim.spawn(Rc::clone(self).peek_poke_of_transmit_side());
        sim.spawn(Rc::clone(self).rpc_process());
        sim.spawn(Rc::clone(self).xtask());
        sim.spawn(Rc::clone(self).ip_send(Rc::clone(peer)));
        sim.spawn(Rc::clone(self).interface(Rc::clone(peer)));
        if sends {
            sim.spawn(Rc::clone(self).write());
        }
    }

    /// Returns whether both sides share a processor, and therefore memory and state.
    fn is_whole(&self) -> bool {
        self.setup.placement == Placement::One
    }

    /// Passes the address of a packet to another process.
    async fn handoff(&self, from: &Process, to: &Process, channel: &Channel<Packet>, packet: Packet) {
        if !from.is_on_same_processor(to) {
            from.run(micros(self.setup.handoff_us)).await;
        }
        channel.send(packet, WORD_BYTES).await;
    }

    async fn receive_handoff(&self, from: &Process, to: &Process, channel: &Channel<Packet>) -> Packet {
        let packet = channel.receive().await;
        if !from.is_on_same_processor(to) {
            to.run(micros(self.setup.handoff_us)).await;
        }
        packet
    }
}
