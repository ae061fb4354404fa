//! [`Host`]: a stack, its processor, and the process that runs it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::receive_worker::ReceiveWorker;
use driver::shared::Common;
use driver::worker::{WorkerLoop, WorkerSocket};
use driver::workers::Workers;
use driver::{Clock, Driver, DriverLimits, Flush, LocalSocket, Place};
use netem::{ConfigError, LinkConfig};
use sim::Sim;
use sim::hardware::line::Line;
use sim::kernel::TaskId;
use tcp::{HostSecret, TcpConfig};
use tcp_driver::{Closed, Connect, Limits, LocalAddress, Runtime, StreamHandle, Tcp, TcpShared};
use units::Instant;

use crate::costs::Costs;
use crate::device::{Device, HostClock, HostEnv, Queues, data_len};
use crate::processor::{Processor, Processors, Receiving};
use crate::stream::Stream;

/// Turns at one virtual time that count as a livelock.
const STALLED_TURNS_MAX: u32 = 100_000;

/// The connections of a host, at most.
const LIMITS: DriverLimits = DriverLimits { half_open_max: 1024, connections_max: 4096 };

/// Takes a packet that leaves.
type Output = Box<dyn Fn(Bytes)>;

/// How a host is made.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Its address.
    pub address: IpAddr,
    /// The ports to which others can connect.
    pub listening: Vec<u16>,
    /// Its connections.
    pub tcp: TcpConfig,
    /// The processor time that it spends.
    pub costs: Costs,
    /// Its processors.
    pub processors: Processors,
    /// Interrupts that precede a turn, at most. Without a limit a host that receives faster than it can
    /// process makes no turn, as a kernel; with one a host shares its time fairly.
    pub interrupts_max: usize,
    /// What may wait between applications and connections.
    pub limits: Limits,
}

/// A host. Clones are the same host.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    sim: Sim,
    driver: RefCell<Driver<HostEnv>>,
    pub(crate) shared: Arc<TcpShared>,
    queues: Rc<Queues>,
    costs: Costs,
    interrupts_max: usize,
    /// The processor of the driver.
    sending: Processor,
    receiving: Option<Receiving>,
    /// Processes of applications that wait for the driver.
    waiting: RefCell<Vec<TaskId>>,
    /// Where packets go.
    output: RefCell<Option<Output>>,
}

