//! [`Ethernet`]: the link layer that an Ethernet device adds to a device of IP packets.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use driver::sync::lock;
use net::MonotonicClock;
use net::tun::{OFFLOAD_HEADER_BYTES, TunDevice};
use tcp_driver::link::{Frame, Interface, Prefix, TableFull};
use tcp_driver::{Count, HostCounters};
use wire::ethernet::{HEADER_LEN, MacAddress};

/// Offload header, kept with a packet while it waits.
type Offload = [u8; OFFLOAD_HEADER_BYTES];

/// A stack's end of an Ethernet link.
#[derive(Debug, Clone)]
pub struct EthernetConfig {
    mac: MacAddress,
    addresses: Vec<(IpAddr, Prefix)>,
    routers: Vec<(Prefix, IpAddr)>,
}

/// Reason why a stack's end of an Ethernet link is impossible.
#[derive(Debug)]
#[non_exhaustive]
pub enum EthernetError {
    /// An address has fewer bits than the length of its network.
    PrefixLength(IpAddr, u8),
    /// The system provides no random bytes for the Ethernet address.
    Random(io::Error),
    /// There are too many routes.
    Routes(TableFull),
}

impl std::fmt::Display for EthernetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PrefixLength(ip, len) => write!(f, "no network of {ip} has {len} bits: 32 at most, or 128 of IPv6"),
            Self::Random(error) => write!(f, "cannot make an Ethernet address: {error}"),
            Self::Routes(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for EthernetError {}

impl EthernetConfig {
    /// Creates an end with these addresses and the lengths of their networks, and a random Ethernet
    /// address.
    ///
    /// # Errors
    /// Fails if a length is impossible, or the system provides no random bytes.
    pub fn new(addresses: &[(IpAddr, u8)]) -> Result<Self, EthernetError> {
        let mut mac = [0; 6];
        net::os_random(&mut mac).map_err(EthernetError::Random)?;
        // Unicast and locally administered (IEEE 802).
        mac[0] = mac[0] & 0xfc | 0x02;
        let prefix = |(ip, len): &(IpAddr, u8)| {
            let prefix = Prefix::new(*ip, *len).ok_or(EthernetError::PrefixLength(*ip, *len))?;
            Ok((*ip, prefix))
        };
        let addresses = addresses.iter().map(prefix).collect::<Result<_, _>>()?;
        Ok(Self { mac: MacAddress(mac), addresses, routers: Vec::new() })
    }

    /// Sends packets beyond the link to this router.
    #[must_use]
    pub fn with_router(mut self, router: IpAddr) -> Self {
        self.routers.push((Prefix::all_of(router), router));
        self
    }

    /// Sends packets for a network to this router.
    ///
    /// # Errors
    /// Fails if the length is impossible.
    pub fn with_route(mut self, network: IpAddr, len: u8, router: IpAddr) -> Result<Self, EthernetError> {
        let prefix = Prefix::new(network, len).ok_or(EthernetError::PrefixLength(network, len))?;
        self.routers.push((prefix, router));
        Ok(self)
    }

    /// Returns the networks on the link.
    pub(crate) fn networks(&self) -> impl Iterator<Item = Prefix> {
        self.addresses.iter().map(|(_, prefix)| *prefix)
    }

    /// Returns the first address.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.addresses.first().map(|(ip, _)| *ip)
    }
}

/// The link layer of a device, shared by its handles.
#[derive(Debug, Clone)]
pub(crate) struct Ethernet {
    interface: Arc<Mutex<Interface<Offload>>>,
    clock: MonotonicClock,
}

impl Ethernet {
    pub(crate) fn new(config: &EthernetConfig) -> Result<Self, EthernetError> {
        let mut interface = Interface::new(config.mac);
        for (ip, prefix) in &config.addresses {
            interface.add_address(*ip, *prefix).map_err(EthernetError::Routes)?;
        }
        for (prefix, router) in &config.routers {
            interface.add_route(*prefix, *router).map_err(EthernetError::Routes)?;
        }
        Ok(Self { interface: Arc::new(Mutex::new(interface)), clock: MonotonicClock::start() })
    }

    fn interface(&self) -> MutexGuard<'_, Interface<Offload>> {
        lock(&self.interface)
    }

    /// Returns the offset of the IP packet in a frame, if it is for this host; otherwise the fate
    /// of the frame.
    pub(crate) fn receive(&self, frame: &[u8]) -> Result<usize, Count> {
        match self.interface().handle_frame(self.clock.now(), frame) {
            Frame::Packet(start) => Ok(start),
            Frame::Link => Err(Count::LinkFrames),
            Frame::NotOurs => Err(Count::NotOurs),
            Frame::InvalidSource => Err(Count::InvalidSources),
            Frame::Malformed => Err(Count::Malformed),
        }
    }

    /// Returns the Ethernet header of a packet that is sent now. Returns `None` if the packet waits
    /// for its neighbour. The first piece contains its IP header.
    pub(crate) fn header_of<'a>(
        &self,
        offload: Offload,
        mut pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Option<[u8; HEADER_LEN]> {
        let all = pieces.clone();
        let first = pieces.next()?;
        self.interface().header_for(self.clock.now(), first, || (all.flatten().copied().collect(), offload))
    }

    /// Sends requests, answers and packets that have waited. A frame that the system does not
    /// accept is lost, as on any Ethernet, and counted.
    pub(crate) fn send_frames(&self, device: &mut dyn TunDevice, counters: &HostCounters) {
        while let Some(frame) = { self.interface().poll_frame() } {
            let offload = frame.note.unwrap_or_default();
            let pieces = [&offload[..], &frame.header, &frame.payload].map(IoSlice::new);
            if let Err(error) = device.write(&pieces) {
                tracing::debug!(%error, "a frame is lost");
                counters.add(Count::SendErrors);
            }
        }
        match self.interface().take_dropped() {
            0 => {}
            dropped => counters.add_many(Count::NoRoute, dropped),
        }
    }

    /// Number of bytes by which headers are longer.
    pub(crate) const HEADER_LEN: u16 = HEADER_LEN as u16;
}
