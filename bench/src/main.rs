//! Litz beside its peers, in one run.
//!
//! `compare` starts a server and a client process for each contender in turn, in two network namespaces or on loopback,
//! interleaves the runs, and keeps every raw figure with machine, date and versions. `serve` and `drive` are those
//! processes.
#![forbid(unsafe_code)]

mod compare;
mod contender;
mod namespaces;
mod tls;
mod usage;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use contender::Name;
use work::{Test, Timing};

#[derive(Parser)]
#[command(about = "Litz beside its peers, in one run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test for every contender and write the results
    Compare {
        /// Counted runs of each contender and test
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Seconds before counting begins
        #[arg(long, default_value_t = 2.0)]
        warm_up: f64,
        /// Seconds counted
        #[arg(long, default_value_t = 5.0)]
        time: f64,
        /// Only these tests
        #[arg(long, value_delimiter = ',')]
        tests: Vec<Test>,
        /// Only these contenders
        #[arg(long, value_delimiter = ',')]
        contenders: Vec<Name>,
        /// Where the raw results go
        #[arg(long, default_value = "results")]
        results: PathBuf,
    },
    /// The serving process of one run: prints its address, serves, and prints its figures when its input ends
    Serve {
        contender: Name,
        test: Test,
        #[arg(long)]
        listen: SocketAddr,
        #[command(flatten)]
        timing: Timing,
    },
    /// The driving process of one run: prints its figures
    Drive {
        contender: Name,
        test: Test,
        #[arg(long)]
        connect: SocketAddr,
        #[command(flatten)]
        timing: Timing,
    },
}

fn main() -> Result<(), contender::Failure> {
    match Arguments::parse().command {
        Command::Compare { runs, warm_up, time, tests, contenders, results } => {
            let timing = Timing { warm_up, time };
            compare::run(&compare::Plan::new(runs, timing, &tests, &contenders), &results)
        }
        Command::Serve { contender, test, listen, timing } => work::serve(contender, test, listen, timing),
        Command::Drive { contender, test, connect, timing } => work::drive(contender, test, connect, timing),
    }
}