impl Host {
    /// A host called `name`. Its processes run as long as the simulation.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, config: HostConfig) -> Self {
        let HostConfig { address, listening, tcp, costs, processors, interrupts_max, limits } = config;
        let queues = Rc::new(Queues::default());
        let mut secret = sim.stream(&format!("{name} secret")).into_rng();
        let mut key = [0; 32];
        key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&secret.next_u64().to_le_bytes()));
        let protocol = Tcp::new(tcp, HostSecret::new(key), vec![LocalAddress { ip: address, device: 0 }], listening);
        let local = vec![SocketAddr::new(address, 0)];
        let common = Arc::new(Common::new(1));
        let shared = Arc::new(TcpShared::new(Waker::noop().clone(), local, limits, common, 0));
        let sending = Processor::new(sim, name);
        let device = |clock: &HostClock| Device { queues: Rc::clone(&queues), clock: clock.clone(), costs };
        let (place, offload, receiving) = match processors {
            Processors::One => (LocalSocket::new(device(&sending.clock)), Workers::default(), None),
            Processors::ReceiveAndSend => {
                let processor = Processor::new(sim, &format!("{name}, receiving"));
                let socket = WorkerSocket { index: 0, socket: LocalSocket::new(device(&processor.clock)) };
                let (clock, waker) = (processor.clock.clone(), Waker::noop());
                let (receiver, worker) =
                    ReceiveWorker::new::<HostEnv>(clock, waker.clone(), waker.clone(), vec![socket]);
                let worker = RefCell::new(Box::new(worker) as Box<dyn WorkerLoop>);
                let only_sending = LocalSocket::only_sending(device(&sending.clock));
                (only_sending, Workers::of_receiver(receiver), Some(Receiving { processor, worker }))
            }
        };
        let (env, places) = (HostEnv(sending.clock.clone()), vec![Place::Local(place)]);
        let driver = Driver::new(env, Arc::clone(&shared), Vec::new(), protocol, places, (), offload, LIMITS);
        let inner = Rc::new(Inner {
            sim: sim.clone(),
            driver: RefCell::new(driver),
            shared,
            queues,
            costs,
            interrupts_max,
            sending,
            receiving,
            waiting: RefCell::default(),
            output: RefCell::default(),
        });
        sim.spawn(run(Rc::clone(&inner), Side::Sending));
        if inner.receiving.is_some() {
            sim.spawn(run(Rc::clone(&inner), Side::Receiving));
        }
        Self { inner }
    }

    /// Connects to `remote`, and waits until the peer has answered.
    ///
    /// # Errors
    /// If the peer refuses or does not answer.
    pub async fn connect(&self, remote: SocketAddr) -> Result<Stream, Closed> {
        self.inner.call_to_write().await;
        let runtime = HostRuntime(Rc::clone(&self.inner));
        let handle = StreamHandle::connect(&runtime, &self.inner.shared, remote, Connect::default(), 0)?;
        self.inner.wait_until(|waker| handle.poll_connected(waker)).await?;
        Ok(Stream::new(Rc::clone(&self.inner), handle))
    }

    /// The next connection of a peer.
    pub async fn accept(&self) -> Stream {
        let runtime = HostRuntime(Rc::clone(&self.inner));
        let poll = |waker: &Waker| StreamHandle::poll_accept(&runtime, &self.inner.shared, waker);
        let handle = self.inner.wait_until(poll).await.expect("nothing stops a simulated stack");
        Stream::new(Rc::clone(&self.inner), handle)
    }

    /// Passes each packet that leaves to `output`, instead of where they went before.
    pub fn set_output(&self, output: impl Fn(Bytes) + 'static) {
        self.inner.output.replace(Some(Box::new(output)));
    }

    /// A packet arrives.
    pub fn arrive(&self, packet: Bytes) {
        self.inner.queues.delivered.borrow_mut().push_back(packet);
        self.inner.receiving().wake();
    }

    /// Calls `look` with each connection.
    pub fn look_at_connections(&self, look: impl FnMut(&tcp::Connection)) {
        self.inner.driver.borrow().connections().map(tcp_driver::TcpConnection::tcp).for_each(look);
    }
}

/// Connects two hosts by a line in each direction. `line_len` is the length on the line of a packet
/// of so many bytes: with the headers and the padding of its frames or cells.
///
/// # Errors
/// If the configuration of the lines is invalid.
///
/// # Panics
/// If the model already has lines of this name.
pub fn connect(
    sim: &Sim,
    name: &str,
    hosts: [&Host; 2],
    config: &LinkConfig,
    line_len: fn(usize) -> usize,
) -> Result<(), ConfigError> {
    config.validate()?;
    for (from, to, number) in [(hosts[0], hosts[1], 0), (hosts[1], hosts[0], 1)] {
        let line = Line::new(sim, &format!("{name} {number}"), config.clone()).expect("it was validated");
        let receiver = Rc::downgrade(&to.inner);
        line.on_delivery(move |delivered: sim::hardware::line::Delivered<Bytes>| {
            // A packet that a fault has corrupted fails its checksum: it is dropped here.
            if let Some(inner) = receiver.upgrade().filter(|_| !delivered.corrupted) {
                Host { inner }.arrive(delivered.item);
            }
        });
        from.set_output(move |packet| line.send(line_len(packet.len()), packet));
    }
    Ok(())
}

/// The work of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The driver's, with the interrupts if no other processor has them.
    Sending,
    /// Interrupts and the receive worker's.
    Receiving,
}

impl Inner {
    /// Lets the driver run: something is due.
    fn wake(&self) {
        self.sending.wake();
    }

    /// The processor that takes interrupts, and whose applications read.
    fn receiving(&self) -> &Processor {
        self.receiving.as_ref().map_or(&self.sending, |receiving| &receiving.processor)
    }

    fn processor(&self, side: Side) -> &Processor {
        if side == Side::Receiving { self.receiving() } else { &self.sending }
    }

