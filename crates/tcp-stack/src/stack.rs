//! [`TcpStack`]: a TCP/IP stack in this process, on a device.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use driver::placement::Placement;
use driver::receive_worker::ReceiveWorkerStats;
use engine::{DriverSettings, Drivers, EventHandler, StartError};
use tcp::{HostSecret, TcpConfig};
use tcp_driver::link::Prefix;
use tcp_driver::udp::{UdpError, UdpHost};
use tcp_driver::{
    Closed, Connect, Count, HostCounters, Layers, Listen, ListenError, ListenerHandle, ListeningPorts, LocalAddress,
    Shard, StreamHandle, Tcp, Transparent, TransparentBounds,
};

use crate::device::IpDevice;
use crate::listener::TcpListener;
use crate::runtime::TcpRuntime;
use crate::stream::{GONE, TcpStream};
use crate::udp::UdpPort;

/// Minimum send buffer with a cipher above TCP, which needs space for a job of about 16 KiB at a
/// time.
const CIPHER_SEND_BUFFER_MIN: usize = 32 << 10;

/// The configuration of a stack.
///
/// More fields may be added: begin with [`new`](Self::new), and set others with the `with_` methods.
#[derive(Debug)]
#[non_exhaustive]
pub struct TcpStackConfig {
    devices: Vec<IpDevice>,
    addresses: Vec<LocalAddress>,
    tcp: TcpConfig,
    layers: Option<Layers>,
    transparent: Option<TransparentBounds>,
    settings: DriverSettings,
}

impl TcpStackConfig {
    /// Creates a stack that has `addresses` on `device`.
    pub fn new(device: IpDevice, addresses: &[IpAddr]) -> Self {
        let mut config = Self {
            devices: Vec::new(),
            addresses: Vec::new(),
            tcp: TcpConfig::default(),
            layers: None,
            transparent: None,
            settings: DriverSettings::default(),
        };
        config.settings.limits.connections_max = 65_536;
        config.settings.limits.half_open_max = 4096;
        config.with_device(device, addresses)
    }

    /// Creates a transparent stack, which has all addresses on `device`: it connects from any
    /// address, and [`next_opening`](TcpStack::next_opening) returns each attempt of a peer to
    /// connect, to any port, before it is answered.
    pub fn transparent(device: IpDevice, bounds: TransparentBounds) -> Self {
        Self { transparent: Some(bounds), ..Self::new(device, &[]) }
    }

    /// Adds a device, on which the stack has `addresses`.
    #[must_use]
    pub fn with_device(mut self, device: IpDevice, addresses: &[IpAddr]) -> Self {
        let index = self.devices.len();
        self.addresses.extend(addresses.iter().map(|ip| LocalAddress { ip: *ip, device: index }));
        self.devices.push(device);
        self
    }

    /// Sets the features, limits and timers of connections.
    #[must_use]
    pub fn with_tcp(mut self, tcp: TcpConfig) -> Self {
        self.tcp = tcp;
        self
    }

    /// Adds security layers above and below TCP. The peer must use the same, with the same secret.
    /// Historical layers, which protect nothing today, are an error on a device of the kernel.
    #[must_use]
    pub fn with_layers(mut self, layers: Layers) -> Self {
        self.layers = Some(layers);
        self
    }

    /// Checks a transparent stack: it must have one driver, which decides whose packets are its
    /// own, and no layers.
    fn check_transparent(&self) -> Result<(), StartError> {
        let is_simple = self.settings.placement.driver_count() == 1 && self.layers.is_none();
        if self.transparent.is_some() && !is_simple {
            let reason = "a transparent stack has one driver and no security layers";
            return Err(StartError::Configuration(reason.to_owned()));
        }
        Ok(())
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

    /// Sets the processors. Default: [`Placement::Thread`]. Under [`Placement::Connection`] each
    /// driver has a [queue](IpDevice::with_queue) of each device, and the connections whose
    /// addresses and ports hash to it.
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.settings.placement = placement;
        self
    }

    /// Sets the time for which an idle thread polls before it sleeps. Polling shortens round trips
    /// and occupies a core while packets arrive at such intervals. Default: zero, which sleeps at
    /// once.
    #[must_use]
    pub fn with_busy_poll(mut self, busy_poll: Duration) -> Self {
        self.settings.busy_poll = busy_poll.into();
        self
    }

