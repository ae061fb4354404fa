//! Links between network namespaces: what the kernel sends into a TUN device of one side comes out of that of the other.
//!
//! ```text
//!    namespace A                     this process                     namespace B
//!   ┌────────┐                ┌─────────────────────────┐                ┌────────┐
//!   │ kernel │ ─▶  TUN  ────▶ │ cut ─▶ forward ─▶ join  │ ────▶  TUN  ─▶ │ kernel │
//!   │        │ ◀─  TUN  ◀──── │ join ◀─ backward ◀─ cut │ ◀────  TUN  ◀─ │        │
//!   └────────┘ super-packets  └─────────────────────────┘  super-packets └────────┘
//! ```
//!
//! Each link is a thread. A thread for each direction carried 6 to 9 % more TCP where no rate bounds it, and took 45 % more
//! processor time at 1 Gb/s (two processors, both ends beside it), so there is one.
//!
//! Segments that leave together are joined again: written one by one, a packet takes 5.2 µs of processor time, joined 3.2, most
//! of it the receiving kernel's.
//!
//! Devices are removed by the kernel as soon as the process ends, however it ends.

mod configure;
mod lane;
mod packet;

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, process};

use net::MonotonicClock;
use net::tun::Tun;
use netem::{Change, ConfigError, Link, LinkConfig};
use units::{Instant, Rng};

use crate::sleep::Sleeper;
use crate::worker::{OneWay, Station, Worker, change_link};
use crate::{Cidr, LINKS_MAX, LinkReport, MTU_MIN, Running, StartError};
use configure::configure;
use lane::Lane;

/// A link between two namespaces. `forward` is from left to right.
#[derive(Clone, Debug)]
pub struct TunLink {
    /// What the device is called on both sides, so the sides are two namespaces. 15 bytes at most.
    pub name: String,
    /// One side.
    pub left: Side,
    /// The other.
    pub right: Side,
    /// Bytes of the largest packet, IP header included. At least [`MTU_MIN`].
    pub mtu: u16,
    /// The model from left to right.
    pub forward: LinkConfig,
    /// The model from right to left.
    pub backward: LinkConfig,
}

/// One side of a link.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// The network namespace, as `ip netns` calls it; `None` is the one we are in.
    pub namespace: Option<String>,
    /// Addresses of the device, with their networks: that is all the kernel needs to find the other side.
    pub addresses: Vec<Cidr>,
}

/// Links between namespaces: their devices are there, with addresses, so that sockets can be bound to them. What is sent
/// waits in the devices until the links start. Dropping it removes the devices.
pub struct Tunnels {
    tunnels: Vec<Tunnel>,
}

impl Tunnels {
    /// Creates the devices, gives them their addresses, sets them up and starts to emulate. The same `seed` and the same
    /// packets at the same times meet the same faults. Linux only; needs root, the command `ip`, and namespaces that
    /// exist.
    ///
    /// # Errors
    /// [`StartError`]; then nothing is left behind.
    pub fn start(links: Vec<TunLink>, seed: u64) -> Result<Running, StartError> {
        // The clock starts when all devices are there: a link that cannot be made disturbs none that already runs.
        let tunnels = Self::open(links, seed)?;
        tunnels.run(MonotonicClock::start())
    }

    /// The first half of [`start`](Self::start): the devices.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn open(links: Vec<TunLink>, seed: u64) -> Result<Self, StartError> {
        if links.len() > LINKS_MAX {
            return Err(StartError::new(format!("{} links: at most {LINKS_MAX} run at a time", links.len())));
        }
        let root = Rng::from_seed(seed);
        let tunnels = links
            .into_iter()
            .enumerate()
            .map(|(index, link)| Tunnel::open(link, &root.split(&format!("link {index}"))))
            .collect::<Result<_, _>>()?;
        Ok(Self { tunnels })
    }

    /// The other half: emulates. Schedules and traces of links count from the beginning of `clock`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn run(self, clock: MonotonicClock) -> Result<Running, StartError> {
        let workers = self
            .tunnels
            .into_iter()
            .map(|tunnel| {
                let name = tunnel.name.clone();
                Worker::start(clock, tunnel).map_err(|error| StartError::from(format!("link {name}"), error))
            })
            .collect::<Result<_, _>>()?;
        Ok(Running::new(workers))
    }
}

/// A link and both its devices.
struct Tunnel {
    name: String,
    forward: Lane<Tun>,
    backward: Lane<Tun>,
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
                "link {name}: both sides are in one namespace, where the kernel would not use the link: name two \
                 (`ip netns add NAME` makes one)"
            )));
        }
        if mtu < MTU_MIN {
            return Err(StartError::new(format!("link {name}: the mtu must be at least {MTU_MIN} bytes")));
        }
        let open = |side: Side| -> Result<Tun, StartError> {
            let device =
                Tun::open(&temporary_name()).map_err(|error| StartError::from(format!("link {name}"), error))?;
            configure(&device, side.namespace.as_deref(), &name, mtu, &side.addresses)
                .map_err(|error| StartError::from(format!("link {name}"), error))?;
            Ok(device)
        };
        let (left, right) = (open(left)?, open(right)?);
        if !(left.segments_udp() && right.segments_udp()) {
            tracing::warn!(link = name, "this kernel refuses UDP batches on TUN devices: Linux 6.2 takes them");
        }
        Ok(Self {
            forward: Lane::new(left.clone(), right.clone(), Link::new(forward, rng.split("forward"))),
            backward: Lane::new(right, left, Link::new(backward, rng.split("backward"))),
            name,
        })
    }
}

/// For the moment between the creation of a device and its move: one that nobody else has.
fn temporary_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("litz{:x}.{:x}", process::id() & 0xff_ffff, NUMBER.fetch_add(1, Ordering::Relaxed) & 0xfff)
}

impl Station for Tunnel {
    fn start(&mut self, sleeper: &Sleeper) -> io::Result<()> {
        sleeper.watch(LEFT, self.forward.input().as_raw_fd())?;
        sleeper.watch(RIGHT, self.backward.input().as_raw_fd())
    }

    fn readable(&mut self, source: usize) {
        match source {
            LEFT => self.forward.readable(),
            _ => self.backward.readable(),
        }
    }

    fn turn(&mut self, sleeper: &Sleeper) -> io::Result<bool> {
        let clock = sleeper.clock();
        let has_more = self.forward.take(|| clock.now())? | self.backward.take(|| clock.now())?;
        self.forward.deliver(clock.now());
        self.backward.deliver(clock.now());
        Ok(has_more)
    }

    fn due(&self) -> Option<Instant> {
        self.forward.due().into_iter().chain(self.backward.due()).min()
    }

    fn change(&mut self, now: Instant, direction: OneWay, change: &Change) -> Result<(), ConfigError> {
        let lane = match direction {
            OneWay::Forward => &mut self.forward,
            OneWay::Backward => &mut self.backward,
        };
        change_link(lane.link_mut(), now, change)
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
