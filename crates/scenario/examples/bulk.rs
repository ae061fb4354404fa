//! Bulk over one link in the simulated world, timed: what `bench/ns3/run` compares with ns-3.
//!
//!     bulk BUFFER_KIB SIMULATED_SECONDS [COALESCE_US]
//!
//! The topology of `bench/ns3/bulk.cc`: 1 Gb/s, 10 ms each way, a queue of 30 ms, CUBIC, datagrams that fill a packet of 1500
//! bytes. Hosts look at each datagram as it arrives unless told to let them wait for each other. Prints data packets that arrived,
//! seconds of the wall and of the processor, goodput in Mb/s, and the most memory the process had, KiB.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::process::ExitCode;

use scenario::parse::parse;
use scenario::simulated::Sim;
use scenario::world::{Order, World};

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
    // A stream gets half of what its host allows for: the one stream here gets the buffer.
    let host = 2 * buffer_kib;
    let text = format!(
        "version = 1\n[scenario]\nname = 'bulk'\nabout = 'As ns-3 does it.'\nduration = '{seconds}s'\n\
         [hosts.a]\nsend-buffer = '{host}KiB'\n[hosts.b]\nreceive-window = '{host}KiB'\ncoalesce = '{coalesce_us}us'\n\
         [[link]]\nname = 'link'\nrate = '1Gb/s'\ndelay = '10ms'\nqueue = '30ms'\n\
         [transport]\ndatagram-size = '1472B'\ncongestion = 'cubic'\n[[workload]]\nkind = 'stream'\n"
    );
    let scenario = match parse("bulk", &text, &|_| Err("there is none".to_owned())) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    #[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "wall time is what is measured")]
    let begun = std::time::Instant::now();
    let worked = cpu_seconds();
    let outcome = match Sim::default().run(&scenario, &Order { paths: vec![0], seed: 1 }, &mut |_| true) {
        Ok(outcome) => outcome,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(1);
        }
    };
    let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - worked);
    let packets = outcome.link_outcomes[0].stats[0].delivered;
    let goodput = outcome.parts[0].delivered.bytes as f64 * 8.0 / seconds as f64 / 1e6;
    println!("{packets} {took:.3} {cpu:.3} {goodput:.1} {}", memory_kib());
    ExitCode::SUCCESS
}

/// Seconds of a processor that this process, which has one thread, has had; zero where the system does not tell.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// The most memory that this process had, KiB; zero where the system does not tell.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|words| words.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
