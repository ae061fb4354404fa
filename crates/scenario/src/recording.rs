//! Records a run: a trace of its events for Perfetto, and the packets at both ends of each link as
//! pcapng. Both use the clock of the run, in nanoseconds.
//!
//! Recording does not change the run. Data is written as it arises, so a long run takes no more
//! memory than a short one.

use std::io;
use std::net::SocketAddrV4;

use netem::{Link, Packet};
use quic::{Connection, Event, JournalSource};
use sim::capture::{Capture, Direction, InterfaceId, LinkType, Resolution};
use sim::{Sim, Simulation, Trace};
use units::Instant;

use crate::faults::occurrences;
use crate::memory::addresses::ends;
use crate::memory::datagram::{Body, Datagram};
use crate::model::Scenario;
use crate::world::WorldError;

/// The snapshot length: more than any datagram, so captures contain all known bytes.
const SNAP_BYTES: u32 = 65_535;

/// Bytes of the headers before a datagram: IPv4 without options, and UDP.
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// The writers of a recording: the trace, the packets, or both.
#[derive(Default)]
pub struct Recording {
    /// A description of the run and the program, stored in the files.
    pub about: String,
    /// Writer of the trace, in the Chrome trace event format.
    pub trace: Option<Box<dyn io::Write + Send>>,
    /// Writer of the packets, as pcapng.
    pub packets: Option<Box<dyn io::Write + Send>>,
    /// Recorder of the journals of the connection at both hosts.
    pub journals: Option<JournalSource>,
}

/// The recording of a run in progress.
pub(crate) struct RecordingWriter {
    /// Simulation that owns the trace, if there is one.
    sim: Sim,
    packets: Option<Packets>,
    /// Levels for each link in use and direction.
    links: Vec<[LinkLevels; 2]>,
    /// Levels for each host and path.
    paths: [Vec<PathLevels>; 2],
    /// The names of the hosts, for events of their connections.
    hosts: [String; 2],
    scenario: Scenario,
    used_links: Vec<usize>,
}

/// The packet capture.
struct Packets {
    capture: Capture<Box<dyn io::Write + Send>>,
    /// For each link in use, the interface at the sending host and at the receiving host.
    interfaces: Vec<[InterfaceId; 2]>,
    /// Buffer for one packet.
    bytes: Vec<u8>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
}

/// A counter track of the trace. Writes a value only when it has changed.
struct Level {
    track: String,
    last: Option<u64>,
}

struct LinkLevels {
    held: Level,
    queued: Level,
    gone: Level,
}

struct PathLevels {
    in_flight: Level,
    window: Level,
    round_trip: Level,
    lost: Level,
}

impl Level {
    fn new(of: &str, what: &str) -> Self {
        Self { track: format!("{of}: {what}"), last: None }
    }

    fn set(&mut self, sim: &Sim, now: Instant, value: u64) {
        if self.last.replace(value) != Some(value) {
            sim.trace(|trace| trace.level(&self.track, now, value));
        }
    }
}

impl std::fmt::Debug for RecordingWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingWriter").finish_non_exhaustive()
    }
}

fn failed(what: &str, error: &io::Error) -> WorldError {
    WorldError::Failed(format!("cannot write the {what}: {error}"))
}