    /// Sets an additional action of the first thread when a descriptor is readable. Default:
    /// nothing.
    #[must_use]
    pub fn with_event_handler(mut self, event_handler: Arc<dyn EventHandler>) -> Self {
        self.settings.event_handler = Some(event_handler);
        self
    }
}

/// A TCP/IP stack. It ends when it and all of its streams are dropped, or by
/// [`close`](Self::close).
#[derive(Clone)]
pub struct TcpStack {
    pub(crate) drivers: Drivers<IpDevice>,
    addresses: Vec<LocalAddress>,
    listening: Arc<ListeningPorts>,
    counters: Arc<HostCounters>,
    udp: Arc<UdpHost>,
    pub(crate) transparent: Option<Arc<Transparent>>,
}

impl TcpStack {
    /// Starts a stack.
    ///
    /// # Errors
    /// Fails if the configuration is invalid, or the system refuses a poll, a thread or random
    /// bytes.
    pub fn start(config: TcpStackConfig) -> Result<Self, StartError> {
        config.check_layers()?;
        config.check_transparent()?;
        let TcpStackConfig { devices, addresses, tcp, layers, transparent, settings } = config;
        let networks: Vec<Prefix> = devices.iter().flat_map(|device| device.networks().iter().copied()).collect();
        let count = settings.placement.driver_count();
        if let Some(device) = devices.iter().find(|device| device.queue_count() != count) {
            let queues = device.queue_count();
            let reason = format!("{} needs {count} queues of each device, and one has {queues}", settings.placement);
            return Err(StartError::Configuration(reason));
        }
        let (counters, udp) = (Arc::<HostCounters>::default(), Arc::<UdpHost>::default());
        let shared = &counters;
        let of_driver = |driver| devices.iter().map(move |device| device.queue(driver, shared));
        let queues = (0..count).flat_map(of_driver).collect();
        let mut key = [0; 32];
        net::os_random(&mut key).map_err(|error| StartError::System("get random bytes", error))?;
        let secret = HostSecret::new(key);
        let listening = Arc::<ListeningPorts>::default();
        let transparent = transparent.map(|bounds| Arc::new(Transparent::new(bounds, secret.table_key())));
        let protocol = || {
            let stack = Tcp::new(tcp.clone(), secret.clone(), addresses.clone())
                .with_networks(&networks)
                .with_listening(Arc::clone(&listening))
                .with_counters(Arc::clone(&counters))
                .with_udp(Arc::clone(&udp));
            let stack = match &transparent {
                Some(transparent) => stack.with_transparent(Arc::clone(transparent)),
                None => stack,
            };
            match &layers {
                Some(layers) => stack.with_layers(layers.clone()),
                None => stack,
            }
        };
        let shard = |index| protocol().with_shard(Shard::new(index, count));
        let make = |_, _| Ok((0..count).map(shard).collect());
        let drivers = Drivers::start(settings, tcp_driver::Limits::default(), queues, make)?;
        Ok(Self { drivers, addresses, listening, counters, udp, transparent })
    }

    /// Connects to `remote`. Waits until the peer has answered.
    ///
    /// # Errors
    /// Fails if the peer refuses or does not answer, or no device has an address of its family.
    pub fn connect(&self, remote: SocketAddr) -> Result<TcpStream, Closed> {
        self.finish_connect(self.begin_connect(remote, Connect::default())?, None)
    }

