//! Makes the device and the stack.

use std::net::IpAddr;
use std::ops::Deref;

use litz::JournalFolder;
use litz::tcp::{EthernetConfig, IpDevice, Tap, TcpConfig, TcpStack, TcpStackConfig, Tun};

use super::options::StackOptions;
use crate::cli::out;

/// A stack, and the folder with the journals of its connections.
pub(super) struct Recorded {
    stack: TcpStack,
    journals: Option<JournalFolder>,
}

impl Deref for Recorded {
    type Target = TcpStack;

    fn deref(&self) -> &TcpStack {
        &self.stack
    }
}

/// The journals are complete when the connections have ended.
impl Drop for Recorded {
    fn drop(&mut self) {
        let Some(journals) = &self.journals else { return };
        self.stack.close();
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
    let device = match (options.tap, options.placement.driver_count()) {
        (true, 1) => return start_on(on_a_link(options, &kernel)?, options, tcp),
        (true, _) => return Err(format!("a TAP device has one queue, and {} needs several", options.placement)),
        (false, 1) => Tun::open_up(&options.device, &kernel, options.mtu).map(|tun| IpDevice::kernel(tun, first)),
        (false, queues) => {
            Tun::open_queues(&options.device, &kernel, options.mtu, queues).map(|tuns| with_queues(tuns, first))
        }
    };
    start_on(device.map_err(|error| error.to_string())?, options, tcp)
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
    let stack = TcpStack::start(config).map_err(|error| format!("cannot start the stack: {error}"))?;
    Ok(Recorded { stack, journals })
}

/// A TAP device. The kernel is the router of the stack.
fn on_a_link(options: &StackOptions, kernel: &[(IpAddr, u8)]) -> Result<IpDevice, String> {
    let network = |address: &IpAddr| options.kernel.iter().find(|cidr| cidr.contains(*address));
    let addresses: Vec<_> = options.address.iter().filter_map(|ip| Some((*ip, network(ip)?.prefix_bits))).collect();
    let config = EthernetConfig::new(&addresses).map_err(|error| error.to_string())?;
    let config = kernel.iter().fold(config, |config, (ip, _)| config.with_router(*ip));
    let tap = Tap::open_up(&options.device, kernel, options.mtu).map_err(|error| error.to_string())?;
    IpDevice::tap(tap, &config).map_err(|error| error.to_string())
}

/// A device with a queue for each driver.
fn with_queues(tuns: Vec<Tun>, address: IpAddr) -> IpDevice {
    let queue = |tun| IpDevice::kernel(tun, address);
    tuns.into_iter().map(queue).reduce(IpDevice::with_queue).expect("a device has a queue")
}