impl RecordingWriter {
    /// Begins to record a run over `paths`. The trace is installed in `simulation`, so that its
    /// components write to it too.
    ///
    /// # Errors
    /// Fails if a file cannot be started.
    pub(crate) fn new(
        recording: Recording,
        scenario: &Scenario,
        paths: &[usize],
        simulation: &Simulation,
    ) -> Result<Self, WorldError> {
        // The journals were given to the hosts.
        let Recording { about, trace, packets, journals: _ } = recording;
        if let Some(file) = trace {
            simulation.record_into(Trace::streaming(file, &about).map_err(|error| failed("trace", &error))?);
        }
        let used_links = scenario.links_under(paths);
        let packets = packets.map(|file| Packets::begin(file, &about, scenario, &used_links));
        let packets = packets.transpose().map_err(|error| failed("packets", &error))?;
        let link = |&index: &usize| {
            ["forward", "back"].map(|direction| {
                let of = format!("link {}, {direction}", scenario.links[index].name);
                LinkLevels {
                    held: Level::new(&of, "packets in it"),
                    queued: Level::new(&of, "bytes queued"),
                    gone: Level::new(&of, "packets gone"),
                }
            })
        };
        let path = |host: &str| {
            let levels = |&path: &usize| {
                let of = format!("host {host}, path {}", scenario.paths[path].name);
                PathLevels {
                    in_flight: Level::new(&of, "bytes in flight"),
                    window: Level::new(&of, "window, bytes"),
                    round_trip: Level::new(&of, "round trip, us"),
                    lost: Level::new(&of, "packets declared lost"),
                }
            };
            paths.iter().map(levels).collect()
        };
        let hosts = scenario.hosts.each_ref().map(|host| host.name.clone());
        Ok(Self {
            sim: simulation.sim(),
            packets,
            links: used_links.iter().map(link).collect(),
            paths: hosts.each_ref().map(|host| path(host)),
            hosts,
            scenario: scenario.clone(),
            used_links,
        })
    }

    /// Records a datagram that is offered to a link (`is_sent`) or delivered by it.
    pub(crate) fn packet(&mut self, now: Instant, link: usize, direction: usize, is_sent: bool, datagram: &Datagram) {
        if let Some(packets) = &mut self.packets {
            packets.add(now, link, direction, is_sent, datagram);
        }
    }

    /// Records the counters of a link after a change.
    pub(crate) fn link<P: Packet>(&mut self, now: Instant, place: usize, direction: usize, link: &Link<P>) {
        if !self.sim.is_traced() {
            return;
        }
        let levels = &mut self.links[place][direction];
        levels.held.set(&self.sim, now, link.held() as u64);
        levels.queued.set(&self.sim, now, link.queue_bytes());
        levels.gone.set(&self.sim, now, link.stats().undelivered());
    }

    /// Records the paths of a host's connection after a possible change.
    pub(crate) fn connection(&mut self, now: Instant, host: usize, connection: &Connection) {
        if !self.sim.is_traced() {
            return;
        }
        for path in connection.path_stats() {
            let Some(levels) = self.paths[host].get_mut(usize::from(path.addresses.socket)) else { continue };
            levels.in_flight.set(&self.sim, now, path.in_flight_bytes);
            levels.window.set(&self.sim, now, path.congestion.window);
            levels.round_trip.set(&self.sim, now, path.round_trip.as_micros());
            levels.lost.set(&self.sim, now, path.packets_lost);
        }
    }

    /// Records an event of a host's connection. Events of single streams are omitted, because they
    /// would hide the others.
    pub(crate) fn event(&mut self, now: Instant, host: usize, event: &Event) {
        let what = match event {
            Event::Connected => "connected".to_owned(),
            Event::Confirmed => "confirmed".to_owned(),
            Event::PathOpened(path) => format!("{path} opened"),
            Event::Migrated(path) => format!("{path} migrated"),
            Event::EarlyRejected => "0-RTT was rejected".to_owned(),
            Event::PathState(path, state) => format!("{path} {}", state.name()),
            Event::Closed(error) => format!("closed: {error}"),
            _ => return,
        };
        let track = format!("host {}: connection", self.hosts[host]);
        self.sim.trace(|trace| trace.mark(&track, &what, now));
    }

    /// Checks that everything could be written so far.
    ///
    /// # Errors
    /// Returns the first write error.
    pub(crate) fn check(&self) -> Result<(), WorldError> {
        if let Some(error) = self.packets.as_ref().and_then(|packets| packets.error.as_ref()) {
            return Err(failed("packets", error));
        }
        let mut checked = Ok(());
        self.sim.trace(|trace| {
            if let Some(error) = trace.failure() {
                checked = Err(failed("trace", error));
            }
        });
        checked
    }

    /// Ends the recording and writes the buffered data.
    ///
    /// # Errors
    /// Fails if some of the data could not be written.
    pub(crate) fn finish(self, now: Instant, simulation: &Simulation) -> Result<(), WorldError> {
        self.faults(now);
        if let Some(packets) = self.packets {
            let written = match packets.error {
                Some(error) => Err(error),
                None => packets.capture.finish_file().map(drop),
            };
            written.map_err(|error| failed("packets", &error))?;
        }
        simulation.take_trace().map_or(Ok(()), Trace::finish_file).map_err(|error| failed("trace", &error))
    }

