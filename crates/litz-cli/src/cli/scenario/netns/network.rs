//! Two namespaces, the links between them, and one socket per path at each end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use emulate::{Cidr, LinkReport, Namespace, Running, Side, TunLink, Tunnels};
use litz::LiveSocket;
use net::{MonotonicClock, UdpSocket, UdpSocketOptions};
use netem::{LinkConfig, LinkStats};
use scenario::faults::scheduled;
use scenario::model::Scenario;
use scenario::outcome::{LinkOutcome, PathOutcome};
use scenario::timeline::Timeline;
use scenario::world::WorldError;
use units::Instant;

use super::counted::{CountedSocket, SentCounters};
use super::packet_file::PacketFile;

/// Size of the IPv4 and UDP headers. The packets of the links already contain them, so they are not
/// overhead here.
pub(super) const HEADER_BYTES: u64 = 28;

/// The minimum MTU of the devices.
const MTU: usize = emulate::MTU_DEFAULT as usize;

/// The port of the first path. Each path has its own port, because several paths may share a link.
const PORT: u16 = 4433;

/// Prefix of the names of namespaces.
const PREFIX: &str = "litz-scenario";

/// The share of late departures up to which the emulator keeps up with the links.
const LATE_SHARE_MAX: f64 = 0.01;

/// This number of late departures is normal on any machine, although it may exceed the share on a
/// quiet link.
const LATE_MIN: u64 = 10;

/// The namespaces with their devices, whose links do not run yet, and the sockets.
pub(super) struct Setup {
    sockets: [Vec<Box<dyn LiveSocket>>; 2],
    sent: [Vec<Arc<SentCounters>>; 2],
    links: Vec<usize>,
    // Declared before the namespaces, because their contents must be dropped first.
    tunnels: Tunnels,
    namespaces: [Namespace; 2],
}

/// The running links.
pub(super) struct Network {
    running: Running,
    links: Vec<usize>,
    sent: [Vec<Arc<SentCounters>>; 2],
    _namespaces: [Namespace; 2],
}

/// The error of a world that cannot continue.
pub(super) fn world_error(error: impl ToString) -> WorldError {
    WorldError::Failed(error.to_string())
}

/// The address of a path at a host.
pub(super) fn address(scenario: &Scenario, path: usize, host: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(10, 0, scenario.paths[path].link as u8, host as u8 + 1);
    SocketAddr::new(ip.into(), PORT + path as u16)
}

/// The device name of a link in both namespaces. The link's own name may be too long for the
/// kernel.
fn device(link: usize) -> String {
    format!("link{link}")
}

impl Setup {
    /// Creates the network for these paths. All randomness of the links comes from `seed`.
    pub(super) fn set(scenario: &Scenario, paths: &[usize], seed: u64) -> Result<Self, WorldError> {
        let namespaces = Namespace::create_pair(PREFIX).map_err(world_error)?;
        let links = scenario.links_under(paths);
        let tunnels = links.iter().map(|&link| tunnel(scenario, link, &namespaces)).collect();
        let tunnels = Tunnels::open(tunnels, seed).map_err(world_error)?;
        let (mut sockets, mut sent) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for (host, namespace) in namespaces.iter().enumerate() {
            for socket in open_sockets(scenario, paths, namespace, host)? {
                let (socket, counts) = CountedSocket::new(socket);
                sockets[host].push(Box::new(socket) as Box<dyn LiveSocket>);
                sent[host].push(counts);
            }
        }
        Ok(Self { sockets, sent, links, tunnels, namespaces })
    }

    /// Takes the sockets: for each host, one per path of the run. Call this once.
    pub(super) fn take_sockets(&mut self) -> [Vec<Box<dyn LiveSocket>>; 2] {
        std::mem::take(&mut self.sockets)
    }

    /// Writes the packets of all links to `file`.
    pub(super) fn capture(&mut self, file: &Arc<PacketFile>) {
        for place in 0..self.links.len() {
            self.tunnels.set_tap(place, file.tap(place));
        }
    }

