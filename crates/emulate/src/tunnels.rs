//! Links between network namespaces: packets that the kernel sends into the TUN device of one side
//! are received on that of the other.
//!
//! ```text
//!    namespace A                       this process                        namespace B
//!   ┌────────┐                ┌───────────────────────────────┐                ┌────────┐
//!   │ kernel │ ─▶  TUN  ────▶ │ segment ─▶ forward ─▶ coalesce│ ────▶  TUN  ─▶ │ kernel │
//!   │        │ ◀─  TUN  ◀──── │ coalesce ◀─ backward ◀─segment│ ◀────  TUN  ◀─ │        │
//!   └────────┘ super-packets  └───────────────────────────────┘  super-packets └────────┘
//! ```
//!
//! Each link has one thread. One thread per direction carried 6 to 9 % more TCP without a rate
//! limit, but took 45 % more processor time at 1 Gb/s (two processors shared with both ends).
//!
//! Segments that leave together are coalesced: written one by one, a packet takes 5.2 µs of
//! processor time; coalesced it takes 3.2 µs, most of it in the receiving kernel.
//!
//! The kernel removes the devices when the process ends, in any way.

mod configure;
mod direction;
mod packet;
mod tap;

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, io, process};

use net::MonotonicClock;
use net::tun::Tun;
use netem::{Change, ConfigError, Link, LinkConfig};
use units::{Duration, Instant, Rng};

use super::cidr::Cidr;
use super::error::StartError;
use super::report::LinkReport;
use super::running::Running;
use crate::mtu::MTU_MIN;
use crate::poller::Poller;
use crate::worker::{LINKS_MAX, LinkIo, SingleDirection, Worker, change_link};
use configure::configure;
use direction::TunDirection;

pub use tap::{Tap, TappedPacket};

/// A link between two namespaces. `forward` is from left to right.
#[derive(Clone, Debug)]
pub struct TunLink {
    /// Name of the device on both sides, which therefore must be in different namespaces. At most
    /// 15 bytes.
    pub name: String,
    /// The left side.
    pub left: Side,
    /// The right side.
    pub right: Side,
    /// MTU in bytes, including the IP header. At least [`MTU_MIN`].
    pub mtu: u16,
    /// The model from left to right.
    pub forward: LinkConfig,
    /// The model from right to left.
    pub backward: LinkConfig,
}

/// One side of a link.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Network namespace, as named by `ip netns`; `None` is the current one.
    pub namespace: Option<String>,
    /// Addresses of the device with their networks, which give the kernel the route to the other
    /// side.
    pub addresses: Vec<Cidr>,
}

/// Links whose devices exist and have addresses, so that sockets can be bound to them. Packets sent
/// wait in the devices until the links start. Dropping it removes the devices.
pub struct Tunnels {
    tunnels: Vec<Tunnel>,
}

impl fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: Vec<_> = self.tunnels.iter().map(|tunnel| &tunnel.name).collect();
        f.debug_struct("Tunnels").field("links", &links).finish_non_exhaustive()
    }
}

impl Tunnels {
    /// Creates the devices, configures them and starts the emulation. The same `seed` and the same
    /// packets at the same times meet the same faults. Linux only; needs root, the command `ip`,
    /// and existing namespaces.
    ///
    /// # Errors
    /// Returns a [`StartError`]; all devices are removed then.
    pub fn start(links: Vec<TunLink>, seed: u64) -> Result<Running, StartError> {
        // The clock starts when all devices exist: a link that fails to start does not disturb
        // running ones.
        let tunnels = Self::open(links, seed)?;
        tunnels.run(MonotonicClock::start())
    }

    /// Does the first part of [`start`](Self::start): creates the devices.
    ///
    /// # Errors
    /// Same errors as [`start`](Self::start).
    pub fn open(links: Vec<TunLink>, seed: u64) -> Result<Self, StartError> {
        if links.len() > LINKS_MAX {
            return Err(StartError::new(format!("{} links: at most {LINKS_MAX} can run simultaneously", links.len())));
        }
        let root = Rng::from_seed(seed);
        let tunnels = links
            .into_iter()
            .enumerate()
            .map(|(index, link)| Tunnel::open(link, &root.split(&format!("link {index}"))))
            .collect::<Result<_, _>>()?;
        Ok(Self { tunnels })
    }