    /// Records the faults of the links in use that began before `now`.
    fn faults(&self, now: Instant) {
        if !self.sim.is_traced() {
            return;
        }
        for occurrence in occurrences(&self.scenario) {
            let fault = &self.scenario.faults[occurrence.fault];
            let (from, to) = (Instant::ZERO + occurrence.from, Instant::ZERO + occurrence.to);
            if self.used_links.contains(&fault.link) && from < now {
                // Faults may overlap, so each has its own track.
                let track = format!("link {}: fault of line {}", self.scenario.links[fault.link].name, fault.line);
                let what: Vec<_> = fault.changes.iter().map(|change| format!("{change:?}")).collect();
                self.sim.trace(|trace| trace.span(&track, &what.join(", "), from, to.min(now)));
            }
        }
    }
}

impl Packets {
    fn begin(
        file: Box<dyn io::Write + Send>,
        about: &str,
        scenario: &Scenario,
        used_links: &[usize],
    ) -> io::Result<Self> {
        let mut capture = Capture::with_comment(file, SNAP_BYTES, about)?;
        let mut interfaces = Vec::new();
        for &link in used_links {
            let mut end = |host: usize| {
                let name = format!("{} at {}", scenario.links[link].name, scenario.hosts[host].name);
                capture.add_interface(&name, LinkType::RawIp, Resolution::Nanos)
            };
            interfaces.push([end(0)?, end(1)?]);
        }
        Ok(Self { capture, interfaces, bytes: Vec::new(), error: None })
    }

    fn add(&mut self, now: Instant, link: usize, direction: usize, is_sent: bool, datagram: &Datagram) {
        if self.error.is_some() {
            return;
        }
        let [a, b] = ends(datagram.path());
        let (from, to) = if direction == 0 { (a, b) } else { (b, a) };
        self.bytes.clear();
        headers(from, to, datagram.len_bytes(), &mut self.bytes);
        match datagram.body() {
            Body::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            Body::Unsealed(in_flight, index) => in_flight.unsealed().known_bytes(index, &mut self.bytes),
        }
        let length = (IP_BYTES + UDP_BYTES + datagram.len_bytes()) as u32;
        // A packet is outbound at the sender's end of the link and inbound at the other end.
        let (end, packet_direction) =
            if is_sent { (direction, Direction::Outbound) } else { (1 - direction, Direction::Inbound) };
        self.error = self.capture.packet(self.interfaces[link][end], packet_direction, now, &self.bytes, length).err();
    }
}

/// Appends the headers of a datagram with `payload` bytes: IPv4 (RFC 791) with its checksum, and
/// UDP (RFC 768) without a checksum, because not all payload bytes are known.
fn headers(from: SocketAddrV4, to: SocketAddrV4, payload: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let udp_bytes = (UDP_BYTES + payload) as u16;
    // Version and header length, service, total length, identification, "don't fragment", time to
    // live, UDP, checksum (filled in below).
    out.extend([0x45, 0]);
    out.extend((IP_BYTES as u16 + udp_bytes).to_be_bytes());
    out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    out.extend(from.ip().octets());
    out.extend(to.ip().octets());
    let mut sum: u32 = out[start..].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !(sum as u16);
    out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    for word in [from.port(), to.port(), udp_bytes, 0] {
        out.extend(word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_correct_lengths_and_a_valid_checksum() {
        for payload in [0, 1, 1472, 16_000] {
            let mut bytes = Vec::new();
            let [from, to] = ends(3);
            headers(from, to, payload, &mut bytes);
            assert_eq!(bytes.len(), IP_BYTES + UDP_BYTES);
            let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            assert_eq!((usize::from(word(2)), usize::from(word(24))), (28 + payload, 8 + payload));
            assert_eq!((&bytes[12..20], word(20), word(22)), (&[10, 0, 3, 1, 10, 0, 3, 2][..], 1000, 2000));
            // The one's complement sum of all words is all ones (RFC 1071).
            let sum: u32 = (0..IP_BYTES).step_by(2).map(|at| u32::from(word(at))).sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        }
    }
}
