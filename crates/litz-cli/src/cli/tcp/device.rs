//! Makes the device and the stack.

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::time::Duration;

use litz::JournalFolder;
use litz::tcp::{
    Count, EthernetConfig, IpDevice, PacketSocket, Tap, TcpConfig, TcpListener, TcpStack, TcpStackConfig, TcpStream,
    Tun,
};

use super::layers::LayerOptions;
use super::options::StackOptions;
use crate::cli::out;

/// A stack, and the folder with the journals of its connections.
pub(super) struct Recorded {
    stack: TcpStack,
    journals: Option<JournalFolder>,
    layers: LayerOptions,
}

/// A peer that drops all packets does not say so: with security layers a connection is given up earlier
/// than by TCP.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How often a listener looks whether packets were dropped.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

impl Recorded {
    /// Connects to `remote`.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn connect(&self, remote: SocketAddr) -> Result<TcpStream, String> {
        let connected = match self.layers.has_any() {
            false => self.stack.connect(remote),
            true => self.stack.connect_timeout(remote, CONNECT_MAX),
        };
        connected.map_err(|closed| self.layers.explain(format!("cannot connect to {remote}: {closed}")))
    }

    /// The next connection of a peer. Says if packets of one are dropped.
    ///
    /// # Errors
    /// A message for the user, if the stack has ended.
    pub(super) fn accept(&self, listener: &TcpListener) -> Result<TcpStream, String> {
        let mut has_said = false;
        loop {
            if let Some(stream) = listener.accept_timeout(LOOK_INTERVAL).map_err(|closed| closed.to_string())? {
                return Ok(stream);
            }
            if !has_said && self.stack.count_of(Count::UnauthenticSegments) > 0 {
                has_said = true;
                out::note("a peer has another --stack or another secret: its packets are dropped");
            }
        }
    }

    /// See [`LayerOptions::explain`].
    pub(super) fn explain(&self, message: String) -> String {
        self.layers.explain(message)
    }
}

impl Deref for Recorded {
    type Target = TcpStack;

    fn deref(&self) -> &TcpStack {
        &self.stack
    }
}

/// The last packets leave before the process ends: without the acknowledgement of its end, a peer would
/// wait for long. The journals are complete when the connections have ended.
impl Drop for Recorded {
    fn drop(&mut self) {
        self.stack.close();
        let Some(journals) = &self.journals else { return };
        journals.wait();
        journals.take_errors().iter().for_each(|error| out::note(error));
    }
}

/// Starts a stack on a new device.
///
/// # Errors
/// A message for the user.
pub(super) fn start(options: &StackOptions) -> Result<Recorded, String> {
    start_with(options, TcpConfig::default())
}

/// Starts a stack for each address, on a device of its own, whose connections end after so many
/// retransmission timeouts in a row.
///
/// # Errors
/// A message for the user.
pub(super) fn start_each(options: &StackOptions, timeouts_max: u32) -> Result<Vec<Recorded>, String> {
    let stack = |(index, address): (usize, &IpAddr)| {
        let mut one = options.clone();
        (one.device, one.address) = (format!("{}{index}", options.device), vec![*address]);
        one.kernel.retain(|cidr| cidr.contains(*address));
        start_with(&one, TcpConfig { timeouts_max, ..TcpConfig::default() })
    };
    options.address.iter().enumerate().map(stack).collect()
}

fn start_with(options: &StackOptions, tcp: TcpConfig) -> Result<Recorded, String> {
    let kernel: Vec<_> = options.kernel.iter().map(|cidr| (cidr.address, cidr.prefix_bits)).collect();
    for address in &options.address {
        if !options.kernel.iter().any(|cidr| cidr.contains(*address) && cidr.address != *address) {
            return Err(format!(
                "the address {address} of the stack is in no network of the device: choose one in the network of \
                 --kernel, and not the kernel's own"
            ));
        }
    }
    let first = *options.address.first().ok_or("the stack needs an address (--address)")?;
    let is_ethernet = options.tap || options.interface.is_some();
    let device = match (is_ethernet, options.placement.driver_count()) {
        (true, 1) => return start_on(on_a_link(options, &kernel)?, options, tcp),
        (true, _) => return Err(format!("an Ethernet device has one queue, and {} needs several", options.placement)),
        (false, 1) => Tun::open_up(&options.device, &kernel, options.mtu).map(|tun| IpDevice::kernel(tun, first)),
        (false, queues) => {
            Tun::open_queues(&options.device, &kernel, options.mtu, queues).map(|tuns| with_queues(tuns, first))
        }
    };
    let device = device.map_err(|error| error.to_string())?;
    let device = kernel.iter().fold(device, |device, (ip, len)| device.with_network(*ip, *len));
    start_on(device, options, tcp)
}

fn start_on(device: IpDevice, options: &StackOptions, tcp: TcpConfig) -> Result<Recorded, String> {
    let folder = options.journal.as_deref().map(|path| {
        let cannot = |error| format!("cannot write journals into {}: {error}", path.display());
        JournalFolder::create(path).map_err(cannot)
    });
    let journals = folder.transpose()?;
    let journal = journals.as_ref().map(JournalFolder::source);
    let tcp = TcpConfig { mtu: options.mtu.into(), congestion: Some(options.congestion), journal, ..tcp };
    let config = TcpStackConfig::new(device, &options.address).with_placement(options.placement).with_tcp(tcp);
    let config = match options.layers.layers()? {
        Some(layers) => config.with_layers(layers),
        None => config,
    };
    let stack = TcpStack::start(config).map_err(|error| format!("cannot start the stack: {error}"))?;
    Ok(Recorded { stack, journals, layers: options.layers.clone() })
}

/// A TAP device, or an interface. The kernel, or another host, is the router of the stack.
fn on_a_link(options: &StackOptions, kernel: &[(IpAddr, u8)]) -> Result<IpDevice, String> {
    let network = |address: &IpAddr| options.kernel.iter().find(|cidr| cidr.contains(*address));
    let addresses: Vec<_> = options.address.iter().filter_map(|ip| Some((*ip, network(ip)?.prefix_bits))).collect();
    let config = EthernetConfig::new(&addresses).map_err(|error| error.to_string())?;
    let config = kernel.iter().fold(config, |config, (ip, _)| config.with_router(*ip));
    let device = match &options.interface {
        Some(name) => {
            let socket = PacketSocket::open(name).map_err(|error| error.to_string())?;
            IpDevice::interface(socket, &config)
        }
        None => {
            let tap = Tap::open_up(&options.device, kernel, options.mtu).map_err(|error| error.to_string())?;
            IpDevice::tap(tap, &config)
        }
    };
    device.map_err(|error| error.to_string())
}

/// A device with a queue for each driver.
fn with_queues(tuns: Vec<Tun>, address: IpAddr) -> IpDevice {
    let queue = |tun| IpDevice::kernel(tun, address);
    tuns.into_iter().map(queue).reduce(IpDevice::with_queue).expect("a device has a queue")
}
