//! Measures a bulk transfer over one link in the world `sim`. `bench/ns3/run` compares it with
//! ns-3.
//!
//!     bulk BUFFER_KIB SIMULATED_SECONDS [COALESCE_US]
//!
//! The topology is that of `bench/ns3/bulk.cc`: 1 Gb/s, 10 ms in each direction, a queue of 30 ms,
//! CUBIC, datagrams that fill a packet of 1500 bytes. Hosts process each datagram as it arrives
//! unless COALESCE_US is given. Prints the delivered data packets, wall-clock and processor
//! seconds, the goodput in Mb/s, and the peak memory of the process in KiB.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;

use scenario::parse::parse;
use scenario::simulated::Sim;
use scenario::world::{RunPlan, World};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let (buffer_kib, seconds, coalesce_us) = match numbers[..] {
        [buffer_kib, seconds] => (buffer_kib, seconds, 0),
        [buffer_kib, seconds, coalesce_us] => (buffer_kib, seconds, coalesce_us),
        _ => {
            eprintln!("usage: bulk BUFFER_KIB SIMULATED_SECONDS [COALESCE_US]");
            return ExitCode::from(2);
        }
    };
    // The window of one stream is half of its host's, so double the buffer.
    let host = 2 * buffer_kib;
    let text = format!(
        "version = 1\n[scenario]\nname = 'bulk'\nabout = 'As ns-3 does it.'\nduration = '{seconds}s'\n\
         [hosts.a]\nsend-buffer = '{host}KiB'\n[hosts.b]\nreceive-window = '{host}KiB'\ncoalesce = '{coalesce_us}us'\n\
         [[link]]\nname = 'link'\nrate = '1Gb/s'\ndelay = '10ms'\nqueue = '30ms'\n\
         [transport]\ndatagram-size = '1472B'\ncongestion = 'cubic'\n[[workload]]\nkind = 'stream'\n"
    );
    let scenario = match parse("bulk", &text, &|_| Err("no traces are available".to_owned())) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    #[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures wall-clock time")]
    let begun = std::time::Instant::now();
    let worked = cpu_seconds();
    let outcome = match Sim::default().run(&scenario, &RunPlan { paths: vec![0], seed: 1 }, &mut |_| true) {
        Ok(outcome) => outcome,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(1);
        }
    };
    let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - worked);
    let packets = outcome.link_outcomes[0].stats[0].delivered;
    let goodput = outcome.parts[0].delivered.timeline.bytes as f64 * 8.0 / seconds as f64 / 1e6;
    println!("{packets} {took:.3} {cpu:.3} {goodput:.1} {}", memory_kib());
    ExitCode::SUCCESS
}

/// Processor seconds of this single-threaded process; zero if the system does not report them.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Peak memory of this process in KiB; zero if the system does not report it.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|message| message.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
