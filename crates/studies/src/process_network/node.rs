//! An adapter: its processors, its processes and the state they share.
//!
//! ```text
//!   network ─▶ input ─▶ ip_intrsvc ─▶ ip_demux ─▶ tcp_recv ─▶ received ─▶ user_task ─▶ read ─▶ workstation      receive side
//!                                                  │  │  ▲                  │
//!                                     pokes, calls ▼  ▼  │ pokes back       ▼ calls
//!   network ◀─ output ◀───────── ip_send ◀───────── xtask ◀──────── write ◀─────── workstation                 transmit side
//! ```
//!
//! Arrows between processes are synchronous channels but for `input`, `received`, `read` and `output`, which are bounded queues in
//! shared memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sim::hardware::{Channel, Priority, Process, Transputer};
use sim::{Facility, Sim, Store};
use units::{Duration, Instant};

use super::setup::{Application, Mover, Placement, Setup, micros};

/// Packets that the receive memory holds for `ip_intrsvc`. Twice a window and its acknowledgements fit, so that none is lost.
const RECEIVE_BUFFERS: usize = 64;

/// Packets that wait for the network interface. With one it would idle between two packets.
const TRANSMIT_BUFFERS: usize = 2;

/// Windows that the send buffer holds.
const SEND_BUFFER_WINDOWS: u32 = 2;

/// Words of an IP and a TCP header without options.
const HEADER_WORDS: u64 = 10;

/// Words in a remote call, and in its answer: what is wanted, and whether it was done.
const CALL_WORDS: u64 = 1;

/// When the timer of `rtask` acknowledges what nobody else did (RFC 1122, 4.2.3.2: less than half a second).
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(200);

const WORD_BYTES: u64 = 4;

/// What is on its way from an adapter to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) has_data: bool,
    /// Segments that the sender of this packet has received.
    acknowledged: u64,
    /// Segments that it has room for, counted from the first one.
    edge: u64,
}

/// What one side has written into its copy of the connection's state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Fields {
    /// Segments received in order, and those that the application has read.
    received: u64,
    read: u64,
    /// What the peer has acknowledged, and how far it lets us send.
    acknowledged: u64,
    edge: u64,
}

/// Why an acknowledgement left in a packet of its own.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Acknowledgements {
    /// Enough was received.
    pub(super) by_receipt: u64,
    /// The application read enough to open the window.
    pub(super) by_reading: u64,
    /// Nobody else did in time.
    pub(super) by_timer: u64,
}

impl Acknowledgements {
    /// Those after `before`.
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            by_receipt: self.by_receipt - before.by_receipt,
            by_reading: self.by_reading - before.by_reading,
            by_timer: self.by_timer - before.by_timer,
        }
    }

    /// All of them.
    pub(super) const fn total(self) -> u64 {
        self.by_receipt + self.by_reading + self.by_timer
    }
}

/// An adapter and its workstation. All processes hold it.
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
    /// A token: something has changed for `xtask`.
    doorbell: Store<()>,
    must_acknowledge: Cell<bool>,
    receive_side: RefCell<Fields>,
    /// The transmit side's copy of what the receive side has written.
    transmit_side: RefCell<Fields>,
    /// What the last packet acknowledged, and how much of the read it told: as the receive side knows it.
    told: Cell<u64>,
    told_read: Cell<u64>,
    told_at: Cell<Instant>,
    pub(super) workstation: Facility,
    pub(super) delivered: Cell<u64>,
    pub(super) dropped: Cell<u64>,
    pub(super) acknowledgements: Cell<Acknowledgements>,
}

/// The processes that work, in Table 1's words.
pub(super) struct Work {
    pub(super) ip_intrsvc: Process,
    pub(super) ip_demux: Process,
    pub(super) tcp_recv: Process,
    pub(super) user_task: Process,
    pub(super) write: Process,
    pub(super) xtask: Process,
    pub(super) ip_send: Process,
    pub(super) peek_poke: [Process; 2],
    pub(super) rpc_process: Process,
}