    /// The time of a call of an application that writes.
    pub(crate) async fn call_to_write(&self) {
        self.call(&self.sending).await;
    }

    /// The time of a call of an application that reads.
    pub(crate) async fn call_to_read(&self) {
        self.call(self.receiving()).await;
    }

    async fn call(&self, processor: &Processor) {
        let held = processor.unit.acquire().await;
        self.sim.sleep(self.costs.call).await;
        drop(held);
    }

    /// Waits until `poll` is ready. It is asked again after each turn.
    pub(crate) async fn wait_until<T>(&self, poll: impl Fn(&Waker) -> Poll<T>) -> T {
        loop {
            if let Poll::Ready(ready) = poll(Waker::noop()) {
                return ready;
            }
            self.waiting.borrow_mut().push(self.sim.current_task());
            wait_for_wake().await;
        }
    }

    /// Whether this side takes interrupts, and one is due.
    fn is_interrupted(&self, side: Side) -> bool {
        let takes = side == Side::Receiving || self.receiving.is_none();
        takes && !self.queues.delivered.borrow().is_empty()
    }

    fn due_at(&self, side: Side, now: Instant) -> Option<Instant> {
        if self.is_interrupted(side) {
            return Some(now);
        }
        match (side, &self.receiving) {
            (Side::Receiving, Some(receiving)) => receiving.worker.borrow().due_at(now),
            _ => self.driver.borrow().due_at(now),
        }
    }

    /// Takes what has arrived, and runs a turn: it decides now, and the time passes that it costs.
    async fn turn(&self, side: Side) {
        let processor = self.processor(side);
        let held = processor.unit.acquire_urgently().await;
        // Interrupts come first: also those of packets that arrive meanwhile.
        for _ in 0..self.interrupts_max {
            if !self.is_interrupted(side) {
                break;
            }
            let packet = self.queues.delivered.borrow_mut().pop_front().expect("there is a packet");
            self.sim.sleep(self.costs.received.of(data_len(&packet))).await;
            self.queues.arrived.borrow_mut().push_back(packet);
        }
        processor.clock.advance_to(self.sim.now());
        match (side, &self.receiving) {
            (Side::Receiving, Some(receiving)) => receiving.worker.borrow_mut().counted_turn(),
            _ => {
                self.driver.borrow_mut().turn(Flush::Now);
                self.emit().await;
            }
        }
        self.sim.sleep_until(processor.clock.now()).await;
        drop(held);
        self.waiting.take().into_iter().for_each(|task| self.sim.wake(task));
        // Each side may have left work to the other.
        self.sending.wake();
        self.receiving().wake();
    }

    /// Passes what a turn has sent to the line, each packet at its time.
    async fn emit(&self) {
        let pop = || self.queues.sent.borrow_mut().pop_front();
        while let Some((at, packet)) = pop() {
            self.sim.sleep_until(at).await;
            let output = self.output.borrow();
            output.as_ref().expect("a host that sends is connected")(packet);
        }
    }
}

/// The process of a processor.
async fn run(host: Rc<Inner>, side: Side) {
    host.processor(side).register();
    let (mut last, mut turns) = (host.sim.now(), 0);
    loop {
        let now = host.sim.now();
        match host.due_at(side, now) {
            Some(at) if at <= now => {
                (turns, last) = (if now > last { 0 } else { turns + 1 }, now);
                assert!(turns < STALLED_TURNS_MAX, "a processor is busy without end at {now:?}");
                host.turn(side).await;
            }
            due => {
                if let Some(at) = due {
                    host.processor(side).wake_at(at);
                }
                wait_for_wake().await;
            }
        }
    }
}

/// Waits until the process is woken. Wake-ups may be spurious.
async fn wait_for_wake() {
    let mut has_waited = false;
    poll_fn(|_| if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// How handles reach the driver of a host.
#[derive(Clone)]
pub(crate) struct HostRuntime(Rc<Inner>);

impl Runtime for HostRuntime {
    fn kick(&self, _shared: &TcpShared, _flush: Flush) {
        self.0.wake();
    }

    fn block_on<T>(&self, _deadline: Option<Instant>, _poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        unreachable!("a process of a simulation does not block its thread")
    }
}
