//! What the demo tells in the end.

use emulate::LinkReport;
use netem::LinkConfig;
use serde_json::{Value, json};
use units::{ByteSize, Duration, Rate};

use super::number;

/// One sender's run.
pub(super) struct Attempt {
    total: u64,
    pub(super) bytes_done: u64,
    bytes_resumed: u64,
    handshake: Option<Duration>,
    cipher: String,
    key_exchange: String,
    connected_at: Option<Duration>,
    /// When the last bytes were told of, and how many were there.
    last_progress: Option<(Duration, u64)>,
    packets_sent: u64,
    packets_lost: u64,
}

impl Attempt {
    pub(super) fn new(total: u64) -> Self {
        Self {
            total,
            bytes_done: 0,
            bytes_resumed: 0,
            handshake: None,
            cipher: String::new(),
            key_exchange: String::new(),
            connected_at: None,
            last_progress: None,
            packets_sent: 0,
            packets_lost: 0,
        }
    }

    /// Takes an event of the sender's, `at` after it was started.
    pub(super) fn note(&mut self, event: &Value, at: Duration) {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap_or_default() {
            "connected" => {
                self.handshake = event["handshake_us"].as_u64().map(Duration::from_micros);
                self.connected_at = Some(at);
                self.cipher = text("cipher");
                self.key_exchange = text("key_exchange");
            }
            "file_started" => self.bytes_resumed += number(event, "bytes_resumed"),
            "progress" => {
                self.bytes_done = number(event, "bytes_done");
                self.last_progress = Some((at, self.bytes_done));
            }
            // What lies between the last byte and this is the receiver's disk.
            "file_done" => self.bytes_done = self.total,
            "stats" => {
                self.packets_sent = number(event, "packets_sent");
                self.packets_lost = number(event, "packets_lost");
            }
            _ => {}
        }
    }

    /// How much of the file is there.
    pub(super) fn percent(&self) -> u64 {
        self.bytes_done.saturating_mul(100).checked_div(self.total).unwrap_or(100)
    }

    /// Bytes that travelled, and the time from the end of the handshake to the last of them.
    fn moved(&self) -> (u64, Duration) {
        match (self.connected_at, self.last_progress) {
            (Some(from), Some((to, bytes))) => (bytes.saturating_sub(self.bytes_resumed), to.saturating_sub(from)),
            _ => (0, Duration::ZERO),
        }
    }
}

/// The whole demo.
pub(super) struct Report {
    pub(super) link: LinkConfig,
    pub(super) bytes: u64,
    pub(super) killed: Attempt,
    pub(super) resumed: Attempt,
    pub(super) stats: LinkReport,
    pub(super) hash: String,
    pub(super) verified: bool,
}

impl Report {
    fn goodput(&self) -> Rate {
        let ((before, first), (after, second)) = (self.killed.moved(), self.resumed.moved());
        Rate::from_transfer(before + after, first + second).unwrap_or_default()
    }

    fn share_percent(&self) -> f64 {
        self.link.rate.map_or(0.0, |rate| self.goodput().as_mbps_f64() / rate.as_mbps_f64() * 100.0)
    }

    #[expect(clippy::print_stdout, reason = "this is where the command speaks")]
    pub(super) fn print(&self, as_json: bool) {
        if as_json {
            println!("{}", self.json());
            return;
        }
        let resumed = &self.resumed;
        let share_lost = resumed.packets_lost as f64 * 100.0 / resumed.packets_sent.max(1) as f64;
        let forward = &self.stats.forward.link;
        let rows = [
            (
                "handshake",
                format!(
                    "{}  {}, {}",
                    // The second one waits behind what the killed sender has left in the link's queue.
                    self.killed.handshake.unwrap_or_default(),
                    resumed.key_exchange,
                    resumed.cipher
                ),
            ),
            ("goodput", format!("{}, {:.0} % of the link's rate", self.goodput(), self.share_percent())),
            (
                "retransmissions",
                format!(
                    "{} of {} packets ({share_lost:.2} %); the link lost {} and its queue dropped {}",
                    resumed.packets_lost, resumed.packets_sent, forward.lost, forward.overflowed
                ),
            ),
            (
                "resumed",
                format!(
                    "{} of {} were not sent again",
                    ByteSize::from_bytes(resumed.bytes_resumed),
                    ByteSize::from_bytes(self.bytes)
                ),
            ),
            (
                "verified",
                format!(
                    "{}  BLAKE3 {}…",
                    if self.verified { "both files are equal" } else { "THE FILES DIFFER" },
                    &self.hash[..16]
                ),
            ),
        ];
        for (name, value) in rows {
            println!("  {name:<16} {value}");
        }
    }

    fn json(&self) -> Value {
        json!({
            "bytes": self.bytes,
            "rate_bps": self.link.rate.map(Rate::as_bps),
            "delay_us": self.link.delay.as_micros(),
            "goodput_bps": self.goodput().as_bps(),
            "share_percent": self.share_percent(),
            "handshake_us": self.killed.handshake.map(Duration::as_micros),
            "cipher": self.resumed.cipher,
            "key_exchange": self.resumed.key_exchange,
            "packets_sent": self.resumed.packets_sent,
            "packets_lost": self.resumed.packets_lost,
            "link_lost": self.stats.forward.link.lost,
            "link_overflowed": self.stats.forward.link.overflowed,
            "killed_at_percent": self.killed.percent(),
            "bytes_resumed": self.resumed.bytes_resumed,
            "blake3": self.hash,
            "verified": self.verified,
        })
    }
}
