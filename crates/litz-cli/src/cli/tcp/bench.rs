//! `litz tcp bench`: one connection between the stack and the kernel, each way.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use litz::tcp::{Count, TcpStack, TcpStream};
use net::MonotonicClock;
use serde_json::json;
use units::Rate;

use super::device;
use super::options::StackOptions;
use crate::cli::{exit, heading, out};

/// The size of a write of either side.
const CHUNK: usize = 256 << 10;

#[derive(Args, Debug)]
pub(super) struct BenchOptions {
    /// Seconds for each direction
    #[arg(long, value_name = "SECONDS", default_value = "5", help_heading = heading::MEASURED,
          value_parser = clap::value_parser!(u64).range(1..3600))]
    time: u64,

    /// Print the result as one JSON object
    #[arg(long, help_heading = heading::OUTPUT)]
    json: bool,

    #[command(flatten)]
    stack: StackOptions,
}

pub(super) fn run(options: &BenchOptions) -> ExitCode {
    match measure(options) {
        Ok(([to_kernel, from_kernel], packets)) => {
            if options.json {
                out::json(&json!({
                    "event": "tcp_bench",
                    "seconds": options.time,
                    "to_kernel_bps": to_kernel.as_bps(),
                    "from_kernel_bps": from_kernel.as_bps(),
                    "packets": packets,
                }));
            } else {
                out::line(&format!("to the kernel:    {to_kernel}"));
                out::line(&format!("from the kernel:  {from_kernel}"));
                let dropped = Count::ALL.iter().filter(|count| count.is_drop());
                let dropped = dropped.filter_map(|count| Some((count.name(), packets.get(count.name())?)));
                for (reason, packets) in dropped {
                    out::line(&format!("dropped packets:  {packets} ({})", reason.replace('_', " ")));
                }
            }
            ExitCode::from(exit::DONE)
        }
        Err(message) => exit::fail(options.json, exit::FAILED, &message),
    }
}

fn measure(options: &BenchOptions) -> Result<([Rate; 2], Packets), String> {
    if options.stack.layers.has_any() {
        return Err("the peer is the kernel, which does not know the layers: leave out --stack".to_owned());
    }
    let stack = device::start(&options.stack)?;
    let kernel = options.stack.kernel.first().ok_or("the device needs an address (--kernel)")?.address;
    let time = Duration::from_secs(options.time);
    let rates = [to_kernel(&stack, kernel, time)?, from_kernel(&stack, kernel, time)?];
    Ok((rates, packets(&stack)))
}

/// Packets by their [names](Count::name): those that were read, what became of them, and those that were
/// not sent.
type Packets = BTreeMap<&'static str, u64>;

fn packets(stack: &TcpStack) -> Packets {
    Count::ALL.iter().map(|count| (count.name(), stack.count_of(*count))).filter(|(_, packets)| *packets > 0).collect()
}

/// A program of the kernel's stack that serves one connection.
#[expect(clippy::disallowed_methods, reason = "the peer of the measurement is a program of the kernel's stack")]
fn peer<T: Send + 'static>(
    kernel: IpAddr,
    serve: impl FnOnce(std::net::TcpStream) -> std::io::Result<T> + Send + 'static,
) -> Result<(SocketAddr, JoinHandle<std::io::Result<T>>), String> {
    let fails = |error: std::io::Error| format!("cannot listen on {kernel}: {error}");
    let listener = TcpListener::bind((kernel, 0)).map_err(fails)?;
    let address = listener.local_addr().map_err(fails)?;
    Ok((address, std::thread::spawn(move || serve(listener.accept()?.0))))
}

fn join<T>(thread: JoinHandle<std::io::Result<T>>) -> Result<T, String> {
    let result = thread.join().map_err(|_| "the peer has panicked".to_owned())?;
    result.map_err(|error| format!("the peer has failed: {error}"))
}

fn connect(stack: &TcpStack, remote: SocketAddr) -> Result<TcpStream, String> {
    stack.connect(remote).map_err(|closed| format!("cannot connect to {remote}: {closed}"))
}

/// The rate of `bytes` since `start` on this clock.
fn rate(clock: &MonotonicClock, start: units::Instant, bytes: u64) -> Rate {
    Rate::from_transfer(bytes, clock.now().saturating_since(start)).unwrap_or(Rate::ZERO)
}

/// The stack sends, a program of the kernel reads everything.
fn to_kernel(stack: &TcpStack, kernel: IpAddr, time: Duration) -> Result<Rate, String> {
    let (address, reader) = peer(kernel, |mut stream| {
        let (mut memory, mut bytes) = (vec![0; CHUNK], 0);
        loop {
            match stream.read(&mut memory)? {
                0 => return Ok(bytes),
                count => bytes += count as u64,
            }
        }
    })?;
    let stream = connect(stack, address)?;
    let (clock, chunk) = (MonotonicClock::start(), Bytes::from(vec![7; CHUNK]));
    let start = clock.now();
    while clock.now().saturating_since(start) < time.into() {
        stream.write_chunk(chunk.clone()).map_err(|error| error.to_string())?;
    }
    stream.finish();
    // Inline, the stack sends only while one of its calls waits.
    stream.closed();
    let bytes = join(reader)?;
    Ok(rate(&clock, start, bytes))
}

/// A program of the kernel sends, the stack reads everything.
fn from_kernel(stack: &TcpStack, kernel: IpAddr, time: Duration) -> Result<Rate, String> {
    let (address, writer) = peer(kernel, move |mut stream| {
        let (clock, chunk) = (MonotonicClock::start(), vec![7; CHUNK]);
        let start = clock.now();
        while clock.now().saturating_since(start) < time.into() {
            stream.write_all(&chunk)?;
        }
        Ok(())
    })?;
    let stream = connect(stack, address)?;
    let (clock, mut bytes) = (MonotonicClock::start(), 0);
    let start = clock.now();
    while let Some(chunk) = stream.read_chunk().map_err(|closed| closed.to_string())? {
        bytes += chunk.len() as u64;
    }
    let rate = rate(&clock, start, bytes);
    join(writer)?;
    Ok(rate)
}
