//! The work of one process: the tests, their sizes, and their figures.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::compare::FileFigures;
use crate::contender::{self, Failure, Name};
use crate::meter::Bins;
use crate::usage;

/// Bytes of a request and of its response.
pub const REQUEST_LEN: usize = 64;
/// Sequential handshakes in one run.
pub const HANDSHAKES: usize = 200;
/// Bytes per write of the bulk test.
pub const CHUNK_LEN: usize = 64 * 1024;
/// Bytes in each direction on a connection of the connect test.
pub const CONNECT_LEN: usize = 1024;
/// The idle timeout of connections: longer than it takes to open the idle ones.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long connections are idle before memory is measured.
pub const SETTLE: Duration = Duration::from_millis(2500);
/// Bytes of IPv4 and UDP headers.
const HEADERS_LEN: u16 = 28;
/// Socket buffers of every contender.
pub const SOCKET_BUFFER: usize = 4 << 20;
/// Flow-control windows and send buffers of every contender, bytes.
pub const WINDOW: u32 = 32 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// One connection, one stream, as fast as possible
    Bulk,
    /// Handshakes one after the other
    Handshake,
    /// 64 bytes in each direction, one exchange at a time
    RequestResponse,
    /// Processor time of a connection that carries 1 KB in each direction
    Connect,
    /// Memory of idle connections
    Idle,
    /// The same with connections that release their TLS session
    IdleParked,
    /// A file from tmpfs to tmpfs with the `litz` command, compared with the bound that the machine
    /// sets
    File,
    /// Whether a key update causes a dip in the bytes received per 10 ms
    KeyUpdate,
}

impl Test {
    /// Whether the test measures the memory of idle connections.
    pub const fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::IdleParked)
    }
}

#[derive(Args, Clone, Copy, Debug)]
pub struct Timing {
    /// Seconds before counting begins
    #[arg(long, default_value_t = 0.5)]
    pub warm_up: f64,
    /// Seconds counted
    #[arg(long, default_value_t = 2.0)]
    pub time: f64,
}

/// The job of a serving or driving process.
#[derive(Args, Clone, Copy, Debug)]
pub struct Job {
    pub test: Test,
    /// The path's MTU: datagrams fill it
    #[arg(long, default_value_t = 1500)]
    pub mtu: u16,
    /// Connections of the idle test
    #[arg(long, default_value_t = 10_000)]
    pub connections: usize,
    #[command(flatten)]
    pub timing: Timing,
}

impl Job {
    /// UDP payload of every contender's full datagrams.
    pub fn datagram_size(&self) -> u16 {
        self.mtu - HEADERS_LEN
    }
}

/// The figures of one process. Those that do not apply are absent.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes that the application has received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bps: Option<f64>,
    /// Bytes that the application has sent, where that can be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_lost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// User and system time of one connection of the connect test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_connection: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_connection: Option<f64>,
    /// Bytes received in every 10 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bins: Option<Bins>,
    /// When send keys were updated, on the clock of the bins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_updates_ns: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<FileFigures>,
}

/// The serving process: prints its address, serves until its input ends, prints its figures.
pub fn serve(name: Name, job: &Job, listen: SocketAddr) -> Result<(), Failure> {
    let before = usage::resident_bytes();
    let server = contender::server(name, job, listen)?;
    println!("{}", server.address());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let mut figures = server.figures();
    if job.test.is_idle() {
        figures.bytes_per_connection = Some((usage::resident_bytes() as f64 - before as f64) / job.connections as f64);
    }
    println!("{}", serde_json::to_string(&figures)?);
    // Threads that still serve end with the process.
    std::process::exit(0);
}

/// The driving process: runs the test, prints its figures.
pub fn drive(name: Name, job: &Job, remote: SocketAddr) -> Result<(), Failure> {
    let figures = contender::drive(name, job, remote)?;
    println!("{}", serde_json::to_string(&figures)?);
    // An idle driver keeps its connections until its input ends.
    if job.test.is_idle() {
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    std::process::exit(0);
}
