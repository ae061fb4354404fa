//! [`Host`]: a stack, its processors, and the processes that run it.

use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use driver::Flush;
use driver::shared::Common as DriverCommon;
use netem::{ConfigError, LinkConfig};
use sim::Sim;
use sim::hardware::line::Line;
use tcp::{HostSecret, TcpConfig};
use tcp_driver::listeners::Port;
use tcp_driver::{
    Closed, Connect, Layers, Limits, Listen, ListeningPorts, LocalAddress, Runtime, StreamHandle, Tcp, TcpShared,
};
use units::Instant;

use crate::common::Common;
use crate::costs::Costs;
use crate::processor::Processors;
use crate::steps::{Division, Steps};
use crate::stream::Stream;
use crate::turns::Turns;

/// Configuration of a host.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Address.
    pub address: IpAddr,
    /// Port that accepts connections.
    pub listening: Option<u16>,
    /// Configuration of its connections.
    pub tcp: TcpConfig,
    /// Security layers. They need [processors](Processors) that perform steps: `Packet` or
    /// `Pipeline`.
    pub layers: Option<Layers>,
    /// Processor time of its work.
    pub costs: Costs,
    /// Processors.
    pub processors: Processors,
    /// Limit on interrupts that precede a turn. Without a limit, a host that receives faster than
    /// it can process makes no turn, like a kernel; with one, a host shares its time fairly.
    /// Processors that perform steps take them in order.
    pub interrupts_max: usize,
    /// Limits on data between applications and connections.
    pub limits: Limits,
}

impl HostConfig {
    /// Creates the configuration of a host with one processor and work without cost, which accepts
    /// no connections.
    pub fn new(address: IpAddr, tcp: TcpConfig) -> Self {
        Self {
            address,
            listening: None,
            tcp,
            layers: None,
            costs: Costs::default(),
            processors: Processors::One,
            interrupts_max: usize::MAX,
            limits: Limits::default(),
        }
    }
}

/// A host. Clones refer to the same host.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    common: Rc<Common>,
    machine: Machine,
    listening: Option<Arc<Port>>,
}

/// The processors and the driver. Their processes keep them alive.
enum Machine {
    Turns(Rc<Turns>),
    Steps(Rc<Steps>),
}

/// Weak reference to a machine, held by its line, which the machine owns.
enum WeakMachine {
    Turns(Weak<Turns>),
    Steps(Weak<Steps>),
}

impl Machine {
    fn downgrade(&self) -> WeakMachine {
        match self {
            Self::Turns(turns) => WeakMachine::Turns(Rc::downgrade(turns)),
            Self::Steps(steps) => WeakMachine::Steps(Rc::downgrade(steps)),
        }
    }

    fn arrive(&self, packet: Bytes) {
        match self {
            Self::Turns(turns) => turns.arrive(packet),
            Self::Steps(steps) => steps.arrive(packet),
        }
    }
}

impl WeakMachine {
    fn upgrade(&self) -> Option<Machine> {
        match self {
            Self::Turns(turns) => turns.upgrade().map(Machine::Turns),
            Self::Steps(steps) => steps.upgrade().map(Machine::Steps),
        }
    }
}