    /// Starts the links with the time of `clock`.
    pub(super) fn run(self, clock: MonotonicClock) -> Result<Network, WorldError> {
        let Self { sockets: _taken, sent, links, tunnels, namespaces } = self;
        let running = tunnels.run(clock).map_err(world_error)?;
        Ok(Network { running, links, sent, _namespaces: namespaces })
    }
}

fn tunnel(scenario: &Scenario, link: usize, namespaces: &[Namespace; 2]) -> TunLink {
    let side = |host: usize| Side {
        namespace: Some(namespaces[host].name().to_owned()),
        addresses: vec![Cidr { address: Ipv4Addr::new(10, 0, link as u8, host as u8 + 1).into(), prefix_bits: 24 }],
    };
    let direction = |direction: usize| {
        let config = scheduled(scenario, link, direction);
        LinkConfig { overhead_bytes: config.overhead_bytes.saturating_sub(HEADER_BYTES), ..config }
    };
    TunLink {
        name: device(link),
        left: side(0),
        right: side(1),
        mtu: MTU.max(scenario.transport.datagram_size + HEADER_BYTES as usize) as u16,
        forward: direction(0),
        backward: direction(1),
    }
}

fn open_sockets(
    scenario: &Scenario,
    paths: &[usize],
    namespace: &Namespace,
    host: usize,
) -> Result<Vec<UdpSocket>, WorldError> {
    let option = |&path: &usize| {
        UdpSocketOptions::new(address(scenario, path, host)).with_device(device(scenario.paths[path].link))
    };
    let options: Vec<_> = paths.iter().map(option).collect();
    let pending = namespace.run(move || options.iter().map(UdpSocket::open).collect::<Result<_, _>>());
    let opened =
        pending.map_err(world_error)?.join().map_err(|_| world_error("the thread that opens sockets panicked"))?;
    opened.map_err(world_error)?.map_err(world_error)
}

impl Network {
    /// Whether a link has failed, which makes the rest of the run meaningless.
    pub(super) fn has_fault(&self) -> bool {
        self.running.has_fault()
    }

    /// The counters of all links in use.
    pub(super) fn reports(&self) -> Reports<'_> {
        Reports { links: &self.links, reports: self.running.stats() }
    }

    /// The datagrams and bytes that each of the run's `paths` has sent.
    pub(super) fn path_outcomes(&self, paths: &[usize]) -> Vec<PathOutcome> {
        let outcome = |(place, &path): (usize, &usize)| {
            let [(there, there_bytes), (back, back_bytes)] = [0, 1].map(|host| self.sent[host][place].read());
            PathOutcome { path, datagrams: [there, back], bytes: [there_bytes, back_bytes] }
        };
        paths.iter().enumerate().map(outcome).collect()
    }
}

/// A snapshot of the counters.
pub(super) struct Reports<'a> {
    links: &'a [usize],
    reports: Vec<LinkReport>,
}

impl Reports<'_> {
    /// The counters of one of the scenario's links, which must be in use.
    pub(super) fn of(&self, link: usize) -> [LinkStats; 2] {
        let place = self.links.iter().position(|used| *used == link).expect("the link is in use");
        let report = &self.reports[place];
        [report.forward.link, report.backward.link].map(as_payload)
    }

    /// Adds what the links have delivered by `now` to their timelines, which are in the order of the links.
    pub(super) fn read_deliveries(&self, now: Instant, timelines: &mut [Timeline]) {
        for (&link, timeline) in self.links.iter().zip(timelines) {
            timeline.read(now, self.of(link)[0].delivered_bytes);
        }
    }

    pub(super) fn link_outcomes(&self, timelines: Vec<Timeline>) -> Vec<LinkOutcome> {
        let outcome = |(&link, delivered)| LinkOutcome { link, stats: self.of(link), delivered };
        self.links.iter().zip(timelines).map(outcome).collect()
    }

    /// Notes about inaccurate emulation.
    pub(super) fn notes(&self, scenario: &Scenario) -> Vec<String> {
        let mut notes = Vec::new();
        for (&link, report) in self.links.iter().zip(&self.reports) {
            for (direction, direction_report) in [("forward", &report.forward), ("back", &report.backward)] {
                let name = &scenario.links[link].name;
                let late = direction_report.lateness;
                if late.late >= LATE_MIN && late.late as f64 > late.count as f64 * LATE_SHARE_MAX {
                    notes.push(format!(
                        "link {name}, {direction}: {} of {} departures were late by {} or more, at most by {}: this \
                         machine is too busy or too slow, which affects the figures",
                        late.late,
                        late.count,
                        emulate::LATE_THRESHOLD,
                        late.max
                    ));
                }
                // The kernel refuses packets with a corrupted IP header.
                if direction_report.refused > direction_report.link.corrupted {
                    let refused = direction_report.refused;
                    notes.push(format!(
                        "link {name}, {direction}: the kernel refused {refused} packets that the link delivered"
                    ));
                }
            }
        }
        notes
    }
}