    /// Does the same as [`connect`](Self::connect), for at most `timeout`.
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect), and [`Closed::ConnectTimedOut`].
    pub fn connect_timeout(&self, remote: SocketAddr, timeout: Duration) -> Result<TcpStream, Closed> {
        let deadline = TcpRuntime::new(&self.drivers).deadline_after(timeout);
        self.finish_connect(self.begin_connect(remote, Connect::default())?, Some(deadline))
    }

    /// Does the same as [`connect`](Self::connect) from `local`, an address of the stack. Port zero
    /// lets the stack choose.
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect); also fails if the stack has no such address or
    /// the port is taken.
    pub fn connect_from(&self, local: SocketAddr, remote: SocketAddr) -> Result<TcpStream, Closed> {
        self.finish_connect(self.begin_connect(remote, Connect::default().with_local(local))?, None)
    }

    /// Does the same as [`connect`](Self::connect) with other parameters.
    ///
    /// # Errors
    /// Same errors as [`connect_from`](Self::connect_from).
    pub fn connect_with(&self, remote: SocketAddr, parameters: Connect) -> Result<TcpStream, Closed> {
        self.finish_connect(self.begin_connect(remote, parameters)?, None)
    }

    /// Does the same as [`connect`](Self::connect) for asynchronous callers, whatever their
    /// executor.
    ///
    /// # Errors
    /// Same errors as [`connect`](Self::connect); also fails if the placement is inline.
    pub async fn connect_async(&self, remote: SocketAddr) -> Result<TcpStream, Closed> {
        TcpRuntime::new(&self.drivers).can_async()?;
        let handle = self.begin_connect(remote, Connect::default())?;
        poll_fn(|context| handle.poll_connected(context.waker())).await?;
        Ok(TcpStream::new(handle))
    }

    pub(crate) fn begin_connect(
        &self,
        remote: SocketAddr,
        parameters: Connect,
    ) -> Result<StreamHandle<TcpRuntime>, Closed> {
        let fits = |address: &&LocalAddress| match parameters.local {
            Some(local) => address.ip == local.ip(),
            None => address.ip.is_ipv4() == remote.is_ipv4(),
        };
        let known = self.addresses.iter().find(fits).map(|address| address.device);
        // A transparent stack has all addresses on its first device.
        let device = known.or(self.transparent.as_ref().map(|_| 0));
        let device = device.ok_or(Closed::Driver(driver::EndReason::NoSocket))?;
        let runtime = TcpRuntime::new(&self.drivers);
        let begin = |shared: &_| StreamHandle::connect(&runtime, shared, remote, parameters.clone(), device);
        self.drivers.begin(None, begin)
    }

    fn finish_connect(
        &self,
        handle: StreamHandle<TcpRuntime>,
        deadline: Option<units::Instant>,
    ) -> Result<TcpStream, Closed> {
        match self.drivers.block_on(deadline, |waker| handle.poll_connected(waker)) {
            Some(result) => result?,
            None if deadline.is_some() => {
                // No more SYNs are sent.
                handle.abort();
                return Err(Closed::ConnectTimedOut);
            }
            None => return Err(GONE),
        }
        Ok(TcpStream::new(handle))
    }

    /// Accepts connections to `port` on all addresses of the stack; zero lets the stack choose.
    ///
    /// # Errors
    /// Fails if the port has a listener, none is free, or the stack is closed.
    pub fn listen(&self, port: u16) -> Result<TcpListener, ListenError> {
        self.listen_with(port, Listen::default())
    }

    /// Does the same as [`listen`](Self::listen) within these limits.
    ///
    /// # Errors
    /// Same errors as [`listen`](Self::listen).
    pub fn listen_with(&self, port: u16, bounds: Listen) -> Result<TcpListener, ListenError> {
        let runtime = TcpRuntime::new(&self.drivers);
        let handle = ListenerHandle::listen(&runtime, self.drivers.shared(0), &self.listening, port, bounds)?;
        Ok(TcpListener::new(handle))
    }

    /// Binds a UDP port on all addresses of the stack; zero lets the stack choose.
    ///
    /// # Errors
    /// Fails if the port is bound, or none is free.
    pub fn bind_udp(&self, port: u16) -> Result<UdpPort, UdpError> {
        Ok(UdpPort {
            port: self.udp.bind(port)?,
            runtime: TcpRuntime::new(&self.drivers),
            shared: Arc::clone(self.drivers.shared(0)),
            addresses: self.addresses.iter().map(|address| address.ip).collect(),
        })
    }

    /// Returns the value of a counter of events outside connections, or of the fates of packets:
    /// each packet read counts as [`Count::Read`] and, once it is processed, as one of
    /// [`Count::FATES`].
    pub fn count_of(&self, count: Count) -> u64 {
        self.counters.of(count)
    }

    /// Returns the number of connections, including those that are closing.
    pub fn connection_count(&self) -> usize {
        self.drivers.connection_count()
    }

    /// Returns the statistics of the receive worker of [`Placement::Split`].
    pub fn receive_worker_stats(&self) -> Option<ReceiveWorkerStats> {
        self.drivers.receive_worker_stats()
    }

    /// Resets all connections and ends the stack. Repeated calls have no effect.
    pub fn close(&self) {
        self.drivers.stop();
    }
}