impl Work {
    /// Gives every process its processor. Names begin with `node`.
    fn place(sim: &Sim, node: &str, setup: &Setup) -> (Vec<Transputer>, Self) {
        // Of ip_intrsvc, ip_demux, tcp_recv, user_task, write, xtask, ip_send.
        let seats: [usize; 7] = match setup.placement {
            Placement::One => [0; 7],
            Placement::Two => [0, 0, 0, 0, 1, 1, 1],
            Placement::Four => [0, 0, 1, 1, 2, 2, 3],
            Placement::Seven => [0, 1, 2, 3, 4, 5, 6],
        };
        let count = seats.iter().max().map_or(0, |seat| seat + 1);
        let new = |index| Transputer::new(sim, &format!("{node}, processor {index}"), micros(setup.switch_us));
        let processors: Vec<_> = (0..count).map(new).collect();
        let at = |seat: usize, priority| processors[seat].process(priority);
        let [intrsvc, demux, tcp, user, write, xtask, send] = seats;
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
    /// An adapter called `name`, without its processes.
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
            told: Cell::new(0),
            told_read: Cell::new(0),
            told_at: Cell::default(),
            workstation: Facility::new(sim, &called("workstation"), 1),
            delivered: Cell::new(0),
            dropped: Cell::new(0),
            acknowledgements: Cell::default(),
        })
    }

    /// Starts all processes; what is sent goes to `peer`.
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

    /// Whether the two sides have a processor in common, and so one memory and one state.
    fn is_whole(&self) -> bool {
        self.setup.placement == Placement::One
    }

    async fn ip_intrsvc(self: Rc<Self>) {
        loop {
            let packet = self.input.take().await;
            self.work.ip_intrsvc.run(micros(self.setup.costs.ip_intrsvc_us)).await;
            self.hand_over(&self.work.ip_intrsvc, &self.work.ip_demux, &self.to_demux, packet).await;
        }
    }

    async fn ip_demux(self: Rc<Self>) {
        loop {
            let packet = self.take_over(&self.work.ip_intrsvc, &self.work.ip_demux, &self.to_demux).await;
            self.work.ip_demux.run(micros(self.setup.costs.ip_demux_us)).await;
            self.hand_over(&self.work.ip_demux, &self.work.tcp_recv, &self.to_tcp, packet).await;
        }
    }

    async fn tcp_recv(self: Rc<Self>) {
        let costs = self.setup.costs;
        loop {
            let packet = self.take_over(&self.work.ip_demux, &self.work.tcp_recv, &self.to_tcp).await;
            let checksum = if packet.has_data { costs.checksum_us } else { 0.0 };
            self.work.tcp_recv.run(micros(costs.tcp_recv_us + checksum)).await;
            {
                let mut fields = self.receive_side.borrow_mut();
                fields.acknowledged = fields.acknowledged.max(packet.acknowledged);
                fields.edge = fields.edge.max(packet.edge);
                fields.received += u64::from(packet.has_data);
            }
            self.poke_transmit_side().await;
            if !packet.has_data {
                continue;
            }
            // There is room: nobody sends beyond the edge.
            self.received.put(()).await;
            let waiting = self.receive_side.borrow().received - self.told.get();
            if waiting >= u64::from(self.setup.acknowledge_every) {
                self.count(|counts| counts.by_receipt += 1);
                self.call_for_acknowledgement(&self.work.tcp_recv).await;
            }
        }
    }

    async fn user_task(self: Rc<Self>) {
        let costs = self.setup.costs;
        let cost = match self.setup.application {
            Application::OnAdapter => costs.user_task_us + costs.copy_us(),
            Application::OnWorkstation { .. } => costs.user_task_us,
            Application::None => 0.0,
        };
        loop {
            self.received.take().await;
            self.work.user_task.run(micros(cost)).await;
            self.read.put(()).await;
        }
    }

    /// The workstation takes what was received; in scenario 1 there is nothing left to do.
    async fn reading_workstation(self: Rc<Self>) {
        loop {
            self.read.take().await;
            if let Application::OnWorkstation { us_per_segment } = self.setup.application
                && us_per_segment > 0.0
            {
                self.workstation.serve(micros(us_per_segment)).await;
            }
            self.delivered.set(self.delivered.get() + 1);
            self.receive_side.borrow_mut().read += 1;
            if self.must_open_the_window() {
                self.count(|counts| counts.by_reading += 1);
                self.call_for_acknowledgement(&self.work.user_task).await;
            }
        }
    }

    /// Whether the application has read enough for a packet of its own, and no acknowledgement of data will tell the peer, because it
    /// knows of no room for as many.
    fn must_open_the_window(&self) -> bool {
        let every = u64::from(self.setup.acknowledge_every);
        let (read, told_read) = (self.receive_side.borrow().read, self.told_read.get());
        read - told_read >= every && self.told.get() + every > told_read + u64::from(self.setup.window)
    }

    /// Acknowledges what nobody else did in time.
    async fn rtask(self: Rc<Self>) {
        loop {
            let due = self.told_at.get() + ACKNOWLEDGE_AFTER;
            if self.sim.now() < due {
                self.sim.sleep_until(due).await;
                continue;
            }
            if self.receive_side.borrow().received > self.told.get() {
                self.count(|counts| counts.by_timer += 1);
                self.call_for_acknowledgement(&self.work.user_task).await;
            }
            self.sim.sleep(ACKNOWLEDGE_AFTER).await;
        }
    }

    /// Tells the transmit side what the receive side has written: at once if they share a memory, field by field if not.
    async fn poke_transmit_side(&self) {
        if self.is_whole() || self.setup.pokes == 0 {
            self.update_transmit_side(*self.receive_side.borrow());
            return;
        }
        for index in 1..=self.setup.pokes {
            self.work.tcp_recv.run(micros(self.setup.costs.poke_us)).await;
            // The last one completes them.
            let fields = (index == self.setup.pokes).then(|| *self.receive_side.borrow());
            self.pokes.send(fields, WORD_BYTES).await;
        }
    }

    async fn peek_poke_of_transmit_side(self: Rc<Self>) {
        loop {
            let fields = self.pokes.receive().await;
            self.work.peek_poke[1].run(micros(self.setup.poked_us)).await;
            if let Some(fields) = fields {
                self.update_transmit_side(fields);
            }
        }
    }

    /// The transmit side's copy becomes as new as `fields`. What arrives late changes nothing.
    fn update_transmit_side(&self, fields: Fields) {
        let mut copy = self.transmit_side.borrow_mut();
        *copy = Fields {
            received: copy.received.max(fields.received),
            read: copy.read.max(fields.read),
            acknowledged: copy.acknowledged.max(fields.acknowledged),
            edge: copy.edge.max(fields.edge),
        };
        self.ring();
    }

    /// Asks the transmit side for an acknowledgement, and waits for its word that it will be sent.
    async fn call_for_acknowledgement(&self, caller: &Process) {
        let fields = *self.receive_side.borrow();
        self.hear(fields);
        if self.is_whole() || self.setup.pokes == 0 {
            self.must_acknowledge.set(true);
            self.update_transmit_side(fields);
            return;
        }
        caller.run(micros(self.setup.costs.poke_us)).await;
        self.calls.send(fields, CALL_WORDS * WORD_BYTES).await;
        self.answers.receive().await;
    }

    async fn rpc_process(self: Rc<Self>) {
        loop {
            // What to acknowledge comes with the call.
            let fields = self.calls.receive().await;
            self.must_acknowledge.set(true);
            self.update_transmit_side(fields);
            self.work.rpc_process.run(micros(self.setup.costs.poke_us)).await;
            self.answers.send((), CALL_WORDS * WORD_BYTES).await;
        }
    }

    async fn write(self: Rc<Self>) {
        let costs = self.setup.costs;
        let cost = match self.setup.application {
            Application::OnAdapter => costs.write_us + costs.copy_us(),
            Application::OnWorkstation { .. } => costs.write_us,
            Application::None => 0.0,
        };
        loop {
            self.sim.sleep(micros(self.setup.pause_us)).await;
            self.send_buffer.put(()).await;
            if let Application::OnWorkstation { us_per_segment } = self.setup.application
                && us_per_segment > 0.0
            {
                self.workstation.serve(micros(us_per_segment)).await;
            }
            self.work.write.run(micros(cost)).await;
            self.unsent.set(self.unsent.get() + 1);
            self.ring();
        }
    }

    async fn xtask(self: Rc<Self>) {
        let costs = self.setup.costs;
        let mut freed = 0;
        loop {
            self.doorbell.take().await;
            loop {
                let fields = *self.transmit_side.borrow();
                while freed < fields.acknowledged {
                    self.send_buffer.try_take().expect("what is acknowledged was in the buffer");
                    freed += 1;
                }
                let has_data = self.unsent.get() > 0 && self.sent.get() < fields.edge;
                if !has_data && !self.must_acknowledge.get() {
                    break;
                }
                if has_data {
                    self.unsent.set(self.unsent.get() - 1);
                    self.sent.set(self.sent.get() + 1);
                }
                let checksum = if has_data { costs.checksum_us } else { 0.0 };
                self.work.xtask.run(micros(costs.tcp_snd_data_us + checksum)).await;
                self.must_acknowledge.set(false);
                let fields = *self.transmit_side.borrow();
                let edge = fields.read + u64::from(self.setup.window);
                let packet = Packet { has_data, acknowledged: fields.received, edge };
                self.poke_receive_side(fields).await;
                self.hand_over(&self.work.xtask, &self.work.ip_send, &self.to_driver, packet).await;
            }
        }
    }

    /// Tells the receive side what is sent, and with it what it acknowledges.
    async fn poke_receive_side(&self, fields: Fields) {
        if self.is_whole() || self.setup.pokes_back == 0 {
            self.hear(fields);
            return;
        }
        for index in 1..=self.setup.pokes_back {
            self.work.xtask.run(micros(self.setup.costs.poke_us)).await;
            let told = (index == self.setup.pokes_back).then_some(fields);
            self.pokes_back.send(told, WORD_BYTES).await;
        }
    }

    async fn peek_poke_of_receive_side(self: Rc<Self>) {
        loop {
            let told = self.pokes_back.receive().await;
            self.work.peek_poke[0].run(micros(self.setup.poked_us)).await;
            if let Some(told) = told {
                self.hear(told);
            }
        }
    }

    /// The receive side learns what has been acknowledged and granted.
    fn hear(&self, told: Fields) {
        self.told_read.set(self.told_read.get().max(told.read));
        if told.received > self.told.get() {
            self.told.set(told.received);
            self.told_at.set(self.sim.now());
        }
    }

    async fn ip_send(self: Rc<Self>, peer: Rc<Self>) {
        let costs = self.setup.costs;
        loop {
            let packet = self.take_over(&self.work.xtask, &self.work.ip_send, &self.to_driver).await;
            let moving = match self.setup.mover {
                Mover::Interface => 0.0,
                Mover::Processor => costs.network_word_us * self.words(packet) as f64,
            };
            self.work.ip_send.run(micros(costs.ip_send_us + costs.driver_send_us + moving)).await;
            match self.setup.mover {
                Mover::Interface => self.output.put(packet).await,
                Mover::Processor => self.deliver(&peer, packet),
            }
        }
    }

    /// The network interface and the line: 118 Mb/s, a packet at a time.
    async fn interface(self: Rc<Self>, peer: Rc<Self>) {
        loop {
            let packet = self.output.take().await;
            self.sim.sleep(micros(self.setup.costs.network_word_us * self.words(packet) as f64)).await;
            self.deliver(&peer, packet);
        }
    }

    const fn words(&self, packet: Packet) -> u64 {
        HEADER_WORDS + if packet.has_data { self.setup.costs.words } else { 0 }
    }

    fn deliver(&self, peer: &Self, packet: Packet) {
        if peer.input.try_put(packet).is_err() {
            peer.dropped.set(peer.dropped.get() + 1);
        }
    }

    /// Passes a packet's address on.
    async fn hand_over(&self, from: &Process, to: &Process, channel: &Channel<Packet>, packet: Packet) {
        if !from.is_beside(to) {
            from.run(micros(self.setup.hand_over_us)).await;
        }
        channel.send(packet, WORD_BYTES).await;
    }

    async fn take_over(&self, from: &Process, to: &Process, channel: &Channel<Packet>) -> Packet {
        let packet = channel.receive().await;
        if !from.is_beside(to) {
            to.run(micros(self.setup.hand_over_us)).await;
        }
        packet
    }

    /// Lets `xtask` look again. If the bell rings already it will.
    fn ring(&self) {
        let _rings_already = self.doorbell.try_put(());
    }

    fn count(&self, change: impl FnOnce(&mut Acknowledgements)) {
        let mut counts = self.acknowledgements.get();
        change(&mut counts);
        self.acknowledgements.set(counts);
    }
}
