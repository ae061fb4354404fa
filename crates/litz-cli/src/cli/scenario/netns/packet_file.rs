//! `--pcapng`: the packets at both ends of each link, and with `--keys-in-pcapng` the keys that
//! decrypt them.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emulate::{Tap, TappedPacket};
use rustls::KeyLog;
use scenario::model::Scenario;
use scenario::world::WorldError;
use sim::capture::{Capture, Direction, InterfaceId, LinkType, Resolution};

use super::network::world_error;

/// The snapshot length: more than any packet of a link.
const SNAP_BYTES: u32 = 65_535;

/// The capture of a run, to which the threads of the links write.
pub(super) struct PacketFile {
    state: Mutex<State>,
}

struct State {
    /// None once the file is complete.
    capture: Option<Capture<Box<dyn Write + Send>>>,
    /// For each link in use: the interface at the sending host, and at the receiving host.
    interfaces: Vec<[InterfaceId; 2]>,
    /// The first error. Nothing is written after it.
    error: Option<io::Error>,
}

impl PacketFile {
    /// Begins the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn begin(
        file: Box<dyn Write + Send>,
        about: &str,
        scenario: &Scenario,
        links: &[usize],
    ) -> Result<Arc<Self>, WorldError> {
        let mut capture = Capture::with_comment(file, SNAP_BYTES, about).map_err(failed)?;
        let mut interfaces = Vec::new();
        for &link in links {
            let mut end = |host: usize| {
                let name = format!("{} at {}", scenario.links[link].name, scenario.hosts[host].name);
                capture.add_interface(&name, LinkType::RawIp, Resolution::Nanos)
            };
            interfaces.push([end(0).map_err(failed)?, end(1).map_err(failed)?]);
        }
        let state = State { capture: Some(capture), interfaces, error: None };
        Ok(Arc::new(Self { state: Mutex::new(state) }))
    }

    /// What a link calls with its packets; `place` is its place among the links in use.
    pub(super) fn tap(self: &Arc<Self>, place: usize) -> Tap {
        let file = Arc::clone(self);
        Arc::new(move |packet: &TappedPacket<'_>| {
            // The sending host is at the left end. A packet is outbound at the end where it enters
            // the link and inbound at the other one.
            let end = usize::from(packet.is_forward != packet.is_sent);
            let direction = if packet.is_sent { Direction::Outbound } else { Direction::Inbound };
            file.write(|capture, interfaces| {
                capture.packet(interfaces[place][end], direction, packet.at, packet.ip, packet.ip.len() as u32)
            });
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, write: impl FnOnce(&mut Capture<Box<dyn Write + Send>>, &[[InterfaceId; 2]]) -> io::Result<()>) {
        let State { capture, interfaces, error } = &mut *self.state();
        if let Some(capture) = capture.as_mut().filter(|_| error.is_none()) {
            *error = write(capture, interfaces).err();
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it could not be written.
    pub(super) fn finish(&self) -> Result<(), WorldError> {
        let mut state = self.state();
        let capture = state.capture.take();
        match (state.error.take(), capture) {
            (Some(error), _) => Err(failed(error)),
            (None, Some(capture)) => capture.finish_file().map(drop).map_err(failed),
            (None, None) => Ok(()),
        }
    }
}

fn failed(error: io::Error) -> WorldError {
    world_error(format!("cannot write the packets: {error}"))
}

/// The keys of the listening host, in the format of `SSLKEYLOGFILE`. It derives each of them before
/// a packet is sealed with it, so they stand in the file before the packets that they decrypt.
impl KeyLog for PacketFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        self.write(|capture, _| capture.tls_secrets(line.as_bytes()));
    }
}

impl fmt::Debug for PacketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketFile")
    }
}