impl Host {
    /// Creates a host called `name`. Its processes run as long as the simulation.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name, if there is no processor, or if
    /// there are security layers for processors that take turns.
    pub fn new(sim: &Sim, name: &str, config: HostConfig) -> Self {
        let HostConfig { address, listening, tcp, layers, costs, processors, interrupts_max, limits } = config;
        let mut secret = sim.stream(&format!("{name} secret")).into_rng();
        let mut key = [0; 32];
        key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&secret.next_u64().to_le_bytes()));
        let protocol = Tcp::new(tcp, HostSecret::new(key), vec![LocalAddress { ip: address, device: 0 }]);
        let local = vec![SocketAddr::new(address, 0)];
        let in_common = Arc::new(DriverCommon::new(1));
        let shared = Arc::new(TcpShared::new(Waker::noop().clone(), local, limits, in_common, 0));
        let ports = Arc::<ListeningPorts>::default();
        let listen = |port| ports.listen(&shared, port, Listen::default()).expect("a new stack has a free port");
        let listening = listening.map(listen);
        let protocol = protocol.with_listening(ports);
        let common = Rc::new(Common::new(sim, shared, costs));
        let takes_turns = matches!(processors, Processors::One | Processors::ReceiveAndSend);
        assert!(layers.is_none() || !takes_turns, "the cost of security layers is that of steps");
        let protocol = layers.into_iter().fold(protocol, Tcp::with_layers);
        let steps = |protocol, count, division| Machine::Steps(Steps::begin(&common, name, protocol, count, division));
        let machine = match processors {
            Processors::One => Machine::Turns(Turns::begin(&common, name, protocol, false, interrupts_max)),
            Processors::ReceiveAndSend => Machine::Turns(Turns::begin(&common, name, protocol, true, interrupts_max)),
            Processors::Packet(count) => {
                assert!(count > 0, "a host needs a processor");
                let division = Division { link_in: 0, link_out: 0, received: 0, sent: 0, shares_stages: true };
                steps(protocol, count, division)
            }
            Processors::Pipeline => {
                let division = Division { link_in: 0, received: 1, sent: 2, link_out: 3, shares_stages: false };
                steps(protocol, 4, division)
            }
        };
        Self { inner: Rc::new(Inner { common, machine, listening }) }
    }

    /// Connects to `remote`, and waits until the peer has answered.
    ///
    /// # Errors
    /// Fails if the peer refuses or does not answer.
    pub async fn connect(&self, remote: SocketAddr) -> Result<Stream, Closed> {
        self.inner.call_to_write().await;
        let runtime = HostRuntime(Rc::clone(&self.inner));
        let handle = StreamHandle::connect(&runtime, &self.inner.common.shared, remote, Connect::default(), 0)?;
        self.inner.wait_until(|waker| handle.poll_connected(waker)).await?;
        Ok(Stream::new(Rc::clone(&self.inner), handle))
    }

    /// Returns the next connection of a peer.
    ///
    /// # Panics
    /// Panics if the host does not listen.
    pub async fn accept(&self) -> Stream {
        let runtime = HostRuntime(Rc::clone(&self.inner));
        let port = self.inner.listening.as_ref().expect("the host listens");
        let poll = |waker: &Waker| StreamHandle::poll_accept(&runtime, &self.inner.common.shared, port, waker);
        let handle = self.inner.wait_until(poll).await.expect("nothing stops a simulated stack");
        Stream::new(Rc::clone(&self.inner), handle)
    }

    /// Passes each outgoing packet to `output`, instead of its previous destination.
    pub fn set_output(&self, output: impl Fn(Bytes) + 'static) {
        self.inner.common.set_output(output);
    }

    /// Delivers a packet.
    pub fn arrive(&self, packet: Bytes) {
        self.inner.machine.arrive(packet);
    }

    /// Calls `look` with each connection.
    pub fn look_at_connections(&self, look: impl FnMut(&tcp::Connection)) {
        match &self.inner.machine {
            Machine::Turns(turns) => turns.look_at_connections(look),
            Machine::Steps(steps) => steps.look_at_connections(look),
        }
    }
}

/// Connects two hosts by a line in each direction. `line_len` returns the length on the line of a
/// packet of this many bytes, with the headers and padding of its frames or cells.
///
/// # Errors
/// Fails if the configuration of the lines is invalid.
///
/// # Panics
/// Panics if the model already has lines of this name.
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
        let receiver = to.inner.machine.downgrade();
        line.on_delivery(move |delivered: sim::hardware::line::Delivered<Bytes>| {
            // A packet that a fault has corrupted fails its checksum: it is dropped here.
            if let Some(machine) = receiver.upgrade().filter(|_| !delivered.corrupted) {
                machine.arrive(delivered.item);
            }
        });
        from.set_output(move |packet| line.send(line_len(packet.len()), packet));
    }
    Ok(())
}

impl Inner {
    /// Spends the time of an application call that writes.
    pub(crate) async fn call_to_write(&self) {
        self.call(true).await;
    }

    /// Spends the time of an application call that reads.
    pub(crate) async fn call_to_read(&self) {
        self.call(false).await;
    }

    async fn call(&self, writes: bool) {
        match &self.machine {
            Machine::Turns(turns) => turns.call(writes).await,
            Machine::Steps(steps) => steps.call(writes).await,
        }
    }

    /// Waits until `poll` is ready. It is polled again after each turn.
    pub(crate) async fn wait_until<T>(&self, poll: impl Fn(&Waker) -> Poll<T>) -> T {
        loop {
            if let Poll::Ready(ready) = poll(Waker::noop()) {
                return ready;
            }
            self.common.wait().await;
        }
    }
}

/// Access of handles to the driver of a host.
#[derive(Clone)]
pub(crate) struct HostRuntime(Rc<Inner>);

impl Runtime for HostRuntime {
    fn kick(&self, _shared: &TcpShared, _flush: Flush) {
        match &self.0.machine {
            Machine::Turns(turns) => turns.wake(),
            Machine::Steps(steps) => steps.wake(),
        }
    }

    fn block_on<T>(&self, _deadline: Option<Instant>, _poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        unreachable!("a process of a simulation does not block its thread")
    }
}
