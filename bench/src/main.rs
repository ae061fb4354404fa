//! Litz compared with its peers, in one run.
//!
//! `compare` starts a server and a client process for each contender in turn, in two network
//! namespaces or on loopback, interleaves the runs, and keeps every raw figure with machine, date
//! and versions. `serve` and `drive` are those processes.
#![forbid(unsafe_code)]

mod compare;
mod contender;
mod meter;
mod multipath;
mod namespaces;
mod tls;
mod usage;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use contender::Name;
use work::Job;

#[derive(Parser)]
#[command(about = "Litz compared with other implementations, in one run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test for every contender, report which targets are met, and write the results
    Compare {
        #[command(flatten)]
        plan: compare::Plan,
        /// Folder for the raw results
        #[arg(long, default_value = "results")]
        results: PathBuf,
    },
    /// Run contenders over several links at once, and write results and plots
    Multipath {
        #[command(flatten)]
        plan: multipath::Plan,
        /// Folder for raw results and plots
        #[arg(long, default_value = "results")]
        results: PathBuf,
    },
    /// The serving process of one run over several links
    #[command(hide = true)]
    MultipathServe(multipath::Serve),
    /// The driving process of one run over several links
    #[command(hide = true)]
    MultipathDrive(multipath::Drive),
    /// The serving process of one run: prints its address, serves, and prints its figures when its
    /// input ends
    Serve {
        contender: Name,
        #[command(flatten)]
        job: Job,
        #[arg(long)]
        listen: SocketAddr,
        /// Pin to this processor
        #[arg(long)]
        processor: Option<usize>,
    },
    /// The driving process of one run: prints its figures
    Drive {
        contender: Name,
        #[command(flatten)]
        job: Job,
        #[arg(long)]
        connect: SocketAddr,
        /// Pin to this processor
        #[arg(long)]
        processor: Option<usize>,
    },
}

fn main() -> Result<(), contender::Failure> {
    match Arguments::parse().command {
        Command::Compare { plan, results } => compare::run(&plan, &results),
        Command::Multipath { plan, results } => multipath::run(&plan, &results),
        Command::MultipathServe(serve) => multipath::serve(&serve),
        Command::MultipathDrive(drive) => multipath::drive(&drive),
        Command::Serve { contender, job, listen, processor } => {
            pin(processor)?;
            work::serve(contender, &job, listen)
        }
        Command::Drive { contender, job, connect, processor } => {
            pin(processor)?;
            work::drive(contender, &job, connect)
        }
    }
}

/// Pins this process, which still has one thread, to a processor; its later threads inherit that.
fn pin(processor: Option<usize>) -> Result<(), contender::Failure> {
    if let Some(processor) = processor {
        let mut set = rustix::thread::CpuSet::new();
        set.set(processor);
        rustix::thread::sched_setaffinity(None, &set)?;
    }
    Ok(())
}
