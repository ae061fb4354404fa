//! The tests, from the point of view of one process.

use std::io::Read;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::contender::{self, Failure, Name};
use crate::usage;

/// Bytes of a request and of its response.
pub const REQUEST_LEN: usize = 64;
/// Sequential handshakes in one run.
pub const HANDSHAKES: usize = 200;
/// Idle connections in one run.
pub const IDLE_CONNECTIONS: usize = 1000;
/// Bytes per write of the bulk test.
pub const CHUNK_LEN: usize = 64 * 1024;
/// UDP payload of every contender's datagrams: MTU 1500 less IPv4 and UDP headers.
pub const DATAGRAM_SIZE: u16 = 1472;
/// Socket buffers of every contender.
pub const SOCKET_BUFFER: usize = 4 << 20;
/// Flow-control windows and send buffers of every contender, bytes.
pub const WINDOW: u32 = 32 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// One connection, one stream, as fast as it goes
    Bulk,
    /// Handshakes one after the other
    Handshake,
    /// 64 bytes there and back, one at a time
    RequestResponse,
    /// Memory of connections that do nothing
    Idle,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Timing {
    /// Seconds before counting begins
    #[arg(long, default_value_t = 2.0)]
    pub warm_up: f64,
    /// Seconds counted
    #[arg(long, default_value_t = 5.0)]
    pub time: f64,
}

/// What one process measured. What does not apply is absent.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Figures {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_connection: Option<f64>,
}

/// Counts bytes after a warm-up, with the processor time they took.
pub struct BulkMeter {
    timing: Timing,
    started: Option<Instant>,
    from: Option<(Instant, Duration)>,
    counted: u64,
    figures: Figures,
}

impl BulkMeter {
    pub fn new(timing: Timing) -> Self {
        Self { timing, started: None, from: None, counted: 0, figures: Figures::default() }
    }

    /// Notes that `bytes` have passed; false once the time is over for both sides.
    pub fn note(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        let elapsed = (now - *self.started.get_or_insert(now)).as_secs_f64();
        let Some((from, cpu)) = self.from else {
            if elapsed >= self.timing.warm_up {
                self.from = Some((now, usage::cpu_time()));
            }
            return true;
        };
        if self.figures.goodput_bps.is_some() {
            // The server goes on for a while, so that the client's time, which began earlier, is over too.
            return elapsed < self.timing.warm_up + self.timing.time + 0.5;
        }
        self.counted += bytes as u64;
        if elapsed >= self.timing.warm_up + self.timing.time {
            let span = (now - from).as_secs_f64();
            self.figures.goodput_bps = Some(self.counted as f64 * 8.0 / span);
            self.figures.cpu_s_per_gb = Some((usage::cpu_time() - cpu).as_secs_f64() / (self.counted as f64 / 1e9));
            return false;
        }
        true
    }

    pub fn figures(&self) -> Figures {
        self.figures.clone()
    }
}

/// Median and 99th percentile of durations.
pub fn latencies(mut samples: Vec<Duration>) -> Figures {
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).expect("three digits are possible");
    for sample in samples.drain(..) {
        histogram.record(sample.as_nanos() as u64).expect("the histogram grows");
    }
    Figures {
        median_us: Some(histogram.value_at_quantile(0.5) as f64 / 1000.0),
        p99_us: Some(histogram.value_at_quantile(0.99) as f64 / 1000.0),
        ..Figures::default()
    }
}

/// The serving process: prints where it listens, serves until its input ends, prints its figures.
pub fn serve(name: Name, test: Test, listen: SocketAddr, timing: Timing) -> Result<(), Failure> {
    let before = usage::resident_bytes();
    let server = contender::server(name, test, listen, timing)?;
    println!("{}", server.address());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let mut figures = server.figures();
    if test == Test::Idle {
        figures.bytes_per_connection = Some((usage::resident_bytes() as f64 - before as f64) / IDLE_CONNECTIONS as f64);
    }
    println!("{}", serde_json::to_string(&figures)?);
    // Whatever threads still serve end with the process.
    std::process::exit(0);
}

/// The driving process: does the test, prints its figures.
pub fn drive(name: Name, test: Test, remote: SocketAddr, timing: Timing) -> Result<(), Failure> {
    let figures = contender::drive(name, test, remote, timing)?;
    println!("{}", serde_json::to_string(&figures)?);
    // An idle driver keeps its connections until it is told to end.
    if test == Test::Idle {
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    std::process::exit(0);
}
