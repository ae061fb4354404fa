//! [`TcpStack`]: a TCP/IP stack in this process, on a device.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use driver::placement::Placement;
use driver::receive_worker::ReceiveWorkerStats;
use engine::{DriverSettings, Drivers, StartError};
use tcp::{HostSecret, TcpConfig};
use tcp_driver::{
    Closed, Connect, Count, HostCounters, Layers, Listen, LocalAddress, Runtime, StreamHandle, Tcp, TcpShared,
};

use super::device::IpDevice;
use super::stream::TcpStream;

/// A cipher above TCP needs space for a job, of about 16 KiB, at a time.
const CIPHER_SEND_BUFFER_MIN: usize = 32 << 10;

/// The configuration of a stack.
///
/// More fields may be added: begin with [`new`](Self::new), and set others with the `with_` methods.
#[derive(Debug)]
#[non_exhaustive]
pub struct TcpStackConfig {
    devices: Vec<IpDevice>,
    addresses: Vec<LocalAddress>,
    listening: Vec<(u16, Listen)>,
    tcp: TcpConfig,
    layers: Option<Layers>,
    settings: DriverSettings,
}

impl TcpStackConfig {
    /// A stack that has `addresses` on `device`.
    pub fn new(device: IpDevice, addresses: &[IpAddr]) -> Self {
        let mut config = Self {
            devices: Vec::new(),
            addresses: Vec::new(),
            listening: Vec::new(),
            tcp: TcpConfig::default(),
            layers: None,
            settings: DriverSettings::default(),
        };
        config.settings.limits.connections_max = 65_536;
        config.settings.limits.half_open_max = 4096;
        config.with_device(device, addresses)
    }

    /// Adds a device, on which the stack has `addresses`.
    #[must_use]
    pub fn with_device(mut self, device: IpDevice, addresses: &[IpAddr]) -> Self {
        let index = self.devices.len();
        self.addresses.extend(addresses.iter().map(|ip| LocalAddress { ip: *ip, device: index }));
        self.devices.push(device);
        self
    }

    /// Accepts connections to these ports.
    #[must_use]
    pub fn with_listening(self, ports: impl IntoIterator<Item = u16>) -> Self {
        ports.into_iter().fold(self, |config, port| config.with_listener(port, Listen::default()))
    }

    /// Accepts connections to `port`, within these bounds.
    #[must_use]
    pub fn with_listener(mut self, port: u16, bounds: Listen) -> Self {
        self.listening.push((port, bounds));
        self
    }

    /// Sets what connections use, and their timers.
    #[must_use]
    pub fn with_tcp(mut self, tcp: TcpConfig) -> Self {
        self.tcp = tcp;
        self
    }

    /// Adds security layers above and below TCP. The peer must have the same, with the same secret.
    /// Historical layers, which protect nothing today, are an error on a device of the kernel.
    #[must_use]
    pub fn with_layers(mut self, layers: Layers) -> Self {
        self.layers = Some(layers);
        self
    }

    /// Checks that the layers suit the devices.
    fn check_layers(&self) -> Result<(), StartError> {
        let Some(layers) = &self.layers else { return Ok(()) };
        let stack = layers.stack();
        if stack.is_historical() && !self.devices.iter().all(IpDevice::is_in_memory) {
            let reason = format!("{stack} protects nothing today: it runs on devices in memory only");
            return Err(StartError::Configuration(reason));
        }
        let send_buffer = self.tcp.send_buffer.min(self.tcp.buffers_initial);
        if stack.cipher.is_some() && send_buffer < CIPHER_SEND_BUFFER_MIN {
            let reason = format!("{stack} needs a send buffer of at least {CIPHER_SEND_BUFFER_MIN} bytes");
            return Err(StartError::Configuration(reason));
        }
        Ok(())
    }

    /// Sets the processors. Default: [`Placement::Thread`]. A stack has one driver:
    /// [`Placement::Connection`] is an error.
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.settings.placement = placement;
        self
    }
}

/// A TCP/IP stack. It ends when it and all of its streams are dropped, or by [`close`](Self::close).
#[derive(Clone)]
pub struct TcpStack {
    drivers: Drivers<IpDevice>,
    addresses: Vec<LocalAddress>,
    counters: Arc<HostCounters>,
}