    /// Passes the packets of the link with this index to `tap`.
    ///
    /// # Panics
    /// Panics if there is no such link.
    pub fn set_tap(&mut self, link: usize, tap: Tap) {
        let tunnel = &mut self.tunnels[link];
        tunnel.forward.set_tap(Tap::clone(&tap), true);
        tunnel.backward.set_tap(tap, false);
    }

    /// Does the second part of [`start`](Self::start): starts the emulation. Schedules and traces
    /// of links count from the start of `clock`.
    ///
    /// # Errors
    /// Same errors as [`start`](Self::start).
    pub fn run(self, clock: MonotonicClock) -> Result<Running, StartError> {
        let workers = self
            .tunnels
            .into_iter()
            .map(|tunnel| {
                let name = tunnel.name.clone();
                Worker::start(clock, tunnel).map_err(|error| StartError::with_source(format!("link {name}"), error))
            })
            .collect::<Result<_, _>>()?;
        Ok(Running::new(workers))
    }
}

/// A link with both its devices.
struct Tunnel {
    name: String,
    forward: TunDirection<Tun>,
    backward: TunDirection<Tun>,
}

const LEFT: usize = 0;
const RIGHT: usize = 1;

impl Tunnel {
    fn open(link: TunLink, rng: &Rng) -> Result<Self, StartError> {
        let TunLink { name, left, right, mtu, forward, backward } = link;
        let fails = |error: ConfigError| StartError::new(format!("link {name}: {error}"));
        forward.validate().map_err(fails)?;
        backward.validate().map_err(fails)?;
        if left.namespace == right.namespace {
            return Err(StartError::new(format!(
                "link {name}: both sides are in the same namespace, where the kernel would bypass the link: name two \
                 (`ip netns add NAME` makes one)"
            )));
        }
        if mtu < MTU_MIN {
            return Err(StartError::new(format!("link {name}: the mtu must be at least {MTU_MIN} bytes")));
        }
        let open = |side: Side| -> Result<Tun, StartError> {
            let device =
                Tun::open(&temporary_name()).map_err(|error| StartError::with_source(format!("link {name}"), error))?;
            configure(&device, side.namespace.as_deref(), &name, mtu, &side.addresses)
                .map_err(|error| StartError::with_source(format!("link {name}"), error))?;
            Ok(device)
        };
        let (left, right) = (open(left)?, open(right)?);
        if !(left.has_udp_gso() && right.has_udp_gso()) {
            tracing::warn!(link = name, "this kernel rejects UDP batches on TUN devices, which Linux 6.2 supports");
        }
        Ok(Self {
            forward: TunDirection::new(left.clone(), right.clone(), Link::new(forward, rng.split("forward"))),
            backward: TunDirection::new(right, left, Link::new(backward, rng.split("backward"))),
            name,
        })
    }
}

/// Returns a unique name for the time between the creation of a device and its move to a namespace.
fn temporary_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("litz{:x}.{:x}", process::id() & 0xff_ffff, NUMBER.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

impl LinkIo for Tunnel {
    // The queue of a device is short: packets that wait in it are dropped soon.
    const TURN_MIN: Duration = Duration::ZERO;

    fn start(&mut self, poller: &Poller) -> io::Result<()> {
        poller.watch(LEFT, self.forward.input().as_raw_fd())?;
        poller.watch(RIGHT, self.backward.input().as_raw_fd())
    }

    fn readable(&mut self, source: usize) {
        match source {
            LEFT => self.forward.readable(),
            _ => self.backward.readable(),
        }
    }

    fn turn(&mut self, poller: &Poller) -> io::Result<bool> {
        let clock = poller.clock();
        let has_more = self.forward.take(|| clock.now())? | self.backward.take(|| clock.now())?;
        self.forward.deliver(clock.now());
        self.backward.deliver(clock.now());
        Ok(has_more)
    }

    fn due(&self) -> Option<Instant> {
        self.forward.due().into_iter().chain(self.backward.due()).min()
    }

    fn change(&mut self, now: Instant, direction: SingleDirection, change: &Change) -> Result<(), ConfigError> {
        let direction = match direction {
            SingleDirection::Forward => &mut self.forward,
            SingleDirection::Backward => &mut self.backward,
        };
        change_link(direction.link_mut(), now, change)
    }

    fn report(&self) -> LinkReport {
        LinkReport {
            name: self.name.clone(),
            forward: self.forward.report(),
            backward: self.backward.report(),
            ..LinkReport::default()
        }
    }
}
