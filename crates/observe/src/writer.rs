//! The file of one connection: its header, and an event for each observation.

use std::io::{self, Read, Write};

use quic::Replay;
use quic::journal::{JournalHead, Observation, Step};
use serde_json::{Value, json};
use units::Instant;
use wire::quic::Side;

use crate::connection::{self, KeyPhases};
use crate::events::Events;
use crate::packets;
use crate::paths::Paths;

/// File extension of a qlog file in the form of a JSON text sequence.
pub const EXTENSION: &str = "sqlog";

/// Version of the main schema: the one that qvis reads. Later drafts have other names for the same
/// events.
const VERSION: &str = "0.3";

/// Exponents of the unit of acknowledgement delays (RFC 9000, section 18.2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct DelayExponents {
    pub(crate) ours: u8,
    pub(crate) theirs: u8,
}

/// Writes the qlog file of one replayed connection: a JSON text sequence (RFC 7464).
///
/// Call [`step`](Self::step) after each step of the replay, and [`finish`](Self::finish) at the end.
pub struct QlogWriter<W> {
    events: Events<W>,
    paths: Paths,
    phases: KeyPhases,
    delays: DelayExponents,
    side: Side,
}

impl<W: Write> QlogWriter<W> {
    /// Begins the file of a replay that has just begun as [observed](Replay::observed). `about` is
    /// the description in the file.
    ///
    /// # Errors
    /// Fails if `out` fails.
    pub fn begin<R: Read>(out: W, replay: &mut Replay<R>, about: &str) -> io::Result<Self> {
        let head = replay.head().clone();
        let began_at = head.began_at;
        let events = Events::begin(out, began_at, &header(&head, about))?;
        let parameters = head.parameters();
        let mut writer = Self {
            events,
            paths: Paths::default(),
            phases: KeyPhases::default(),
            delays: DelayExponents { ours: parameters.ack_delay_exponent, theirs: 3 },
            side: head.side,
        };
        connection::started(&mut writer.events, &head)?;
        writer.observe(replay, began_at)?;
        Ok(writer)
    }

    /// Writes the events of the last step.
    ///
    /// # Errors
    /// Fails if `out` fails.
    pub fn step<R: Read>(&mut self, replay: &mut Replay<R>, step: &Step) -> io::Result<()> {
        self.observe(replay, step.at)?;
        match step.event() {
            Some(event) => connection::event(&mut self.events, step.at, event),
            None => Ok(()),
        }
    }

    fn observe<R: Read>(&mut self, replay: &mut Replay<R>, at: Instant) -> io::Result<()> {
        let Self { events, phases, delays, side, .. } = self;
        for seen in replay.take_observations() {
            match seen {
                Observation::PeerParameters(parameters) => {
                    delays.theirs = parameters.ack_delay_exponent;
                    connection::parameters(events, at, "remote", &parameters)?;
                }
                Observation::KeysInstalled(space) => connection::keys_installed(events, at, space)?,
                Observation::Session(summary) => connection::session(events, at, &summary)?,
                Observation::Sent(packet) => {
                    phases.on_sent(events, at, *side, &packet)?;
                    packets::packet(events, at, "transport:packet_sent", &packet, delays.ours)?;
                }
                Observation::Received(packet) => {
                    phases.on_received(events, at, *side, &packet)?;
                    packets::packet(events, at, "transport:packet_received", &packet, delays.theirs)?;
                }
                Observation::Arrived { path, datagrams, bytes } => {
                    packets::arrived(events, at, path, datagrams, bytes)?;
                }
                Observation::Dropped { path, unauthentic, unexpected } => {
                    packets::dropped(events, at, path.unwrap_or_default(), unauthentic, unexpected)?;
                }
                Observation::Lost(lost) => packets::lost(events, at, &lost)?,
                // A later version may observe more.
                _ => {}
            }
        }
        self.paths.update(&mut self.events, at, &replay.path_metrics())
    }

    /// Flushes the file. Returns the number of its events.
    ///
    /// # Errors
    /// Fails if `out` fails.
    pub fn finish(self) -> io::Result<u64> {
        self.events.finish()
    }
}

impl<W> std::fmt::Debug for QlogWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QlogWriter").field("side", &self.side).finish_non_exhaustive()
    }
}

/// Returns the first record.
fn header(head: &JournalHead, about: &str) -> Value {
    let title = format!("{} of connection {}", head.side, head.original_destination);
    json!({
        "qlog_version": VERSION, "qlog_format": "JSON-SEQ", "title": title, "description": about,
        "trace": {
            "title": title, "description": about,
            "vantage_point": { "name": "litz", "type": head.side.to_string() },
            // The clock of a journal starts with its process, not with a calendar.
            "common_fields": {
                "ODCID": head.original_destination.to_string(), "protocol_type": ["QUIC"],
                "time_format": "relative", "reference_time": 0.0,
            },
        },
    })
}