/// The engine as the handles see it.
#[derive(Clone)]
pub(super) struct TcpRuntime(Drivers<IpDevice>);

impl Runtime for TcpRuntime {
    fn kick(&self, shared: &TcpShared, flush: driver::Flush) {
        self.0.kick(shared, flush);
    }

    fn block_on<T>(
        &self,
        deadline: Option<units::Instant>,
        poll: impl FnMut(&std::task::Waker) -> std::task::Poll<T>,
    ) -> Option<T> {
        self.0.block_on(deadline, poll)
    }
}

impl TcpStack {
    /// Starts a stack.
    ///
    /// # Errors
    /// If the configuration is invalid, or the system refuses a poll, a thread or random bytes.
    pub fn start(config: TcpStackConfig) -> Result<Self, StartError> {
        config.check_layers()?;
        let TcpStackConfig { devices, addresses, listening, tcp, layers, settings } = config;
        if settings.placement.driver_count() > 1 {
            let reason = format!("a stack has one driver, and {} several", settings.placement);
            return Err(StartError::Configuration(reason));
        }
        let mut key = [0; 32];
        net::os_random(&mut key).map_err(|error| StartError::System("get random bytes", error))?;
        let secret = HostSecret::new(key);
        let counters = Arc::<HostCounters>::default();
        let protocol = || {
            let stack = Tcp::new(tcp.clone(), secret.clone(), addresses.clone(), []);
            let listen = |stack: Tcp, (port, bounds): &(u16, Listen)| stack.with_listener(*port, *bounds);
            let stack = listening.iter().fold(stack.with_counters(Arc::clone(&counters)), listen);
            match &layers {
                Some(layers) => stack.with_layers(layers.clone()),
                None => stack,
            }
        };
        let make = |count, _| Ok((0..count).map(|_| protocol()).collect());
        let drivers = Drivers::start(settings, tcp_driver::Limits::default(), devices, make)?;
        Ok(Self { drivers, addresses, counters })
    }

    /// Connects to `remote`. Waits until the peer has answered.
    ///
    /// # Errors
    /// If the peer refuses or does not answer, or no device has an address of its family.
    pub fn connect(&self, remote: SocketAddr) -> Result<TcpStream, Closed> {
        let family = |address: &&LocalAddress| address.ip.is_ipv4() == remote.is_ipv4();
        let device = self.addresses.iter().find(family).map(|address| address.device);
        let device = device.ok_or(Closed::Driver(driver::EndReason::NoSocket))?;
        let runtime = TcpRuntime(self.drivers.clone());
        let connect = |shared: &_| StreamHandle::connect(&runtime, shared, remote, Connect::default(), device);
        let handle = self.drivers.begin(None, connect)?;
        let connected = self.drivers.block_on(None, |waker| handle.poll_connected(waker));
        connected.unwrap_or(Err(Closed::Driver(driver::EndReason::EndpointClosed)))?;
        Ok(TcpStream::new(handle))
    }

    /// The next connection of a peer.
    ///
    /// # Errors
    /// If the stack is closed.
    pub fn accept(&self) -> Result<TcpStream, Closed> {
        let runtime = TcpRuntime(self.drivers.clone());
        let shared = self.drivers.shared(0);
        let accepted = self.drivers.block_on(None, |waker| StreamHandle::poll_accept(&runtime, shared, waker));
        let closed = Closed::Driver(driver::EndReason::EndpointClosed);
        accepted.flatten().map(TcpStream::new).ok_or(closed)
    }

    /// How often something has happened beside the connections.
    pub fn count_of(&self, count: Count) -> u64 {
        self.counters.of(count)
    }

    /// The number of connections, including those that are closing.
    pub fn connection_count(&self) -> usize {
        self.drivers.connection_count()
    }

    /// Statistics of the receive worker of [`Placement::Split`].
    pub fn receive_worker_stats(&self) -> Option<ReceiveWorkerStats> {
        self.drivers.receive_worker_stats()
    }

    /// Resets all connections and ends the stack. Repeated calls have no effect.
    pub fn close(&self) {
        self.drivers.stop();
    }
}
