//! One run: a serving and a driving process of one contender, and their counters and those of the
//! links.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::case::Case;
use super::contender::{Contender, Controller};
use super::failover::{self, Faults};
use super::figures::Figures;
use super::side::{Received, Sent};
use super::world::{Carried, World, address};
use crate::compare::machine;
use crate::compare::process::Process;
use crate::contender::Failure;

/// A contender with its controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Row {
    pub contender: Contender,
    pub controller: Controller,
}

/// One run's figures, raw and computed.
#[derive(Serialize)]
pub struct Run {
    pub case: Case,
    #[serde(flatten)]
    pub row: Row,
    pub round: usize,
    /// Its position in the order of the round.
    pub place: usize,
    /// The machine's load averages just before.
    pub load: String,
    pub figures: Figures,
    /// Bytes each link carried from the sender to the receiver.
    pub carried: Vec<Carried>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Faults>,
    pub received: Received,
    pub sent: Sent,
}

/// How much longer than the time of sending a process may take: buffered data drain at the rate of
/// the slowest link.
const SLACK: Duration = Duration::from_secs(90);
/// Pause before a run, so that devices are up.
const REST: Duration = Duration::from_millis(300);

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", name(&self.contender), name(&self.controller))
    }
}

/// The name of a value on the command line.
pub fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Runs `row` over these links of `case` with `time_s` seconds of sending, in new namespaces: a
/// closed socket may continue to send, and the kernel caches path metrics.
pub fn one(case: Case, row: Row, links: &[usize], time_s: f64) -> Result<Run, Failure> {
    let world = World::make(case)?;
    std::thread::sleep(REST);
    let load = machine::load();
    let before = world.carried()?;
    let program = std::env::current_exe()?;
    let limit = Duration::from_secs_f64(time_s) + SLACK;
    let addresses = |is_b| {
        let of: Vec<IpAddr> = links.iter().map(|&index| address(index, is_b)).collect();
        of.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    };
    let arguments = |command: &str| {
        let mut arguments = vec![command.to_owned(), name(&row.contender)];
        arguments.push(format!("--workload={}", name(&case.workload())));
        arguments.push(format!("--controller={}", name(&row.controller)));
        arguments
    };
    let mut serve = arguments("multipath-serve");
    serve.push(format!("--listen={}", addresses(true)));
    let mut server = Process::start(Some(world.receiver()), &program, &serve, limit)?;
    let ready = server.line()?;
    let mut drive = arguments("multipath-drive");
    drive.push(format!("--from={}", addresses(false)));
    drive.push(format!("--connect={}", ready.trim()));
    drive.push(format!("--time={time_s}"));
    let mut client = Process::start(Some(world.sender()), &program, &drive, limit)?;
    let connected = client.line()?;
    let connected_ns: u64 = connected.trim().strip_prefix("connected ").ok_or("no word of a connection")?.parse()?;
    let faults = if case.is_failover() { Some(failover::inflict(&world, connected_ns)?) } else { None };
    let sent: Sent = serde_json::from_str(&client.line()?)?;
    let received: Received = serde_json::from_str(&server.line()?)?;
    client.end()?;
    server.end()?;
    let after = world.carried()?;
    let carried: Vec<Carried> = before.iter().zip(&after).map(|(before, after)| after.since(before)).collect();
    let figures = Figures::of(case, &sent, &received, faults.as_ref())?;
    let lateness = world.lateness();
    Ok(Run { case, row, round: 0, place: 0, load, figures, carried, lateness, faults, received, sent })
}
