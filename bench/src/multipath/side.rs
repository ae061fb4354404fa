//! The two processes of a run: their arguments and their reports.
//!
//! ```text
//!   runner ── starts ──▶ serve (namespace b) ── "ADDRESS,ADDRESS,..." ──▶ runner
//!   runner ── starts ──▶ drive (namespace a) ── "connected NS" ── figures ──▶ runner
//!   serve ── figures, when the connection is over ──▶ runner
//! ```
//!
//! Times are `CLOCK_MONOTONIC`, which both processes and the runner share.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::arrivals::Arrivals;
use super::case::Workload;
use super::contender::{Contender, Controller};
use crate::contender::Failure;
use crate::meter::{Exchanges, monotonic_ns};
use crate::usage;

/// Bytes of a request and of its response.
pub const REQUEST_LEN: usize = 200;
/// Seconds at the start that steady figures leave out.
pub const WARM_UP_S: f64 = 2.0;

/// The arguments of the serving process.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    pub contender: Contender,
    #[arg(long)]
    pub workload: Workload,
    #[arg(long)]
    pub controller: Controller,
    /// Its address on each link
    #[arg(long, value_delimiter = ',')]
    pub listen: Vec<IpAddr>,
}

/// The arguments of the driving process.
#[derive(Args, Clone, Debug)]
pub struct Drive {
    pub contender: Contender,
    #[arg(long)]
    pub workload: Workload,
    #[arg(long)]
    pub controller: Controller,
    /// Its address on each link
    #[arg(long, value_delimiter = ',')]
    pub from: Vec<IpAddr>,
    /// The other side's address on each link
    #[arg(long, value_delimiter = ',')]
    pub connect: Vec<SocketAddr>,
    /// Seconds of sending
    #[arg(long)]
    pub time: f64,
}

/// The report of the receiving side.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Received {
    pub arrivals: Option<Arrivals>,
    /// Parts of the content that differ from what was sent.
    pub faults: u64,
    pub cpu_s: f64,
    /// Seconds for which threads waited for a processor: the effect of other load on this run.
    pub waited_s: f64,
    /// Duplicate packets, where the contender reports them.
    pub packets_duplicate: Option<u64>,
}

/// The report of the sending side.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Before anything was sent.
    pub begun_ns: u64,
    /// When the connection was established.
    pub connected_ns: u64,
    /// When the application had written everything.
    pub written_ns: u64,
    /// When the peer had received everything.
    pub done_ns: u64,
    /// Bytes written by the application.
    pub bytes: u64,
    pub cpu_s: f64,
    /// As that of [`Received`].
    pub waited_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanges: Option<usize>,
    /// Samples of its paths over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// Other remarks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Samples of all paths at one moment.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub at_ns: u64,
    /// Stream bytes written and not acknowledged.
    pub held_bytes: u64,
    pub probe_timeouts: u64,
    pub paths: Vec<PathSample>,
}

/// One path at one moment, as its sender sees it. Counters count from the start.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct PathSample {
    pub id: u32,
    pub state: String,
    pub srtt_us: u64,
    pub min_rtt_us: u64,
    pub window: u64,
    pub in_flight: u64,
    pub phase: String,
    pub sent: u64,
    pub lost: u64,
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub silences: u32,
}

/// Reports the serving side's addresses to the runner.
pub fn report_ready(addresses: &[SocketAddr]) -> Result<(), Failure> {
    let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    report(&words.join(","))
}

/// Reports the established connection to the runner; returns when that was.
pub fn report_connected() -> Result<u64, Failure> {
    let now_ns = monotonic_ns();
    report(&format!("connected {now_ns}"))?;
    Ok(now_ns)
}

fn report(line: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}

/// When sending ends.
pub fn until_ns(begun_ns: u64, time_s: f64) -> u64 {
    begun_ns + Duration::from_secs_f64(time_s).as_nanos() as u64
}

/// The serving process.
pub fn serve(serve: &Serve) -> Result<(), Failure> {
    let received = serve.contender.serve(serve)?;
    report(&serde_json::to_string(&received)?)?;
    std::process::exit(0);
}

/// The driving process.
pub fn drive(drive: &Drive) -> Result<(), Failure> {
    let sent = drive.contender.drive(drive, &drive.connect)?;
    report(&serde_json::to_string(&sent)?)?;
    std::process::exit(0);
}

impl Received {
    /// Records the resources that this process has used.
    pub fn note_usage(&mut self) {
        (self.cpu_s, self.waited_s) = (usage::cpu_time().as_secs_f64(), usage::waited().as_secs_f64());
    }
}

impl Sent {
    /// Records the resources that this process has used.
    pub fn note_usage(&mut self) {
        (self.cpu_s, self.waited_s) = (usage::cpu_time().as_secs_f64(), usage::waited().as_secs_f64());
    }

    /// Records the durations of exchanges.
    pub fn note_exchanges(&mut self, exchanges: &Exchanges) {
        let figures = exchanges.figures();
        (self.median_us, self.p99_us) = (figures.median_us, figures.p99_us);
        self.exchanges = Some(exchanges.len());
    }
}