/// Converts packets to UDP payloads, which results count in all worlds.
fn as_payload(stats: LinkStats) -> LinkStats {
    LinkStats {
        offered_bytes: stats.offered_bytes.saturating_sub(stats.offered * HEADER_BYTES),
        delivered_bytes: stats.delivered_bytes.saturating_sub(stats.delivered * HEADER_BYTES),
        ..stats
    }
}

#[cfg(test)]
mod tests {
    use emulate::{DirectionReport, Lateness};
    use units::Duration;

    use super::*;

    fn scenario() -> Scenario {
        let text = "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '9s'\n[[link]]\nname = 'a'\n\
                    overhead = '50B'\n[[link]]\nname = 'b'\n[[path]]\nlink = 'b'\n[[path]]\nlink = 'a'\n[[path]]\nname = 'c'\nlink = 'b'\n\
                    [transport]\ndatagram-size = '9000B'\n[[workload]]\nkind = 'stream'\n";
        scenario::parse::parse("x.toml", text, &|_| Err(String::new())).expect("a valid scenario")
    }

    #[test]
    fn each_link_has_a_subnet_and_each_path_a_port() {
        let scenario = scenario();
        let ends = [(0, 0), (0, 1), (1, 0), (2, 1)].map(|(path, host)| address(&scenario, path, host).to_string());
        assert_eq!(ends, ["10.0.1.1:4433", "10.0.1.2:4433", "10.0.0.1:4434", "10.0.1.2:4435"]);
    }

    #[test]
    fn counters_count_udp_payloads() {
        let report = |offered, offered_bytes| DirectionReport {
            link: LinkStats { offered, offered_bytes, delivered: 1, delivered_bytes: 128, ..LinkStats::default() },
            ..DirectionReport::default()
        };
        let report = LinkReport { forward: report(3, 3028), backward: report(0, 0), ..LinkReport::default() };
        let reports = Reports { links: &[4], reports: vec![report] };
        let [forward, back] = reports.of(4);
        assert_eq!((forward.offered, forward.offered_bytes, forward.delivered_bytes), (3, 3028 - 84, 100));
        assert_eq!((back.offered, back.offered_bytes), (0, 0));
    }

    #[test]
    fn an_overloaded_emulator_is_noted() {
        let report = |count, late, refused| DirectionReport {
            lateness: Lateness { count, late, max: Duration::from_millis(7), ..Lateness::default() },
            refused,
            ..DirectionReport::default()
        };
        let notes = |forward, backward| {
            let report = LinkReport { forward, backward, ..LinkReport::default() };
            Reports { links: &[1], reports: vec![report] }.notes(&scenario())
        };
        assert_eq!(notes(report(1000, 10, 0), report(9, 9, 0)), Vec::<String>::new());
        let found = notes(report(1000, 11, 0), report(0, 0, 2));
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("link b, forward: 11 of 1000 departures were late by 1"), "{found:?}");
        assert!(found[1].starts_with("link b, back: the kernel refused 2 packets"), "{found:?}");
    }
}
