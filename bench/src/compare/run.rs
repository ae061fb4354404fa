//! One run: a serving and a driving process of one contender, and their figures.

use std::fmt;
use std::net::SocketAddr;

use clap::ValueEnum;
use serde::Serialize;

use super::Plan;
use super::process::Process;
use crate::contender::{Failure, Name};
use crate::namespaces::{CLIENT, SERVER, SERVER_ADDRESS};
use crate::work::{Figures, Test};

/// A test under its conditions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Case {
    pub test: Test,
    pub mtu: u16,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = value_name(&self.test);
        if self.test == Test::Bulk { write!(f, "{test}-{}", self.mtu) } else { f.write_str(&test) }
    }
}

/// One run's figures.
#[derive(Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub case: Case,
    pub contender: Name,
    /// From zero; the warm-up round is not counted.
    pub round: usize,
    /// The machine's load averages just before.
    pub load: String,
    pub server: Figures,
    pub client: Figures,
}

/// The name of a value on the command line.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Network namespaces for tests over a link; latencies and memory are measured on loopback.
const fn is_split(test: Test) -> bool {
    matches!(test, Test::Bulk | Test::KeyUpdate)
}

/// A server process, a client process, their figures.
pub fn one(plan: &Plan, contender: Name, case: Case) -> Result<(Figures, Figures), Failure> {
    let program = std::env::current_exe()?;
    let limit = plan.limit(case.test);
    let is_split = is_split(case.test);
    let ip = if is_split { SERVER_ADDRESS } else { "127.0.0.1" };
    let arguments = |command: &str, address: String, processor: usize| {
        let mut arguments = vec![command.to_owned(), value_name(&contender), value_name(&case.test), address];
        arguments.push(format!("--mtu={}", case.mtu));
        arguments.push(format!("--warm-up={}", plan.timing.warm_up));
        arguments.push(format!("--time={}", plan.time(case.test)));
        arguments.push(format!("--connections={}", plan.connections));
        if !plan.no_pin {
            arguments.push(format!("--processor={processor}"));
        }
        arguments
    };
    let serve = arguments("serve", format!("--listen={ip}:0"), 1);
    let mut server = Process::start(is_split.then_some(SERVER), &program, &serve, limit)?;
    let address: SocketAddr = server.line()?.trim().parse()?;
    let drive = arguments("drive", format!("--connect={address}"), 0);
    let mut client = Process::start(is_split.then_some(CLIENT), &program, &drive, limit)?;
    let client_figures = serde_json::from_str(&client.line()?)?;
    let server_figures: Figures = serde_json::from_str(&server.end()?)?;
    if is_split && server_figures.goodput_bps.is_none() {
        return Err("the connection ended before its time was over".into());
    }
    client.end()?;
    Ok((server_figures, client_figures))
}
